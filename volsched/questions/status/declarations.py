"""The declaration of `status`."""

from volsched.questions.registry import Question, Route

QUESTIONS = (
    Question(
        name="status",
        help="Show at a glance what is in flight, which pods wait for what, and what storage is left.",
        text="Pods that wait, by reason; open bindings; work that waits or was given up; storage by class and "
        "zone; which process acts in which role.",
        examples="""**Examples**

`volsched status` is everything in one screen; `volsched top` repeats it

`volsched status --as-of 2h` is the state two hours ago, as far as the log has it

`volsched --server http://127.0.0.1:8700 status -o json`
""",
        answer="document",
        schema="StoreStatus",
        parameters="volsched.questions.status.parameters:StatusParameters",
        handler="volsched.questions.status.handlers:status",
        routes=(Route(path="/status"),),
        access="status/*",
    ),
)
