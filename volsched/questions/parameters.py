"""Parameters of questions: pydantic models whose fields declare their spelling on the command line and in the API.

A field is annotated with a `Spelling`; its type, default, bounds and description are pydantic's. Parameters that
several questions share (a page, a part of the history, an object) are base classes here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.log.events.streams import Named, kind_called

PAGE = 50
MOST = 1_000
"""Maximum number of items of one page."""
LONGEST_NAME = 253
MOST_MANIFESTS = 5_000
MOST_NAMES = 1_000
"""Maximum number of names in one request over HTTP."""
PLAIN_TEXT = r"^[^\x00-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True)
class Spelling:
    place: Literal["path", "query", "body"] = "query"
    """The part of an API request that has the parameter."""
    flags: tuple[str, ...] = ()
    """The option's flags on the command line; without any, the parameter is an argument."""
    metavar: str | None = None
    query: str = ""
    """Its name in the API's query, if that is not the field's name."""
    optional: bool = False
    """Whether the argument may be left out, because other arguments can give the same value."""
    typed: bool = True
    """Whether the command line has it too."""
    choices: tuple[str, ...] = ()
    """The allowed values, if its type does not list them."""
    files: bool = False
    """Whether the command line takes names of files, which the command reads."""


def argument(metavar: str, *, optional: bool = False) -> Spelling:
    return Spelling("path", metavar=metavar, optional=optional)


def option(*flags: str, metavar: str | None = None, query: str = "", choices: tuple[str, ...] = ()) -> Spelling:
    return Spelling("query", flags, metavar, query, choices=choices)


def api_only() -> Spelling:
    """A parameter that only the API and the library have."""
    return Spelling(typed=False)


class Parameters(BaseModel):
    # Built on first use: a command asks one question, but loads the models of several.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @property
    def noun(self) -> str:
        """The noun in the streams of the question's object; empty if the question has no object."""
        return ""

    @property
    def subject(self) -> str:
        """The question's object, in words."""
        return ""

    @classmethod
    def spellings(cls) -> dict[str, tuple[FieldInfo, Spelling]]:
        """Field → its pydantic description and its spelling; arguments first."""
        fields = {name: (it, _spelling(it)) for name, it in cls.model_fields.items()}
        return dict(sorted(fields.items(), key=lambda it: bool(it[1][1].flags)))

    @classmethod
    def query_names(cls, only: tuple[str, ...] | None = None) -> dict[str, str]:
        """Field → its name in the API's query; `only`: the fields of a route that does not take all."""
        return {
            name: it.query or name
            for name, (_, it) in cls.spellings().items()
            if it.place == "query" and (only is None or name in only)
        }


class Body(BaseModel):
    """The body of a request: a part of the parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)
    takes: ClassVar[frozenset[str]]
    """The names of the parameters that it can hold."""

    def words(self) -> dict[str, Any]:
        """The parameters that were sent, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def of(cls, parameters: Parameters) -> dict[str, Any]:
        """The body for these parameters."""
        return parameters.model_dump(include=set(cls.takes), exclude_none=True)


class PageParameters(Parameters):
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST, description="Items of a page, at most.")] = PAGE
    after: Annotated[
        str | None,
        option("--after", metavar="TOKEN", query="continue"),
        Field(description="The next page: the token that the page before ended with."),
    ] = None

    @property
    def page(self) -> dict[str, Any]:
        """The page, as keyword arguments for the reads of the log."""
        return {"after": self.after, "limit": self.limit}


SINCE = "The beginning: 2h (ago), yesterday 14:00, 2025-11-16T22:00:00Z, or a position."
UNTIL = "The end; a time as for --since, or a position."
Since = Annotated[str | None, option("--since", metavar="TIME"), Field(description=SINCE)]
Until = Annotated[str | None, option("--until", metavar="TIME"), Field(description=UNTIL)]
AsOf = Annotated[
    str | None,
    option("--as-of", metavar="TIME", query="asOf"),
    Field(description="The state at a time: 2h (ago), yesterday 14:00, 2025-11-16T22:00:00Z, or a position."),
]
OlderThan = Annotated[
    str,
    option("--older-than", metavar="D", query="olderThan"),
    Field(description="Leave out what is more recent than this: 90s, 12h or 7d."),
]


class WindowParameters(PageParameters):
    """A part of the history, page by page."""

    since: Since = None
    until: Until = None
    as_of: Annotated[
        str | None,
        option("--as-of", metavar="TIME", query="asOf"),
        Field(description="The same as --until."),
    ] = None


class ObjectParameters(Parameters):
    """An object by kind and name, or a binding or an attempt by its id."""

    kind: Annotated[str, argument("KIND"), Field(description="The kind, by any of its names.")]
    name: Annotated[str, argument("NAME", optional=True), Field(description="Its name; the ID of a binding.")]
    namespace: Annotated[
        str | None,
        Spelling("path", ("--namespace", "-n"), "NS"),
        Field(description="Namespace; 'default' without it."),
    ] = None

    @property
    def named(self) -> Named:
        """The kind; UnknownKindError if no kind has that name."""
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
    """Whether a name without a namespace may name an object other than a pod."""

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
