"""Parameters of `history` and `diff`."""

from typing import Annotated

from pydantic import Field

from volsched.questions.parameters import (
    MOST,
    ObjectParameters,
    PageParameters,
    Spelling,
    WindowParameters,
    option,
)

TIMELINE_PAGE = 100


class Timeline(WindowParameters, ObjectParameters):
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST, description="Items of a page, at most.")] = (
        TIMELINE_PAGE
    )


class EventSearch(WindowParameters):
    kind: Annotated[
        str | None, option("--kind", metavar="KIND"), Field(description="Only events of objects of this kind.")
    ] = None
    actor: Annotated[str, option("--actor"), Field(description="Part of the name of who did it.")] = ""
    type: Annotated[str, option("--type"), Field(description="Only events of this type, such as LegMoved.")] = ""
    text: Annotated[
        str,
        option("--text"),
        Field(description="Part of the object's name, or of the data that was written."),
    ] = ""


class Diff(PageParameters):
    kind: Annotated[
        str | None,
        Spelling("query", metavar="KIND", optional=True),
        Field(description="Only objects of this kind."),
    ] = None
    begin: Annotated[
        str,
        option("--from", metavar="TIME", query="from"),
        Field(description="The first moment: 2h (ago), a time, or a position."),
    ]
    end: Annotated[
        str | None,
        option("--to", metavar="TIME", query="to"),
        Field(description="The second moment; without it, now."),
    ] = None
