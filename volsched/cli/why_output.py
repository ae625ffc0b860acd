"""`volsched audit why` for people: the claims and the failures stand below, a line each."""

from volsched.cli.audit_output import AnswerForm, print_item
from volsched.cli.output import write
from volsched.questions.audit.answers import Item
from volsched.questions.explain.reason_lines import claim_lines, failure_lines


def print_why(item: Item, output: AnswerForm) -> None:
    if output is not AnswerForm.table:
        print_item(item, output)
        return
    print_item({name: it for name, it in item.items() if name not in ("failure", "failing")}, output)
    for line in (*claim_lines(item["reasons"]), *failure_lines(item)):
        write(line)
