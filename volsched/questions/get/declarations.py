"""The declarations of questions for present and past objects, bindings, attempts, effects and reservations."""

from volsched.questions.registry import Question, Route

_PARAMETERS = "volsched.questions.get.parameters"
_LISTS = "volsched.questions.get.list_parameters"
_OBJECTS = "volsched.questions.get.handlers"
_DECISIONS = "volsched.questions.get.decision_handlers"
_EFFECTS = "volsched.questions.get.effects"
_RESERVATIONS = "volsched.questions.get.reservations"

QUESTIONS = (
    Question(
        name="get",
        help="List objects, or show those that are named.",
        text="Ages are counted to the time that is asked about. Exit 3, with similar names, if there is no such "
        "kind or name.",
        examples="""**Examples**

`volsched get pv -o wide` shows volumes, and which open binding holds them for which node

`volsched get pods -A` and `volsched get pvc -n shop -l tier=db`

`volsched get pv disk-7 -o yaml --as-of 2025-11-16T22:00:00Z` is what it was then

`volsched get bindings,attempts -A` shows what was decided, and why pods wait

`volsched get pvc -w` shows every further change until Ctrl-C
""",
        answer="objects",
        parameters=f"{_PARAMETERS}:KindParameters",
        handler=f"{_OBJECTS}:objects_of_kind",
        of_views=True,
        routes=(Route(path="/history/{kind}", within="either", help="All objects of a kind, as they were."),),
        access="history/*",
        turn="long",
    ),
    Question(
        name="get object",
        help="An object as it was.",
        examples="",
        answer="object",
        schema="Object",
        parameters=f"{_PARAMETERS}:OneParameters",
        handler=f"{_OBJECTS}:single_object",
        of_views=True,
        routes=(Route(path="/history/{kind}/{name}/object", within="either"),),
        access="history/*",
        verb=False,
    ),
    Question(
        name="describe",
        help="Show an object, its bindings with their legs, the attempts to place it, and its Kubernetes events.",
        text='For a pod, the line "Scheduled" comes from its binding once the event has expired.',
        examples="""**Examples**

`volsched describe pod db-0 -n shop` says why it waits, or how it got its node

`volsched describe pv disk-7` shows its binding with every leg, and its events

`volsched describe pvc shop/data-0 --as-of 2025-11-16T22:00:00Z`

`volsched describe binding 5f3a09c1d2e4 -o json`
""",
        answer="document",
        schema="Description",
        parameters=f"{_PARAMETERS}:OneParameters",
        handler="volsched.questions.get.describe:describe",
        of_views=True,
        routes=(
            Route(
                path="/describe/{kind}/{name}",
                within="either",
                help="An object with its bindings, attempts and events.",
            ),
        ),
        access="describe/*",
    ),
    Question(
        name="bindings",
        help="Bindings in the order in which they were planned.",
        examples="",
        answer="objects",
        schema="BindingList",
        parameters=f"{_LISTS}:BindingList",
        handler=f"{_DECISIONS}:bindings",
        routes=(Route(path="/bindings", within="either", action="list"),),
        access="bindings/*",
        verb=False,
    ),
    Question(
        name="binding",
        help="A binding with its legs.",
        examples="",
        answer="object",
        schema="Binding",
        parameters=f"{_LISTS}:NamedParameters",
        handler=f"{_DECISIONS}:binding",
        routes=(Route(path="/bindings/{name}", within="namespace", action="get"),),
        access="bindings/*",
        verb=False,
    ),
    Question(
        name="binding steps",
        help="All that was done for a binding.",
        examples="",
        answer="page",
        parameters=f"{_LISTS}:NamedParameters",
        handler=f"{_DECISIONS}:steps",
        routes=(Route(path="/bindings/{name}/steps", within="namespace"),),
        access="bindings/steps",
        verb=False,
    ),
    Question(
        name="attempts",
        help="Attempts to schedule pods.",
        examples="",
        answer="objects",
        schema="AttemptList",
        parameters=f"{_LISTS}:AttemptList",
        handler=f"{_DECISIONS}:attempts",
        routes=(Route(path="/attempts", within="either", action="list"),),
        access="attempts/*",
        verb=False,
    ),
    Question(
        name="attempt",
        help="An attempt with its reasons.",
        examples="",
        answer="object",
        schema="Attempt",
        parameters=f"{_LISTS}:NamedParameters",
        handler=f"{_DECISIONS}:attempt",
        routes=(Route(path="/attempts/{name}", within="namespace", action="get"),),
        access="attempts/*",
        verb=False,
    ),
    Question(
        name="effects list",
        help="Effects that are queued, leased or parked.",
        examples="""**Examples**

`volsched effects list --state parked` shows the work that was given up, and why

`volsched effects retry KEY` retries it; `volsched effects cancel KEY` lets its binding end without it
""",
        answer="objects",
        schema="EffectList",
        parameters=f"{_LISTS}:EffectList",
        handler=f"{_EFFECTS}:effects",
        routes=(Route(path="/effects", help="Work that is queued, leased or parked.", action="list"),),
        access="effects/*",
        empty="no such effects",
    ),
    Question(
        name="effect",
        help="An effect; its name is its key, with dots instead of slashes.",
        examples="",
        answer="object",
        schema="Effect",
        parameters=f"{_LISTS}:EffectName",
        handler=f"{_EFFECTS}:effect",
        routes=(Route(path="/effects/{name}", action="get"),),
        access="effects/*",
        verb=False,
    ),
    Question(
        name="reservations list",
        help="Reservations that are held now, the oldest first.",
        examples="""**Examples**

`volsched reservations create shop/db-0 --for 300` reserves what the pod needs for five minutes, and says where

`volsched reservations confirm ID` binds the pod; `renew ID` extends the reservation; `cancel ID` releases it
""",
        answer="objects",
        schema="ReservationList",
        parameters=f"{_LISTS}:ReservationList",
        handler=f"{_RESERVATIONS}:reservations",
        routes=(Route(path="/reservations", within="either", help="Reservations that are held.", action="list"),),
        access="reservations/*",
        columns=("reservation", "pod", "node", "state", "expiresAt", "legs"),
        empty="nothing is reserved",
    ),
    Question(
        name="reservation",
        help="A reservation, while it is held or has become a binding.",
        examples="",
        answer="object",
        schema="Reservation",
        parameters=f"{_LISTS}:NamedParameters",
        handler=f"{_RESERVATIONS}:single_reservation",
        routes=(Route(path="/reservations/{name}", within="namespace", action="get"),),
        access="reservations/*",
        verb=False,
    ),
)
