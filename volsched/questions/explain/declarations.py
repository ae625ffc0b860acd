"""The declaration of `explain`: why a pod waits, or why it is on its node."""

from volsched.questions.registry import Question, Route

QUESTIONS = (
    Question(
        name="explain pod",
        help="Say what was decided about a pod, decide it again as of now, and name the smallest changes that "
        "would help.",
        text="""Nodes that refuse the pod for the same reasons are grouped; for claims, the nearest volumes are
shown with the rule, what was wanted and what was found. Every change was tried: with it, the pod finds a node.

A pod that does not exist is explained as its StatefulSet would create it, from the manifests or the store.

A pod whose bindings keep failing fits nowhere, whatever the rules say: the failures are shown, and what helps.
`--as-of` shows what was stored up to then, and decides nothing.

Exit 0 if a node fits, 4 if none does, 3 if the pod or node does not exist.""",
        examples="""**Examples**

`volsched explain pod shop/db-0` why it waits, or why it is on its node

`volsched explain pod shop/db-0 -f pod.yaml --db store.db` a pod that does not exist yet

`kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched explain pod shop/db-0 -f -` on a dump, without a store

`volsched explain pod shop/db-0 --as-of 2025-11-16T22:00:00Z` what was decided about it up to then

`volsched explain pod shop/db-0 -f cluster.yaml --node node-7 -o json`
""",
        answer="document",
        schema="Explanation",
        parameters="volsched.questions.explain.parameters:ExplainParameters",
        handler="volsched.questions.explain.handlers:explain",
        routes=(
            Route(
                path="/explain/{name}",
                within="namespace",
                help="Why a pod waits, or why it is on its node, and what would help.",
            ),
            Route(
                path="/explain",
                method="POST",
                help="The same for a pod in manifests, alone or laid over the store.",
                query=(),
                body="volsched.questions.explain.parameters:Explain",
                needs_body=True,
            ),
        ),
        access="explain/*",
        turn="hypothesis",
    ),
)
