"""Parameters of the questions for objects of any kind, as they are or were. `volsched get` loads no others."""

from typing import Annotated

from pydantic import Field

from volsched.questions.parameters import AsOf, ObjectParameters, Parameters, Spelling, argument

Namespace = Annotated[
    str | None,
    Spelling("path", ("--namespace", "-n"), "NS"),
    Field(description="Namespace; every one without it."),
]


class KindParameters(Parameters):
    """All of a kind, in a namespace or everywhere."""

    kind: Annotated[str, argument("KIND"), Field(description="Any name of a kind.")]
    namespace: Namespace = None
    as_of: AsOf = None


class OneParameters(ObjectParameters):
    as_of: AsOf = None
