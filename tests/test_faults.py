"""The table of faults has every row, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = {"A": 13, "B": 15, "C": 19, "D": 10, "E": 29, "F": 15, "G": 15, "H": 9, "I": 23}
LINK = re.compile(r"\[(test_\w+)\]\(([\w/]+\.py)\)")


def rows() -> dict[str, str]:
    """Read the table: what stands beside each number."""
    lines = (TESTS / "FAULTS.md").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"\| ([A-Z]\d+) \| (.+) \| (.+) \| (.+) \|", line) for line in lines if line.startswith("| ")]
    numbers = [match[1] for match in found if match]
    assert len(numbers) == len(set(numbers))
    return {match[1]: match[0] for match in found if match}


@cache
def names_in(path: str) -> frozenset[str]:
    """Name the tests of a file."""
    nodes = ast.walk(ast.parse((TESTS / path).read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_every_fault_has_its_row() -> None:
    assert list(rows()) == [f"{letter}{number}" for letter, last in ROWS.items() for number in range(1, last + 1)]


@pytest.mark.parametrize("row", rows())
def test_a_row_names_tests_that_exist_or_says_that_it_is_not_offered(row: str) -> None:
    text = rows()[row]
    links = LINK.findall(text)
    assert len(links) == text.count("](")
    for name, path in links:
        assert name in names_in(path), f"there is no {name} in {path}"
    assert links or re.search(r"\| not (yet|offered): .+ \| none \|$", text)
