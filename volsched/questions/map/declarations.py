"""The declarations of the map of a store's volumes and of the log's timeline."""

from volsched.questions.registry import Question, Route

_PARAMETERS = "volsched.questions.map.parameters"

QUESTIONS = (
    Question(
        name="map",
        help="Volumes by the place of their nodes: counted in groups, and one by one where there are few.",
        examples="",
        answer="document",
        schema="VolumeMap",
        parameters=f"{_PARAMETERS}:MapParameters",
        handler="volsched.questions.map.volume_map:volume_map",
        routes=(Route(path="/map", within="either"),),
        access="map/*",
        turn="long",
        verb=False,
    ),
    Question(
        name="timeline",
        help="How the log grew over time, and which bindings were undone.",
        examples="",
        answer="document",
        schema="LogTimeline",
        parameters=f"{_PARAMETERS}:TimelineParameters",
        handler="volsched.questions.map.timeline:timeline",
        routes=(Route(path="/timeline", within="either"),),
        access="timeline/*",
        verb=False,
    ),
)
