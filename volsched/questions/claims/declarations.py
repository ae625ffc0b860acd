"""What is half done of any scheduler's bindings, and who uses a claim."""

from volsched.questions.registry import Question, Route

_PARAMETERS = "volsched.questions.claims.parameters"

QUESTIONS = (
    Question(
        name="in-flight",
        help="Claims that are half bound, by whichever scheduler or controller, and since when.",
        text="Read off the objects: a volume kept for a claim, a node chosen for it, one side written only.",
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
        help="Volumes that were given on, or are offered again, with contents that nobody vouches for.",
        examples="""**Examples**

`volsched audit handovers --since 30d` is whose data somebody else may have found

`volsched audit handovers -o csv`
""",
        answer="page",
        parameters="volsched.questions.parameters:WindowParameters",
        handler="volsched.questions.claims.handovers:handovers",
        routes=(Route(path="/audit/handovers"),),
        access="audit/*",
        columns=("volume", "held", "until", "given", "at", "data"),
        empty="no volume was given on with unknown contents",
        turn="long",
    ),
    Question(
        name="audit data",
        help="Whether the volumes of claims were ever used: never-used, used or unknown, and why.",
        text="Never used is told only of claims that were watched from their creation on, without a gap. "
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
        help="What rolled-back bindings had written and could not take back, why, and what may be done about it.",
        text="A claim that is gone since is left out. A deletion is only proposed, and only where the log proves "
        "that no pod with the claim ever had a node.",
        examples="""**Examples**

`volsched audit retained` lists claims that are bound though their pod was placed elsewhere, or nowhere

`volsched audit retained -o json` has the proposal of every one
""",
        answer="page",
        parameters="volsched.questions.parameters:PageParameters",
        handler="volsched.questions.claims.retained_claims:retained",
        routes=(Route(path="/audit/retained"),),
        access="audit/*",
        columns=("claim", "volume", "pod", "since", "data", "reason", "proposal"),
        empty="nothing was retained",
        turn="long",
    ),
    Question(
        name="uses",
        help="Which pods use a claim or a volume, where, and whether anybody ever did.",
        text="That nobody ever did is told only where it was watched from its creation on, without a gap.",
        examples="""**Examples**

`volsched uses pvc shop/data` is its pods, their nodes and its volume

`volsched uses pv disk-7 -o json`
""",
        answer="item",
        schema="Item",
        parameters="volsched.questions.parameters:ObjectParameters",
        handler="volsched.questions.claims.uses:uses",
        routes=(Route(path="/audit/uses/{kind}/{name}", within="either"),),
        access="audit/*",
        turn="long",
    ),
)
