"""The reference in docs/configuration.md matches the code."""

from __future__ import annotations

from pathlib import Path

from docs.configuration_page import page

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_reference_is_that_of_the_code() -> None:
    is_equal = PAGE.read_text(encoding="utf-8") == page()
    assert is_equal, "docs/configuration.md differs from the code; run: make reference"
