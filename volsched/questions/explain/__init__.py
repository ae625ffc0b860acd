"""Why a pod is pending or placed where it is, and which smallest change would help."""
