"""Any text is read as statements, or refused with its place, in a time that grows as the text does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sql.parser.statements import parse
from malflow.sql.text import Source, SqlError
from tests.oracles.sql_cases import CASES

NEXMARK = {it.stem: it.read_text() for it in sorted((Path(__file__).parent / "nexmark").glob("*.sql"))}
TEXTS = [*(CASES[name]["sql"] for name in CASES), *NEXMARK.values()]
PIECES = [
    "(",
    ")",
    ",",
    "'",
    "`",
    "/*",
    "*/",
    "--",
    "\n",
    ";",
    "SELECT",
    "FROM",
    "NOT",
    "IN",
    "CASE",
    "[",
    "{",
    "\0",
    "é",
]
NOISE = st.text(max_size=200)
"""Texts of all characters."""

STEPS_A_CHARACTER = 150
"""Steps of Python a character: reading takes 40 to 90 of them."""


def outcome(text: str) -> str:
    """Return what becomes of a text: read, or refused at a place within it."""
    try:
        parse(Source(text))
    except SqlError as error:
        is_within = all(0 <= it.span.start <= len(text) for it in error.faults)
        return "refused" if is_within and 1 <= error.line <= text.count("\n") + 1 else "refused somewhere else"
    return "read"


@given(NOISE)
@pytest.mark.fault("U1")
def test_noise_is_read_or_refused(text: str) -> None:
    assert outcome(text) in {"read", "refused"}


@given(st.data())
def test_mutated_queries_are_read_or_refused(data: Any) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        end = min(end, start + data.draw(st.integers(0, 12)))
        other = data.draw(st.sampled_from([*PIECES, *data.draw(st.sampled_from(TEXTS)).split(), ""]))
        text = f"{text[:start]}{other}{text[end:]}"
    assert outcome(text) in {"read", "refused"}


@given(st.sampled_from(TEXTS), st.integers(0, 400))
@pytest.mark.fault("U1")
def test_texts_that_are_cut_short_are_read_or_refused(text: str, length: int) -> None:
    assert outcome(text[:length]) in {"read", "refused"}


DEEP = {
    "brackets": ("SELECT " + "(" * 10_000 + "1" + ")" * 10_000, "refused"),
    "open brackets": ("SELECT " + "(" * 10_000, "refused"),
    "queries": ("SELECT * FROM (" * 10_000 + "n" + ")" * 10_000, "refused"),
    "calls": ("SELECT " + "ABS(" * 10_000 + "1" + ")" * 10_000, "refused"),
    "cases": ("SELECT " + "CASE WHEN a THEN " * 10_000, "refused"),
    "signs": ("SELECT " + "- " * 10_000 + "1", "refused"),
    "negations": ("SELECT " + "NOT " * 10_000 + "a", "refused"),
    "sums": ("SELECT " + "1 + " * 10_000 + "1", "refused"),
    "indices": ("SELECT a" + "[1" * 10_000, "refused"),
    "fields": ("SELECT a" + ".b" * 10_000, "read"),
    "types": ("SELECT CAST(a AS " + "ARRAY<" * 10_000 + "INT", "refused"),
    "unions": ("SELECT 1 UNION ALL " * 2_000 + "SELECT 1", "refused"),
    "joins": ("SELECT * FROM a" + " CROSS JOIN a" * 2_000, "refused"),
    "conditions": ("SELECT * FROM n WHERE " + "a = 1 OR " * 2_000 + "TRUE", "read"),
    "values": ("VALUES " + "(1), " * 2_000 + "(1)", "read"),
}


@pytest.mark.parametrize("shape", DEEP)
def test_deep_and_long_texts_end(shape: str) -> None:
    text, expected = DEEP[shape]
    assert outcome(text) == expected


LONG = {
    "noise": "~",
    "words": "select from where ",
    "quotes": "'",
    "backticks": "`",
    "comments": "/* ",
    "stars": "/*" + "*",
    "numbers": "1",
    "points": ".",
    "statements": "SELECT a, b FROM n WHERE a = 1;\n",
    "faults": "SELECT FROM;\n",
    "open texts": "'a''",
    "exponents": "1e",
    "queries": NEXMARK["q16"],
}


@pytest.mark.parametrize("shape", LONG)
def test_time_grows_as_the_text_does(shape: str) -> None:
    steps = []
    for size in (3_000, 12_000):
        text = LONG[shape] * (size // len(LONG[shape]))
        steps.append(_steps(text) / len(text))
    assert steps[1] <= 1.5 * steps[0] + 1
    assert max(steps) <= STEPS_A_CHARACTER


def _steps(text: str) -> int:
    """Return how many lines of Python run until a text is read or refused."""
    count = 0

    def step(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return step

    sys.settrace(step)
    try:
        outcome(text)
    finally:
        sys.settrace(None)
    return count


NOT_CLOSED = {
    "/* a": "the comment",
    "SELECT 'a": "the text",
    "SELECT `a": "the name",
    "SELECT 1 /* /* /*": "the comment",
}


@pytest.mark.parametrize("text", NOT_CLOSED)
def test_open_comments_and_quotes_are_named(text: str) -> None:
    with pytest.raises(SqlError, match=f"{NOT_CLOSED[text]} is not closed"):
        parse(Source(text))


@pytest.mark.parametrize("shape", ["noise", "quotes", "backticks", "comments", "numbers", "open texts", "exponents"])
@pytest.mark.fault("U1")
def test_a_megabyte_ends(shape: str) -> None:
    assert outcome(LONG[shape] * (1_000_000 // len(LONG[shape]))) in {"read", "refused"}
