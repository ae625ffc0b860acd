"""Parameters of the questions for present and past objects of any kind. `volsched get` loads no others."""

from typing import Annotated

from pydantic import Field

from volsched.questions.parameters import AsOf, ObjectParameters, Parameters, Spelling, argument

Namespace = Annotated[
    str | None,
    Spelling("path", ("--namespace", "-n"), "NS"),
    Field(description="Namespace; without it, all namespaces."),
]


class KindParameters(Parameters):
    """All objects of a kind, in a namespace or in all."""

    kind: Annotated[str, argument("KIND"), Field(description="The kind, by any of its names.")]
    namespace: Namespace = None
    as_of: AsOf = None


class OneParameters(ObjectParameters):
    as_of: AsOf = None
