"""Parameters of `explain`, and the body with manifests."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.questions.parameters import (
    LONGEST_NAME,
    MOST_MANIFESTS,
    PLAIN_TEXT,
    AsOf,
    Body,
    Parameters,
    PodParameters,
    Spelling,
    argument,
    option,
)

ProfileName = Literal["volsched", "parity"]


class ExplainParameters(PodParameters):
    name: Annotated[str, argument("NAME"), Field(description="The pod, as NAME or NAMESPACE/NAME.")]
    node: Annotated[str | None, option("--node"), Field(description="Look at this node only.")] = None
    profile: Annotated[
        ProfileName | None,
        option("--profile"),
        Field(description="Decide with this profile instead of the configured one."),
    ] = None
    as_of: AsOf = None
    manifests: Annotated[
        list[dict[str, Any]],
        Spelling("body", ("--filename", "-f")),
        Field(default_factory=list, description="Objects to lay over the store."),
    ]
    alone: Annotated[
        bool, Spelling("body", ("--alone",)), Field(description="Look only at the manifests, not at the store.")
    ] = False


class Explain(Body):
    pod: str = Field(
        min_length=1,
        max_length=2 * LONGEST_NAME,
        pattern=PLAIN_TEXT,
        description="NAMESPACE/NAME, or one in `default`.",
    )
    node: str = Field(
        default="", max_length=LONGEST_NAME, pattern=PLAIN_TEXT, description="Look at this node only."
    )
    profile: ProfileName | None = Field(
        default=None, description="Decide with this profile instead of the server's."
    )
    manifests: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_MANIFESTS)
    alone: bool = Field(default=False, description="Look only at the manifests, not at the store.")
    takes: ClassVar[frozenset[str]] = frozenset({"name", "namespace", "node", "profile", "manifests", "alone"})

    def words(self) -> dict[str, Any]:
        namespace, _, name = self.pod.rpartition("/")
        return {
            "name": name,
            "namespace": namespace or DEFAULT_NAMESPACE,
            "node": self.node or None,
            "profile": self.profile,
            "manifests": self.manifests,
            "alone": self.alone,
        }

    @classmethod
    def of(cls, parameters: Parameters) -> dict[str, Any]:
        assert isinstance(parameters, ExplainParameters)
        sent = {"node", "profile", "manifests", "alone"}
        return {"pod": parameters.key} | parameters.model_dump(include=sent, exclude_none=True)
