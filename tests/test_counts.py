"""Numbers in texts have their noun in the right form: `many` writes it."""

from __future__ import annotations

import re

import pytest

from malflow.words import plural
from tests.test_docstrings import ROOT

NOUNS = "parts|keys|records|files|windows|rows|tasks|workers|processes|letters|values|columns|times|operators|snapshots"

COUNTED = re.compile(rf"\{{(len\([^{{}}]+\)|(\w+\.)*(count|counts|keys|calls\.made|opened))(:,)?\}} (new )?({NOUNS})\b")
"""A number of things that may be one."""


def test_no_text_writes_a_number_and_a_plural_by_itself() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "malflow").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if COUNTED.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "key", "0 keys"),
        (1, "key", "1 key"),
        (1203, "key", "1,203 keys"),
        (2, "query", "2 queries"),
        (2, "day", "2 days"),
    ],
)
def test_forms(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text
