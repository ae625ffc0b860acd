"""The configuration of a scheduler: custom profiles with their plugins, weights and scoring, and time-outs.

A document is validated as a whole, and every mistake is reported with its field and what to write instead.
External plugins are passed by name; they are not discovered here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from volsched.kube.problems import ConfigurationError as ConfigurationError
from volsched.scheduling.plugins.plugin import Plugin
from volsched.scheduling.plugins.registry import AFTER_VOLUMES, BEFORE_VOLUMES, Enabled
from volsched.scheduling.queue.entry import SECOND, USUAL, QueueWaits
from volsched.scheduling.rules.cycle import NODE_VOLUME_LIMITS, VOLUME_BINDING, VOLUME_RESTRICTIONS, VOLUME_ZONE
from volsched.scheduling.rules.profile import PROFILES, VOLSCHED, Profile, ScoringPolicy, ShapePoint, shape_problem

BIND_TIMEOUT_SECONDS = 600
CAPACITY_HOLD_SECONDS = 120
GONE_NODE_SECONDS = 900
"""Provisioners have no common time-out; most give up after fifteen retries, within this time."""
MOST_WEIGHT = 1000
MOST_SECONDS = 7 * 24 * 3600
_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=to_camel)
_BUILT_IN = {enabled.plugin.name: enabled for enabled in (*BEFORE_VOLUMES, *AFTER_VOLUMES)}
_ALWAYS_ON = (VOLUME_RESTRICTIONS, NODE_VOLUME_LIMITS, VOLUME_ZONE)

Weight = Annotated[int, Field(ge=0, le=MOST_WEIGHT)]
Seconds = Annotated[int, Field(ge=1, le=MOST_SECONDS)]
Place = Literal["before-volumes", "after-volumes"]


class PluginSettings(BaseModel):
    model_config = _STRICT
    enabled: bool = True
    weight: Weight | None = None
    place: Place | None = None


class PointSettings(BaseModel):
    model_config = _STRICT
    utilization: int
    score: int


class ScoringSettings(BaseModel):
    model_config = _STRICT
    policy: Literal["closest-fit", "upstream", "seed"]
    """`seed` is the former name of `closest-fit`, and still accepted."""
    shape: list[PointSettings] | None = None


class ProfileSettings(BaseModel):
    model_config = _STRICT
    name: Annotated[str, Field(min_length=1)]
    base: Literal["volsched", "parity"] = "volsched"
    claim_order: Literal["smallest-first", "largest-first"] | None = None
    pv_match_fields: Literal["ignore", "enforce"] | None = None
    alpha_annotations: Literal["ignore", "read", "write"] | None = None
    release_foreign_volumes: bool | None = None
    scoring: ScoringSettings | None = None
    plugins: dict[str, PluginSettings] = Field(default_factory=dict)


class TimeoutSettings(BaseModel):
    model_config = _STRICT
    bind_seconds: Seconds = BIND_TIMEOUT_SECONDS
    backoff_initial_seconds: Seconds = 1
    backoff_max_seconds: Seconds = 10
    unschedulable_seconds: Seconds = 300
    capacity_hold_seconds: Seconds = CAPACITY_HOLD_SECONDS
    gone_node_seconds: Seconds = GONE_NODE_SECONDS


class SchedulerSettings(BaseModel):
    """The document as written."""

    model_config = _STRICT
    profile: str = VOLSCHED.name
    profiles: list[ProfileSettings] = Field(default_factory=list)
    timeouts: TimeoutSettings = TimeoutSettings()


@dataclass(frozen=True, slots=True)
class Configuration:
    profile: Profile = VOLSCHED
    """The profile to schedule with."""
    bind_timeout_seconds: int = BIND_TIMEOUT_SECONDS
    waits: QueueWaits = USUAL
    """The waiting times of pods in the queue."""
    capacity_hold_seconds: int = CAPACITY_HOLD_SECONDS
    """How long room stays reserved that a driver should have published as used."""
    gone_node_seconds: int = GONE_NODE_SECONDS
    """On a foreign cluster: how long a provisioner may work for a deleted node."""


DEFAULT = Configuration()


def configure(document: Any, *, find: Callable[[str], Plugin | None]) -> Configuration:
    """Validate a document. `find` returns the plugin that is installed under a name, or None."""
    settings = _read(document)
    problems: list[str] = []
    profiles = dict(PROFILES)
    for place, named in enumerate(settings.profiles):
        where = f"profiles[{place}]"
        if named.name in profiles:
            problems.append(f'{where}.name: there is a profile "{named.name}" already; give it another name')
        profiles[named.name] = _profile(named, where, problems, find)
    if settings.profile not in profiles:
        known = ", ".join(sorted(profiles))
        problems.append(f'profile: there is no profile "{settings.profile}"; name one of: {known}')
    given = settings.timeouts
    if given.backoff_initial_seconds > given.backoff_max_seconds:
        problems.append(
            f"timeouts.backoffInitialSeconds: {given.backoff_initial_seconds} is more than backoffMaxSeconds, "
            f"{given.backoff_max_seconds}; lower it, or raise backoffMaxSeconds"
        )
    if problems:
        raise ConfigurationError(problems)
    return Configuration(
        profiles[settings.profile],
        given.bind_seconds,
        QueueWaits(
            first_backoff=given.backoff_initial_seconds * SECOND,
            longest_backoff=given.backoff_max_seconds * SECOND,
            unschedulable=given.unschedulable_seconds * SECOND,
        ),
        given.capacity_hold_seconds,
        given.gone_node_seconds,
    )


def _profile(
    given: ProfileSettings, where: str, problems: list[str], find: Callable[[str], Plugin | None]
) -> Profile:
    base = PROFILES[given.base]
    scored = _scored(base, given.scoring, f"{where}.scoring", problems)
    chosen = {it.plugin.name: it for it in (*base.before_volumes, *base.after_volumes)}
    places: dict[str, Place] = {}
    volume_weight = base.volume_weight
    for name, wanted in given.plugins.items():
        field = f"{where}.plugins.{name}"
        problem = _plugin_problem(name, wanted)
        if problem is not None:
            problems.append(f"{field}.{problem}")
        elif name == VOLUME_BINDING:
            volume_weight = base.volume_weight if wanted.weight is None else wanted.weight
        elif not wanted.enabled and (name in _BUILT_IN or _is_installed(name, find)):
            chosen.pop(name, None)
        else:
            known = chosen.get(name) or _BUILT_IN.get(name) or _enabled_plugin(name, find)
            if known is None:
                problems.append(f"{field}: {_unknown(name)}")
            else:
                chosen[name] = known if wanted.weight is None else Enabled(known.plugin, wanted.weight)
                places[name] = wanted.place or "after-volumes"
    return replace(
        _with_volume_rules(scored, given),
        name=given.name,
        before_volumes=tuple(_placed(chosen, places, BEFORE_VOLUMES, "before-volumes")),
        after_volumes=tuple(_placed(chosen, places, AFTER_VOLUMES, "after-volumes")),
        volume_weight=volume_weight,
    )


def _with_volume_rules(base: Profile, given: ProfileSettings) -> Profile:
    """Unspecified fields are as in the base."""
    order, fields, foreign = given.claim_order, given.pv_match_fields, given.release_foreign_volumes
    alpha = given.alpha_annotations
    return replace(
        base,
        largest_claim_first=base.largest_claim_first if order is None else order == "largest-first",
        enforce_match_fields=base.enforce_match_fields if fields is None else fields == "enforce",
        reads_alpha_annotations=base.reads_alpha_annotations if alpha is None else alpha != "ignore",
        writes_alpha_annotations=base.writes_alpha_annotations if alpha is None else alpha == "write",
        releases_foreign_volumes=base.releases_foreign_volumes if foreign is None else foreign,
    )


def _placed(
    chosen: Mapping[str, Enabled], places: Mapping[str, Place], built_in: tuple[Enabled, ...], place: Place
) -> Iterator[Enabled]:
    """The plugins of one place: ours in the reference's order, then external ones in the document's order."""
    yield from (chosen[it.plugin.name] for it in built_in if it.plugin.name in chosen)
    yield from (it for name, it in chosen.items() if name not in _BUILT_IN and places[name] == place)


def _enabled_plugin(name: str, find: Callable[[str], Plugin | None]) -> Enabled | None:
    plugin = find(name)
    return None if plugin is None else Enabled(plugin)


def _is_installed(name: str, find: Callable[[str], Plugin | None]) -> bool:
    """Whether a plugin is installed; one that cannot be loaded counts, so that it can be disabled."""
    try:
        return find(name) is not None
    except ConfigurationError:
        return True


def _plugin_problem(name: str, wanted: PluginSettings) -> str | None:
    """The problem of a plugin's entry by itself, or None; begins with the field."""
    if wanted.place is not None and name in (*_BUILT_IN, VOLUME_BINDING):
        return "place: its place is fixed; leave place out"
    if name == VOLUME_BINDING and not wanted.enabled:
        return "enabled: volumes are what this scheduler is about; leave enabled out, or set weight: 0"
    if name in _BUILT_IN and wanted.weight and not _BUILT_IN[name].weight:
        return "weight: it only refuses nodes and gives no score; leave weight out"
    return None


