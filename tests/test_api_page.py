"""The page of all names matches the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def page() -> str:
    """Return the page of the code, by a process in which no test has replaced a method."""
    program = "from docs.api_page import page; print(page(), end='')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_of_all_names_is_that_of_the_code(page: str) -> None:
    is_equal = (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == page
    assert is_equal, "docs/api.md differs from the code; run: make reference"


@pytest.mark.parametrize(
    "text",
    [
        "- **`.stateless_op(name: str, logic: ",
        '  - `until`: `"now"` ends the source',
        "  - `formatter`: ",
        "  - `retries`: ",
        "- **`tumbling(",
        "- **`.window(",
        "- **`VecSink()`**",
    ],
)
def test_a_name_or_parameter_is_found(page: str, text: str) -> None:
    assert f"\n{text}" in page
