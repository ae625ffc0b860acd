"""`volsched validate`: are these manifests what we would accept?"""

from collections import Counter

from rich.markup import escape

from volsched.cli.console import stderr, stdout
from volsched.cli.manifest_input import Files, load_files
from volsched.objects.rules.field_check import field_faults

EXAMPLES = """
Examples:

volsched validate -f cluster.yaml

kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched validate -f -
"""


def validate(filename: Files) -> None:
    """Check manifests and report every defect of every object; nothing is stored.

    Exit 1 if an object is invalid, 2 if an input cannot be read as YAML or JSON. A field that the kind does not
    have is warned of: apply and create refuse it, import takes a dump as it is.
    """
    loaded = load_files(filename)
    for entry in loaded:
        for why in field_faults(entry.kind, entry.manifest):
            subject = f'{entry.place}: {entry.kind.name} "{entry.key}": {why}; apply and create refuse it'
            stderr.print(f"[yellow]warning:[/] {escape(subject)}")
    counts = Counter(entry.kind.name for entry in loaded)
    stdout.print(f"all valid: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
