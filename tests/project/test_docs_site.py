"""The site of the documents (`make docs`): every page is reached, and a reader's browser asks nobody else."""

from pathlib import Path

import yaml

from tools.docs_site import completed, named_pages, on_page_markdown

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(str(it.relative_to(ROOT / "docs")) for it in (ROOT / "docs").rglob("*.md"))


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page() -> None:
    entries = list(named_pages(completed(SITE["nav"], PAGES)))
    assert sorted(entries) == PAGES
    roles = [next(iter(it)) for it in SITE["nav"]]
    assert roles == ["Start", "Storage engineer", "SRE", "Scheduler author", "Auditor", "Contributor"]


def test_a_new_page_needs_no_second_list() -> None:
    contributor = completed(SITE["nav"], [*PAGES, "decisions/9999-new.md", "new.md"])[-1]["Contributor"]
    assert "new.md" in contributor
    assert "decisions/9999-new.md" in next(
        it["Decisions"] for it in contributor if isinstance(it, dict) and "Decisions" in it
    )


def test_nothing_comes_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["plugins"] == ["search"]
    assert not {"extra_css", "extra_javascript"} & SITE.keys()


def test_a_link_out_of_the_documents_is_text_in_the_site() -> None:
    assert on_page_markdown("see [the log](../../CHANGELOG.md), [b](b.md)") == "see [the log], [b](b.md)"
