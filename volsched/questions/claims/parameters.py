"""Parameters of the questions about claims."""

from typing import Annotated

from pydantic import Field

from volsched.questions.parameters import Parameters, option


class ClaimDataParameters(Parameters):
    claims_in: Annotated[
        str | None,
        option("--namespace", "-n", metavar="NS", query="claimsIn"),
        Field(description="Only claims of this namespace; without it, of all namespaces."),
    ] = None


class HalfBoundParameters(Parameters):
    older_than: Annotated[
        str,
        option("--older", "--older-than", metavar="D", query="olderThan"),
        Field(description="Leave out what is known to be more recent than this: 90s, 2m or 1h."),
    ] = "0s"
