"""LIKE, SIMILAR TO and regular expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sql.functions.patterns import like, like_test, regexp, similar

TEXTS = st.text(st.sampled_from("ab%_!\n😀"), max_size=8)
PATTERNS = st.text(st.sampled_from("ab%_\n😀"), max_size=8)


def matches(text: str, pattern: str) -> bool:
    """Whether a text is LIKE a pattern, by the definition."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(matches(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return text != "" and pattern[0] in ("_", text[0]) and matches(text[1:], pattern[1:])


@given(TEXTS, PATTERNS)
def test_like_follows_its_definition(text: str, pattern: str) -> None:
    template, value = like_test(pattern, "")
    names = {"text": text, "value": value}
    by_literal = eval(template.replace("{0}", "text").replace("{1}", "value"), names)  # noqa: S307 - of our own
    assert like(text, pattern, "") is by_literal is matches(text, pattern)


@given(TEXTS, st.integers(0, 8), st.integers(0, 8))
def test_ends_of_a_text_may_not_overlap_in_it(text: str, start: int, end: int) -> None:
    pattern = f"{text[:start]}%{text[end:]}"
    assert like(text, pattern, "") is matches(text, pattern)


@given(TEXTS)
def test_escaped_texts_are_like_themselves_alone(text: str) -> None:
    escaped = re.sub("([!%_])", r"!\1", text)
    assert like(text, escaped, "!")
    assert not like(f"{text}a", escaped, "!")


@pytest.mark.parametrize("pattern", ["%a" * 60 + "%b", "%" * 500 + "b", "a%" * 60 + "b_", "%_" * 60 + "b"])
def test_like_does_not_explode(pattern: str) -> None:
    assert not like("a" * 20_000, pattern, "")


SIMILAR = [
    ("abc", "a(b|x)c", True),
    ("abc", "%b%", True),
    ("abc", "a_", False),
    ("aab", "a{2}b?", True),
    ("a.b", "a\\.b", False),
    ("a\\xb", "a\\.b", True),
    ("a$", "a$", True),
    ("a", "^a", True),
    ("5", "[[:DIGIT:]]", True),
    ("x", "[^[:DIGIT:]]", True),
    ("a%", "a!%", True),
    ("ab", "a!%", False),
]


@pytest.mark.parametrize(("text", "pattern", "expected"), SIMILAR)
def test_similar_to_has_signs_of_both_kinds(text: str, pattern: str, expected: bool) -> None:
    assert similar(text, pattern, "!") is expected


REGEXPS = [
    (r"\p{Alpha}+\P{Digit}", "ab!", True),
    (r"^\p{L}+$", "größe", True),
    (r"\P{L}", "größe", False),
    (r"\w\z", "ö", False),
    (r"(?<year>\d{4})-\k<year>", "2026-2026", True),
    (r"\Qa.b\E.", "a.bc", True),
    (r"\Qa.b\E.", "axbc", False),
    (r"[.|&~]", "~", True),
    (r"a.b", "a\rb", False),
    (r"(?s)a.b", "a\rb", True),
    (r"(?i)STRASSE", "strasse", True),
    (r"a\Rb", "a\r\nb", True),
    (r"end\Z", "end\n", True),
    (r"[^\]a]", "]", False),
    (r"x*+y", "xxy", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), REGEXPS)
def test_regular_expressions_are_those_of_java(pattern: str, text: str, expected: bool) -> None:
    assert (regexp(pattern).search(text) is not None) is expected