def _unknown(name: str) -> str:
    if name in _ALWAYS_ON:
        return f"it is part of {VOLUME_BINDING} and always on; remove the entry"
    known = ", ".join([*_BUILT_IN, VOLUME_BINDING])
    return f"there is no such plugin; known are {known}, and installed ones of the group volsched.plugins"


def _scored(base: Profile, given: ScoringSettings | None, where: str, problems: list[str]) -> Profile:
    if given is None:
        return base
    policy = ScoringPolicy.CLOSEST_FIT if given.policy == "seed" else ScoringPolicy(given.policy)
    if given.shape is None:
        return replace(base, scoring=policy)
    if policy is not ScoringPolicy.UPSTREAM:
        problems.append(f"{where}.shape: only policy upstream has a shape; set policy: upstream or leave it out")
        return base
    shape = tuple(ShapePoint(point.utilization, point.score) for point in given.shape)
    problem = shape_problem(shape)
    if problem is not None:
        problems.append(f"{where}.shape: {problem}; write points of rising utilization 0..100 with scores 0..10")
        return base
    return replace(base, scoring=policy, shape=shape)


# --- reading --------------------------------------------------------------------------------------------


def _read(document: Any) -> SchedulerSettings:
    if document is None:
        return SchedulerSettings()
    try:
        return SchedulerSettings.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError([_problem_text(it) for it in error.errors(include_url=False)]) from None


