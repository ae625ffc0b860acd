"""The declarations of questions about half-done bindings of any scheduler, and about the users of claims."""

from volsched.questions.registry import Question, Route

_PARAMETERS = "volsched.questions.claims.parameters"

QUESTIONS = (
    Question(
        name="in-flight",
        help="Claims that any scheduler or controller has half bound, and since when.",
        text="Read off the objects: a volume reserved for a claim, a node selected for it, only one side written.",
        examples="""**Examples**

`volsched in-flight --older 2m` is what should have been done by now

`kubectl volsched in-flight` asks the cluster that kubectl talks to
""",
        answer="page",
        parameters=f"{_PARAMETERS}:HalfBoundParameters",
        handler="volsched.questions.claims.half_bound:in_flight",
        routes=(Route(path="/audit/half-bound"),),
        access="audit/*",
        columns=("claim", "state", "volume", "node", "pods", "since", "detail"),
        empty="no claim is half bound",
        turn="long",
    ),
    Question(
        name="audit handovers",
        help="Volumes that went to another claim, or are offered again, with data that may not have been erased.",
        examples="""**Examples**

`volsched audit handovers --since 30d` is whose data another claim may have found

`volsched audit handovers -o csv`
""",
        answer="page",
        parameters="volsched.questions.parameters:WindowParameters",
        handler="volsched.questions.claims.handlers:handovers",
        of_events=True,
        routes=(Route(path="/audit/handovers"),),
        access="audit/*",
        columns=("volume", "held", "until", "given", "at", "data"),
        empty="no volume was handed over with unknown contents",
        turn="long",
    ),
    Question(
        name="audit data",
        help="Whether the volumes of claims were ever used: never-used, used or unknown, and why.",
        text="Only claims that were observed from their creation on, without a gap, are called never-used. "
        "`volsched get pvc -o wide` has it as a column.",
        examples="""**Examples**

`volsched audit data -n shop` is which claims may be deleted without a loss

`volsched audit data -o json`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:ClaimDataParameters",
        handler="volsched.questions.claims.data_state:claim_data",
        routes=(Route(path="/audit/data"),),
        access="audit/*",
        columns=("claim", "volume", "data", "why"),
        empty="there are no claims",
        turn="long",
    ),
    Question(
        name="audit retained",
        help="What rolled-back bindings have written and could not undo, why, and what to do about it.",
        text="Claims that were deleted since are left out. A deletion is only proposed, and only where the log "
        "proves that no pod with the claim ever had a node.",
        examples="""**Examples**

`volsched audit retained` lists claims that are bound though their pod was placed elsewhere, or nowhere

`volsched audit retained -o json` has the proposal for each of them
""",
        answer="page",
        parameters="volsched.questions.parameters:PageParameters",
        handler="volsched.questions.claims.handlers:retained",
        routes=(Route(path="/audit/retained"),),
        access="audit/*",
        columns=("claim", "volume", "pod", "since", "data", "reason", "proposal"),
        empty="nothing was retained",
        turn="long",
    ),
    Question(
        name="uses",
        help="Which pods use a claim or a volume, on which nodes, and whether any pod ever did.",
        text="That no pod ever did is said only of a claim that was observed from its creation on, without a gap.",
        examples="""**Examples**

`volsched uses pvc shop/data` is its pods, their nodes and its volume

`volsched uses pv disk-7 -o json`
""",
        answer="item",
        schema="Item",
        parameters="volsched.questions.parameters:ObjectParameters",
        handler="volsched.questions.claims.handlers:uses",
        routes=(Route(path="/audit/uses/{kind}/{name}", within="either"),),
        access="audit/*",
        turn="long",
    ),
)
