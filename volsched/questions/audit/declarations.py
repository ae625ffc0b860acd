"""The declarations of the audit questions, about the history."""

from volsched.questions.registry import Question, Route

BINDINGS = ("plannedAt", "binding", "pod", "node", "state", "seconds", "legs", "reason")
_PARAMETERS = "volsched.questions.audit.parameters"
_HANDLERS = "volsched.questions.audit.handlers"
WINDOW = "volsched.questions.parameters:WindowParameters"
ACCESS = "audit/*"

QUESTIONS = (
    Question(
        name="audit volume",
        help="What a volume was bound to at a moment, since when, and who bound it.",
        examples="""**Examples**

`volsched audit volume disk-7` is what it is bound to now

`volsched audit volume disk-7 --at 2025-11-16T22:00:00Z` is what it was bound to then; `--at 2h` is two hours ago
""",
        answer="item",
        schema="Item",
        parameters=f"{_PARAMETERS}:VolumeAt",
        handler=f"{_HANDLERS}:volume",
        routes=(Route(path="/audit/volume/{name}"),),
        access=ACCESS,
    ),
    Question(
        name="audit claims-of",
        help="Every claim that a volume ever served, and whether the volume was clean or dirty afterwards.",
        examples="""**Examples**

`volsched audit claims-of disk-7` is every claim that ever had it, and whether it was clean afterwards

`volsched audit claims-of disk-7 --since 7d -o csv`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:VolumeWindow",
        handler=f"{_HANDLERS}:claims_of",
        of_events=True,
        routes=(Route(path="/audit/claims-of/{name}"),),
        access=ACCESS,
        columns=("claim", "from", "by", "binding", "until", "endedBy", "data", "reason"),
        empty="{name} was never given to a claim",
    ),
    Question(
        name="audit who",
        help="Who changed an object, with which command, and for what reason.",
        examples="""**Examples**

`volsched audit who pv disk-7` is every change of a volume, with actor, command and reason

`volsched audit who pvc/data-0 -n shop --since 2d -o csv`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:ObjectWindow",
        handler=f"{_HANDLERS}:who",
        of_events=True,
        routes=(Route(path="/audit/who/{kind}/{name}", within="either"),),
        access=ACCESS,
        columns=("position", "at", "who", "command", "what", "reason", "actor"),
        empty="{subject} was not changed in that time",
    ),
    Question(
        name="audit attempts",
        help="Every attempt to schedule a pod, the latest first; `why` shows more of each.",
        examples="""**Examples**

`volsched audit attempts shop/db-0` is every attempt to place the pod, with its outcome

`volsched audit attempts db-0 -n shop --since 1h -o json`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:PodWindow",
        handler="volsched.questions.audit.attempt_handlers:attempts_of",
        routes=(Route(path="/audit/attempts/{name}", within="namespace"),),
        access=ACCESS,
        columns=("attempt", "lastAt", "count", "outcome", "node", "message"),
        empty="there was no attempt for {subject} in that time",
    ),
    Question(
        name="audit why",
        help="Why this node and not another, or why none: what was stored of an attempt, or of a pod's last one.",
        examples="""**Examples**

`volsched audit why shop/db-0` is what was decided about the pod last, claim by claim, and what failed after

`volsched audit why shop/db-0 --as-of 2025-11-16T22:00:00Z` is what was decided about it up to then

`volsched audit why 402688c93939` is why its node was chosen, with the scores, or why none was

`volsched audit why 402688c93939 --node node-7` is also why another node was not
""",
        answer="item",
        schema="Item",
        parameters=f"{_PARAMETERS}:Why",
        handler="volsched.questions.audit.attempt_handlers:why",
        routes=(
            Route(
                path="/audit/why/{name}",
                help="Why an attempt chose this node and not another.",
                query=("node",),
            ),
            Route(
                path="/audit/why/{name}",
                within="namespace",
                help="Why a pod's last attempt chose this node or none; what failed afterwards.",
            ),
        ),
        access=ACCESS,
    ),
    Question(
        name="audit cause",
        help="The causes and consequences of an event, as a tree; or everything that was done for one binding.",
        examples="""**Examples**

`volsched audit cause 1234` is what caused the event at a position, and all that followed from it

`volsched audit cause --binding 5f3a09c1d2e4 -o json` is everything that was done for a binding
""",
        answer="page",
        parameters=f"{_PARAMETERS}:Cause",
        handler=f"{_HANDLERS}:cause",
        routes=(
            Route(
                path="/audit/cause/{name}",
                names={"name": "position"},
                help="The causes and consequences of the event at a position.",
            ),
            Route(
                path="/audit/cause-of-binding/{name}",
                names={"name": "binding"},
                help="Everything that was done for one binding, as a tree.",
            ),
        ),
        access=ACCESS,
        columns=("position", "at", "tree", "actor", "reason"),
    ),
    Question(
        name="audit node",
        help="All decisions for a node: which pods were planned to run there, and the outcome.",
        examples="""**Examples**

`volsched audit node node-7 --since 2025-11-16T22:00:00Z --until 2025-11-17T06:00:00Z` is the decisions of a night

`volsched audit node node-7 --limit 10 -o csv`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:NodeWindow",
        handler=f"{_HANDLERS}:on_node",
        routes=(Route(path="/audit/node/{name}"),),
        access=ACCESS,
        columns=BINDINGS,
        empty="nothing was planned for node {name} in that time",
    ),
    Question(
        name="audit rollbacks",
        help="Transactions that were rolled back, the latest first, each with the first step that failed.",
        examples="""**Examples**

`volsched audit rollbacks --since 1d` is what was undone, which step failed first, and who caused that

`volsched audit rollbacks --since 7d -o csv`
""",
        answer="page",
        parameters=WINDOW,
        handler=f"{_HANDLERS}:rollbacks",
        routes=(Route(path="/audit/rollbacks"),),
        access=ACCESS,
        columns=("plannedAt", "binding", "pod", "node", "failedStep", "failedWhy", "causedBy", "failedPosition"),
        empty="nothing was rolled back",
    ),
    Question(
        name="audit in-flight",
        help="Bindings that are under way, the oldest first.",
        examples="""**Examples**

`volsched audit in-flight --older-than 10m` is what takes too long

`volsched audit in-flight --as-of 2025-11-16T22:00:00Z` is what was under way then
""",
        answer="page",
        parameters=f"{_PARAMETERS}:InFlightParameters",
        handler=f"{_HANDLERS}:in_flight",
        routes=(Route(path="/audit/in-flight"),),
        access=ACCESS,
        columns=("plannedAt", "ageSeconds", "binding", "pod", "node", "state", "legs", "reason"),
        empty="nothing is in flight",
    ),
    Question(
        name="audit latency",
        help="Seconds from the plan until the pod had its node, as percentiles per class and zone.",
        examples="""**Examples**

`volsched audit latency` is how long pods wait for their volumes, per class and zone

`volsched audit latency --since 1d --bindings 10000 -o json`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:Latency",
        handler=f"{_HANDLERS}:latencies",
        routes=(Route(path="/audit/latency"),),
        access=ACCESS,
        columns=("class", "zone", "count", "p50", "p90", "p99", "max"),
        empty="nothing was bound in that time",
    ),
    Question(
        name="audit interventions",
        help="What people did by hand, the latest first: apply, delete, release, effects retry, cancel, recover.",
        examples="""**Examples**

`volsched audit interventions --since 1d` is what people did since yesterday, and why

`volsched audit interventions --since 7d --limit 1000 -o csv`
""",
        answer="page",
        parameters=WINDOW,
        handler=f"{_HANDLERS}:interventions",
        of_events=True,
        routes=(Route(path="/audit/interventions"),),
        access=ACCESS,
        columns=("position", "at", "who", "command", "object", "what", "reason"),
        empty="there were no changes by hand",
    ),
    Question(
        name="audit events",
        help="Search the log: by a word, an actor, a kind of object or a type of event; the latest first.",
        text="A page examines ten thousand events at most: it may be short, although more follow.",
        examples="""**Examples**

`volsched audit events --text disk-7` is every event that names it

`volsched audit events --type BindingMoved --actor scheduler --since 2h -o csv`
""",
        answer="page",
        parameters="volsched.questions.history.parameters:EventSearch",
        handler=f"{_HANDLERS}:events",
        of_events=True,
        routes=(Route(path="/audit/events"),),
        access=ACCESS,
        columns=("position", "at", "object", "type", "actor", "what", "reason"),
        empty="no event matches",
        turn="long",
    ),
    Question(
        name="audit reads",
        help="Who has read the history over HTTP and what they asked, the latest first.",
        examples="""**Examples**

`volsched audit reads --since 7d` is who looked into the history this week, from where, and what they asked

`volsched audit reads --limit 1000 -o csv`
""",
        answer="page",
        parameters=WINDOW,
        handler=f"{_HANDLERS}:history_reads",
        of_events=True,
        routes=(Route(path="/audit/reads"),),
        access=ACCESS,
        columns=("position", "at", "actor", "question", "client"),
        empty="there were no reads of the history over HTTP",
    ),
    Question(
        name="audit drift",
        help="Where the record of an observed cluster may be wrong: silence, gaps, drift.",
        text="A gap says since when a kind was not observed. Drift is what the hourly comparison found different; "
        "a restoration is a cluster that was restored from a backup.",
        examples="""**Examples**

`volsched audit drift` is which kinds are silent now, and since when; then every gap, the latest first

`volsched audit drift --since 7d -o csv`
""",
        answer="page",
        parameters=WINDOW,
        handler="volsched.questions.audit.drift:drift",
        of_events=True,
        routes=(Route(path="/audit/drift"),),
        access=ACCESS,
        columns=("position", "at", "what", "kind", "detail", "reason"),
        empty="no kind is silent, and no gap, drift or restoration is recorded",
    ),
    Question(
        name="audit orphans",
        help="What was left behind: released volumes, lost claims, claims that wait for nodes that are gone.",
        examples="""**Examples**

`volsched audit orphans --older-than 7d` is what was left behind for a week, with the remedy for each

`volsched audit orphans -o csv`
""",
        answer="page",
        parameters=f"{_PARAMETERS}:Orphans",
        handler="volsched.questions.audit.orphans:orphans",
        routes=(Route(path="/audit/orphans"),),
        access=ACCESS,
        columns=("kind", "object", "since", "detail", "remedy"),
        empty="nothing was left behind",
        turn="long",
    ),
    Question(
        name="verify",
        help="Prove that the log is complete and unchanged, and that the views match it.",
        text="""Tokens, leases and results are compared with it too. Nothing is repaired; writers may continue. A
log that was cut or rewritten together with its head row is only detected with an older anchor; the
answer says up to which position an anchor proves it. Where events were archived, the proof begins
after them, or with the first event ever if the archives are given. --write-anchor signs with
VOLSCHED_ANCHOR_KEY_FILE where that is set. Exit 5 with the position, or table, key and column, of
what is wrong, and where an anchor is not signed with --public-key.""",
        examples="""**Examples**

`volsched verify`

`volsched verify --write-anchor /mnt/elsewhere/anchor.json`

`volsched verify --anchor /mnt/elsewhere/anchor.json -o json`

`volsched verify --anchor /mnt/anchors --public-key anchor.pub`

`volsched verify --archive 2024.jsonl.gz --archive 2025.jsonl.gz`
""",
        answer="document",
        schema="Verification",
        parameters=f"{_PARAMETERS}:VerifyParameters",
        handler="volsched.questions.audit.handlers:verify_store",
        routes=(
            Route(path="/verify"),
            Route(
                path="/verify",
                method="POST",
                help="The same, and that the log still contains an anchor.",
                body=f"{_PARAMETERS}:Verify",
            ),
        ),
        access="verify/*",
        turn="long",
    ),
    Question(
        name="export",
        help="A part of the log that can be verified anywhere.",
        examples="",
        answer="document",
        schema="Export",
        parameters=f"{_PARAMETERS}:ExportParameters",
        handler="volsched.questions.audit.export:export_range",
        routes=(Route(path="/export"),),
        access="export/*",
        turn="long",
        verb=False,
    ),
    Question(
        name="leases list",
        help="Leases: who holds each, or held it last.",
        examples="",
        answer="page",
        handler=f"{_HANDLERS}:leases",
        routes=(Route(path="/leases", help="Which processes hold the leases."),),
        access="leases/*",
        empty="no lease is held",
    ),
)
