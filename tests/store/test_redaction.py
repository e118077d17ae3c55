"""Texts for people: without secrets and control characters, short, and whatever the user's objects do."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.store.redaction import safe_line, safe_lines, safe_repr


class Hostile:
    """Raises when its repr is asked for."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("safe", [safe_line, safe_lines])
def test_a_text_has_no_secret_and_no_escape_sequence(safe: Callable[[str], str]) -> None:
    assert safe("\x1b[31mftp://me:hush@host/x\x9b") == r"\x1b[31mftp://***@host/x\x9b"


def test_line_breaks_are_kept_only_in_lines() -> None:
    assert safe_line("a\nb\r") == r"a\nb\r"
    assert safe_lines("a\nb\r") == "a\nb\\r"


@pytest.mark.parametrize("safe", [safe_line, safe_lines])
def test_a_very_long_text_is_cut_with_its_length(safe: Callable[[str], str]) -> None:
    before = monotonic()
    assert safe("x" * 10_000_000) == "x" * 4000 + "... (10,000,000 characters)"
    assert monotonic() - before < 5


@given(st.text(st.characters(exclude_categories=[])))
def test_a_safe_text_can_be_written(text: str) -> None:
    line = safe_line(text)
    line.encode("utf-8")
    assert len(line.splitlines()) <= 1
    assert len(safe_lines(text).split("\n")) == text.count("\n") + 1


def test_a_repr_has_no_secrets_and_never_raises() -> None:
    assert safe_repr({"url": "s3://me:hush@host/x"}) == "{'url': 's3://***@host/x'}"
    assert safe_repr(Hostile()).startswith("<Hostile instance at 0x")
