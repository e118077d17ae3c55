"""The page of the command line matches the commands."""

from __future__ import annotations

from pathlib import Path

from docs.command_line_page import page

PAGE = Path(__file__).parents[1] / "docs" / "command_line.md"


def test_page_is_that_of_the_commands() -> None:
    is_equal = PAGE.read_text(encoding="utf-8") == page()
    assert is_equal, "docs/command_line.md differs from the commands; run: make reference"