_REMEDIES: Mapping[str, str] = {
    "missing": "is required; add it",
    "int_type": "must be a whole number, such as 2",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
}


def _problem_text(error: Any) -> str:
    field, kind, context = _field(error["loc"]), error["type"], error.get("ctx", {})
    match kind:
        case "extra_forbidden":
            remedy = f"there is no such field; known here are {', '.join(_known_fields(error['loc']))}"
        case "literal_error":
            remedy = f"must be {context['expected']}, not {error['input']!r}"
        case "greater_than_equal":
            remedy = f"must be at least {context['ge']}, not {error['input']}"
        case "less_than_equal":
            remedy = f"must be at most {context['le']}, not {error['input']}"
        case _:
            remedy = _REMEDIES.get(kind, error["msg"])
    return f"{field}: {remedy}" if field else f"the document {remedy}"


def _field(location: tuple[str | int, ...]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _known_fields(location: tuple[str | int, ...]) -> list[str]:
    """The fields of the mapping that contains an unknown one."""
    holders: Mapping[tuple[str, ...], type[BaseModel]] = {
        (): SchedulerSettings,
        ("timeouts",): TimeoutSettings,
        ("profiles",): ProfileSettings,
        ("profiles", "scoring"): ScoringSettings,
        ("profiles", "scoring", "shape"): PointSettings,
        ("profiles", "plugins"): PluginSettings,
    }
    path = tuple(step for step in location[:-1] if isinstance(step, str))
    model = holders[path if path in holders else path[:2]]
    return [info.alias or name for name, info in model.model_fields.items()]
