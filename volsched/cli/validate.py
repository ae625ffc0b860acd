"""`volsched validate`: are these manifests what we would accept?"""

from collections import Counter

from volsched.cli.console import stdout
from volsched.cli.manifest_input import Files, load_files

EXAMPLES = """
Examples:

volsched validate -f cluster.yaml

kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched validate -f -
"""


def validate(filename: Files) -> None:
    """Check manifests and report every defect of every object; nothing is stored.

    Exit 1 if an object is invalid, 2 if an input cannot be read as YAML or JSON.
    """
    counts = Counter(loaded.kind.name for loaded in load_files(filename))
    stdout.print(f"all valid: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
