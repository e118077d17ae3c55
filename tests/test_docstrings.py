"""Docstrings open as the field's do: "Return ...", "Whether ...", or with the verb of what is done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("malflow", "tests", "examples", "benchmarks")

BANNED = re.compile(r"(Gives?|Tells?|Lets?|Have|Has|Take what|Say (what|why|how|that))\b")
"""Openings of any docstring that "Return", "Whether", "Raise" or the proper verb replace."""

NOUN_CLAUSE = re.compile(r"(What|Whatever|How|Where|Why|Who)\b")
"""Openings of a function's docstring that hide its verb."""

NOUN_CLAUSE_TITLE = re.compile(r"test_(what|whatever|how|where|why|who)_")
"""Names of tests that hide their subject."""

CANDIDATE = re.compile(rf"""["'](\\\n)?\s*({BANNED.pattern}|{NOUN_CLAUSE.pattern})""")
"""The beginning of a string that is an offence if it is a docstring: most modules have none, and need no parsing."""

TITLE = re.compile(r"^ *def (test_\w+)\(", re.MULTILINE)
LONGEST_TITLE = 70

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def offences(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and docstring of each function, class and module whose docstring has a banned opening."""
    for node in ast.walk(ast.parse(source if CANDIDATE.search(source) else "")):
        if not isinstance(node, Documented):
            continue
        text = (ast.get_docstring(node, clean=False) or "").lstrip()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
        if BANNED.match(text) or (is_function and NOUN_CLAUSE.match(text)):
            yield getattr(node, "lineno", 1), text.partition("\n")[0]


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property, whose docstring may be a noun."""
    return any(isinstance(it, ast.Name) and it.id == "property" for it in node.decorator_list)


def modules() -> Iterator[Path]:
    """Yield the modules of the package, of the tests, of the examples and of the benchmarks."""
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def titles(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each test."""
    for found in TITLE.finditer(source):
        yield source.count("\n", 0, found.start()) + 1, found[1]


def test_no_docstring_has_a_banned_opening() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}" for path in modules() for line, text in offences(path.read_text())
    ]
    assert not found, "\n".join(["Write 'Return ...', 'Whether ...' or the verb of what is done:", *found])


def test_titles_of_tests_are_short_and_name_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules()
        for line, name in titles(path.read_text())
        if len(name) > LONGEST_TITLE or NOUN_CLAUSE_TITLE.match(name)
    ]
    assert not found, "\n".join(["Write a title with a noun as its subject:", *found])


@pytest.mark.parametrize(
    "opening",
    ["Give the names.", "Tell whether it is.", "Let go of it.", "Have a process do it.", "What comes of it."],
)
def test_banned_openings_are_found(opening: str) -> None:
    assert list(offences(f'def function():\n    """{opening}"""\n'))


@pytest.mark.parametrize("opening", ["Return the names.", "Whether it is.", "Close it.", "Hash a key."])
def test_other_openings_are_not(opening: str) -> None:
    assert not list(offences(f'def function():\n    """{opening}"""\n'))
