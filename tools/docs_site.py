"""A hook of MkDocs: completes the navigation of `mkdocs.yml` with the pages in the folders of docs/.

A new page is in the site without being listed; `mkdocs.yml` only lists which pages belong to which role.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

FOLDERS = {"how-to": "How to", "decisions": "Decisions", "measurements": "Measurements"}
LAST_SECTION = "Contributor"
"""The section for the folders, and for pages that no role lists."""
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
"""Pages of the repository that documents may link to, and that are not in the site."""


def completed(nav: list[Any], pages: Iterable[str]) -> list[Any]:
    """Every page once: a listed page where it is listed, all others in the last section."""
    named = set(named_pages(nav))
    missing = sorted(it for it in pages if it not in named)
    folders = [
        {title: [it for it in missing if PurePosixPath(it).parts[0] == name]} for name, title in FOLDERS.items()
    ]
    others = [it for it in missing if PurePosixPath(it).parts[0] not in FOLDERS]
    more = [*others, *(it for it in folders if any(it.values()))]
    return [
        {title: [*entries, *more] if title == LAST_SECTION else entries}
        for section in nav
        for title, entries in section.items()
    ]


def named_pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for entry in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from named_pages(entry)


def on_files(files: Any, config: Any) -> Any:
    config.nav = completed(config.nav, [it.src_uri for it in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link out of docs/ stays as text: the site has no such page."""
    for name in OUTSIDE:
        for up in ("../../", "../"):
            markdown = markdown.replace(f"]({up}{name})", "]")
    return markdown
