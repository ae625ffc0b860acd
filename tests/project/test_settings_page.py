"""The page of settings is what the declarations say."""

from pathlib import Path

from tools.settings import page

ROOT = Path(__file__).parents[2]


def test_the_page_of_settings_is_made_from_the_declarations() -> None:
    """After a change of a setting: python -m tools.settings > docs/settings.md"""
    assert (ROOT / "docs" / "settings.md").read_text() == page()


def test_every_setting_says_what_it_means() -> None:
    assert "None |\n" not in page()
