"""The declarations of `history` and `diff`: one object's events, and differences between two moments."""

from volsched.questions.registry import Question, Route

QUESTIONS = (
    Question(
        name="history",
        help="Show all that happened to an object: who did what, when, why, and which event caused it.",
        text="Deleted objects have a history too; it continues if the name is used again.",
        examples="""**Examples**

`volsched history pv disk-7` is all that ever happened to a volume, and what caused it

`volsched history pvc data-0 -n shop --since 2d -o csv`

`volsched history binding 3f2a` is everything that was done for one binding, on all objects

`volsched audit cause 1234` is the event at a position, with its causes and consequences
""",
        answer="page",
        parameters="volsched.questions.history.parameters:Timeline",
        handler="volsched.questions.history.history:timeline",
        of_events=True,
        routes=(Route(path="/history/{kind}/{name}", within="either"),),
        access="history/*",
        columns=("position", "at", "actor", "what", "reason", "cause", "causedBy"),
        columns_of_kind={"binding": ("position", "at", "object", "actor", "what", "reason", "cause")},
        empty="nothing happened to {subject} in that time",
    ),
    Question(
        name="diff",
        help="Show how the store differs between two moments: what was created, changed and deleted.",
        text="What was changed and changed back does not differ. Events about objects are left out unless you ask "
        "for them: diff ev.",
        examples="""**Examples**

`volsched diff --from 2h` is what has changed in the last two hours

`volsched diff pv --from 2025-11-16T22:00:00Z --to 2025-11-17T06:00:00Z -o json`

`volsched diff --from 1200 --to 1300`
""",
        answer="page",
        parameters="volsched.questions.history.parameters:Diff",
        handler="volsched.questions.history.history:diff",
        routes=(Route(path="/diff"),),
        access="diff/*",
        columns=("kind", "name", "change", "what", "firstPosition"),
        empty="nothing differs between the two moments",
        turn="long",
    ),
)
