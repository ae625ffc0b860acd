"""A name that is not there is answered from names alone, however large the store is."""

import pytest

from tests.support.clusters import LOCAL, Stepped, node, pod, volume
from volsched.lab.bench.statement_count import traced
from volsched.log.database import Database
from volsched.questions.context import QuestionContext
from volsched.questions.explain.handlers import explain
from volsched.questions.explain.parameters import ExplainParameters
from volsched.questions.refusals import UnknownError
from volsched.scheduling.rules.profile import VOLSCHED


@pytest.mark.parametrize(
    ("name", "on", "told"),
    [
        ("wen", None, 'pod "default/wen" is not in the store; pods there: default/web'),
        ("web", "node-9", 'node "node-9" is not in the store; did you mean node-0?'),
    ],
)
def test_a_name_that_is_not_there_is_reported_without_reading_a_volume(
    sqlite: Database, name: str, on: str | None, told: str
) -> None:
    Stepped(sqlite, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), pod("web")])
    context = QuestionContext(store=sqlite, now=0, profile=VOLSCHED)
    statements: list[str] = []
    with traced(sqlite, statements.append), pytest.raises(UnknownError) as refused:
        explain(context, ExplainParameters(name=name, namespace="default", node=on, manifests=[]))
    assert str(refused.value) == told
    assert statements
    assert not [it for it in statements if "volumes" in it]


def test_a_pod_that_is_laid_over_the_store_is_found(sqlite: Database) -> None:
    Stepped(sqlite, [node("node-0")])
    context = QuestionContext(store=sqlite, now=0, profile=VOLSCHED)
    asked = ExplainParameters(name="web", namespace="default", node="node-0", manifests=[pod("web")])
    assert explain(context, asked)["fits"]
