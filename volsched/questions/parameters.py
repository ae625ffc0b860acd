"""Parameters of questions: pydantic models whose fields say how the command line and the API spell them.

A field is annotated with a `Spelling`; its type, default, bounds and description are pydantic's. What several
questions share (a page, a part of the history, an object) is a base class here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.log.events.streams import Named, kind_called

PAGE = 50
MOST = 1_000
"""Items of one page."""
LONGEST_NAME = 253
MOST_MANIFESTS = 5_000
MOST_NAMES = 1_000
"""In one request over HTTP."""
PLAIN_TEXT = r"^[^\x00-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True)
class Spelling:
    place: Literal["path", "query", "body"] = "query"
    """Where the API takes it."""
    flags: tuple[str, ...] = ()
    """Of the option; without any it is an argument."""
    metavar: str | None = None
    query: str = ""
    """As the API calls it, where not as the field is called."""
    optional: bool = False
    """An argument that may be left out, though the question needs it: others say the same."""
    typed: bool = True
    """The command line has it too."""
    choices: tuple[str, ...] = ()
    """What it can be, where its type does not say so."""
    files: bool = False
    """The command line takes the names of files, and the command reads them."""


def argument(metavar: str, *, optional: bool = False) -> Spelling:
    return Spelling("path", metavar=metavar, optional=optional)


def option(*flags: str, metavar: str | None = None, query: str = "", choices: tuple[str, ...] = ()) -> Spelling:
    return Spelling("query", flags, metavar, query, choices=choices)


def served() -> Spelling:
    """Of the API and the library alone."""
    return Spelling(typed=False)


class Parameters(BaseModel):
    # Built when it is first used: a command asks one question, and loads the models of several.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @property
    def noun(self) -> str:
        """Of the streams of the object that is asked about; empty where it is none."""
        return ""

    @property
    def subject(self) -> str:
        """The object that is asked about, for people."""
        return ""

    @classmethod
    def spellings(cls) -> dict[str, tuple[FieldInfo, Spelling]]:
        """Field → what pydantic knows of it, and how it is spelled; arguments first."""
        found = {name: (it, _spelling(it)) for name, it in cls.model_fields.items()}
        return dict(sorted(found.items(), key=lambda it: bool(it[1][1].flags)))

    @classmethod
    def query_names(cls, only: tuple[str, ...] | None = None) -> dict[str, str]:
        """Field → as the API calls it in the query; `only` these, where a route does not take all."""
        return {
            name: it.query or name
            for name, (_, it) in cls.spellings().items()
            if it.place == "query" and (only is None or name in only)
        }


class Body(BaseModel):
    """What is sent to a route; it gives parameters, and is made of them."""

    model_config = ConfigDict(extra="forbid", strict=True)
    takes: ClassVar[frozenset[str]]
    """The parameters that it can hold."""

    def words(self) -> dict[str, Any]:
        """The parameters that it gives."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def of(cls, parameters: Parameters) -> dict[str, Any]:
        """As it is sent."""
        return parameters.model_dump(include=set(cls.takes), exclude_none=True)


class PageParameters(Parameters):
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST, description="Items of a page, at most.")] = PAGE
    after: Annotated[
        str | None,
        option("--after", metavar="TOKEN", query="continue"),
        Field(description="The next page: what the one before has told."),
    ] = None

    @property
    def rest(self) -> dict[str, Any]:
        """Which page, as the reads of the log take it."""
        return {"after": self.after, "limit": self.limit}


SINCE = "From then on: 2h (ago), yesterday 14:00, 2025-11-16T22:00:00Z, or 1234."
UNTIL = "Until then; a time as for --since, or a position."
Since = Annotated[str | None, option("--since", metavar="TIME"), Field(description=SINCE)]
Until = Annotated[str | None, option("--until", metavar="TIME"), Field(description=UNTIL)]
AsOf = Annotated[
    str | None,
    option("--as-of", metavar="TIME", query="asOf"),
    Field(description="As it was then: 2h (ago), yesterday 14:00, 2025-11-16T22:00:00Z, or a position."),
]
OlderThan = Annotated[
    str,
    option("--older-than", metavar="D", query="olderThan"),
    Field(description="Leave out what is more recent, as 90s, 12h or 7d."),
]


class WindowParameters(PageParameters):
    """A part of the history, a page at a time."""

    since: Since = None
    until: Until = None
    as_of: Annotated[
        str | None,
        option("--as-of", metavar="TIME", query="asOf"),
        Field(description="As it was known then; the same as --until."),
    ] = None


class ObjectParameters(Parameters):
    """An object by kind and name, or a binding or an attempt by its id."""

    kind: Annotated[str, argument("KIND"), Field(description="Any name of its kind.")]
    name: Annotated[str, argument("NAME", optional=True), Field(description="Its name; the ID of a binding.")]
    namespace: Annotated[
        str | None,
        Spelling("path", ("--namespace", "-n"), "NS"),
        Field(description="Namespace; 'default' without it."),
    ] = None

    @property
    def named(self) -> Named:
        """UnknownKindError where nothing is called that."""
        return kind_called(self.kind)

    @property
    def noun(self) -> str:
        return self.named.noun

    @property
    def key(self) -> str:
        named = self.named
        within = named.is_object and named.namespaced
        return f"{self.namespace or DEFAULT_NAMESPACE}/{self.name}" if within else self.name

    @property
    def subject(self) -> str:
        return f"{self.named.singular} {self.key}"


class PodParameters(Parameters):
    name: Annotated[str, argument("POD"), Field(description="The pod, as NAME or NAMESPACE/NAME.")]
    namespace: Annotated[
        str | None,
        Spelling("path", ("--namespace", "-n"), "NS"),
        Field(description="Namespace; 'default' without it."),
    ] = None
    bare_name: ClassVar[bool] = False
    """A name without a namespace may be of something else than a pod."""

    @property
    def key(self) -> str:
        return f"{self.namespace or DEFAULT_NAMESPACE}/{self.name}"

    @property
    def subject(self) -> str:
        return f"pod {self.key}"


class VolumeParameters(Parameters):
    name: Annotated[str, argument("PV"), Field(description="The PersistentVolume.")]


class NodeParameters(Parameters):
    name: Annotated[str, argument("NODE"), Field(description="The node.")]


def _spelling(info: FieldInfo) -> Spelling:
    return next(it for it in info.metadata if isinstance(it, Spelling))
