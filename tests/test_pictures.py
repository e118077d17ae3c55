"""The pictures of the documentation exist, match the script that draws them, and are shown."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"
DRAWN = run_path(str(DOCS / "pictures" / "draw.py"))["draw"]()
SHOWN = re.compile(r"!\[[^]]+\]\(pictures/([^)]+)\)")


@pytest.mark.parametrize(
    ("page", "pictures"), [("time", ["epochs.svg", "lateness.svg", "windows.svg"]), ("state", ["state.svg"])]
)
def test_a_page_shows_its_pictures(page: str, pictures: list[str]) -> None:
    assert SHOWN.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")) == pictures


def test_every_picture_is_shown() -> None:
    shown = {name for page in DOCS.glob("*.md") for name in SHOWN.findall(page.read_text(encoding="utf-8"))}
    photographs = {path.name for path in (DOCS / "pictures").glob("*.png")}
    assert {name for name in shown if name.endswith(".svg")} == set(DRAWN)
    assert {name for name in shown if name.endswith(".png")} <= photographs


def test_pictures_of_the_page_are_small_and_of_its_two_widths() -> None:
    pictures = [*(DOCS / "pictures").glob("*.png")]
    assert pictures
    for path in pictures:
        content = path.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert path.stem.endswith(f"_{int.from_bytes(content[16:20])}"), "run: python -m docs.pictures.page"
        assert len(content) < 150_000


def test_no_picture_is_left_over() -> None:
    assert {path.name for path in (DOCS / "pictures").glob("*.svg")} == set(DRAWN)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_what_the_script_draws(name: str) -> None:
    picture = (DOCS / "pictures" / name).read_text(encoding="utf-8")
    assert picture == DRAWN[name], "run: python docs/pictures/draw.py"
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own file
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root) > 10
