"""Why a pod is pending or on its node, and the smallest change that would help."""
