"""The declaration of `simulate`."""

from volsched.questions.registry import Question, Route

QUESTIONS = (
    Question(
        name="simulate",
        help="Try a change on a copy in memory: which pods lose their node, which find another, and which volumes "
        "prevent that.",
        text="""Pods are placed in order of priority, then of name; each sees what the pods before it took. The
store is only read. Exit 0 if every pod finds a node, 4 if some do not, 3 if a named object does not exist.""",
        examples="""**Examples**

`volsched simulate --drain node-7` which pods leave, which find another node, and which volumes prevent that

`volsched simulate --lose-zone a --add spare-nodes.yaml -o json`

`volsched simulate --lose-zone a --as-of "yesterday 14:00"` what it would have done then

`volsched simulate --delete pv/disk-3 --delete pvc/shop/data-db-0`

`kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched simulate --lose-node node-7 -f -` on a dump
""",
        answer="document",
        schema="Simulation",
        parameters="volsched.questions.simulate.parameters:ScenarioParameters",
        handler="volsched.questions.simulate.handlers:simulate",
        routes=(
            Route(
                path="/simulate",
                method="POST",
                help="What would happen if.",
                body="volsched.questions.simulate.parameters:Simulate",
                needs_body=True,
            ),
        ),
        access="simulate/*",
        turn="hypothesis",
    ),
)
