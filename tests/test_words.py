"""The small words of messages: with hostile reprs, control characters, surrogates, and long texts and names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import errors
from malflow.words import (
    class_name,
    cut,
    did_you_mean,
    error_line,
    error_text,
    iso,
    listed,
    one_line,
    plural,
    printable,
    qualified_name,
    quoted,
    resembling,
    short_repr,
    value_text,
)


class Hostile:
    """Raises from each method that a message may call."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no eq")


class HostileError(ValueError):
    """Raises when it is printed."""

    def __str__(self) -> str:
        raise RuntimeError("no str")


class HiddenType(type):
    """Refuses the names of its classes."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            raise RuntimeError(f"no {name}")
        return super().__getattribute__(name)


class Town(StrEnum):
    """A text that is not a plain str."""

    ULM = "Ulmm"


# names


def test_a_name_that_resembles_another_is_suggested() -> None:
    assert did_you_mean("cuont", ["out", "count"]) == "; did you mean 'count'?"


def test_without_a_resembling_name_all_are_listed() -> None:
    assert did_you_mean("x", ["count", "out"]) == "; there are 'count', 'out'"
    assert did_you_mean("x", ["count"]) == "; there is 'count'"
    assert did_you_mean("x", []) == ""


def test_the_caller_chooses_the_words_when_nothing_resembles() -> None:
    assert did_you_mean("x", ["count"], else_="create it first") == "; create it first"
    assert did_you_mean("x", ["count"], else_="") == ""
    assert did_you_mean("cuont", ["count"], else_="create it first") == "; did you mean 'count'?"


def test_the_caller_chooses_how_names_are_written() -> None:
    assert did_you_mean("snk", ["sink"], write=".{}()".format) == "; did you mean .sink()?"
    assert did_you_mean("x", ["a", "b"], write=str) == "; there are a, b"


@pytest.mark.parametrize("name", [None, 7, b"count", ["count"], Hostile()], ids=type)
def test_an_object_that_is_not_a_text_resembles_no_name(name: object) -> None:
    assert resembling(name, ["count"]) == []
    assert did_you_mean(name, ["count"]) == "; there is 'count'"


def test_names_that_are_no_texts_are_not_compared() -> None:
    assert resembling("delai", [1, None, Hostile(), "delay"]) == ["delay"]


def test_a_text_of_a_class_of_its_own_is_compared() -> None:
    assert resembling(Town.ULM, ["Ulm"]) == ["Ulm"]


def test_several_names_may_resemble_it() -> None:
    assert resembling("count", ["counts", "mount", "out", "zzz"], 2) == ["counts", "mount"]


def test_a_very_long_name_is_refused_quickly() -> None:
    before = process_time()
    assert resembling("ab" * 500_000, ["ab" * 400_000, "count"]) == []
    assert process_time() - before < 5


def test_a_list_of_names_is_short() -> None:
    assert listed(map(str, range(1030)), 3) == "'0', '1', '2' and 1,027 more"
    assert len(did_you_mean("x", map(str, range(10**5)))) < 200


def test_a_list_of_no_names_is_none() -> None:
    assert listed(()) == "none"


# texts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 名 é", "plain 名 é"),
        ("a\nb\r\t\x00", r"a\nb\r\t\x00"),
        ("\x1b[31m\x7f\x9b", r"\x1b[31m\x7f\x9b"),
        ("left\u202eright\u2066\ufeff", r"left\u202eright\u2066\ufeff"),
        ("\ud800 and \udcff", r"\ud800 and \udcff"),
        ("\U000e0001", r"\U000e0001"),
        ("", ""),
    ],
)
def test_a_printable_text_has_no_control_characters_or_surrogates(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=[])), st.integers(0, 30))
def test_a_line_is_printable_short_and_can_be_written(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit + len("...")
    assert len(line.splitlines()) <= 1
    line.encode("utf-8")


def test_a_line_of_a_very_long_text_takes_no_time() -> None:
    text = "\x1b" * 50_000_000
    before = process_time()
    assert one_line(text, 10) == r"\x1b\x1b\x..."
    assert process_time() - before < 5


def test_a_text_is_cut_where_the_limit_is() -> None:
    assert [cut("abc", limit) for limit in (4, 3, 2, 0)] == ["abc", "abc", "ab...", "..."]


def test_a_quoted_name_is_one_short_line() -> None:
    assert quoted("count") == "'count'"
    assert quoted("a\n" + "b" * 1000) == "'a\\n" + "b" * 77 + "...'"


# objects and errors of users


def test_a_repr_never_raises() -> None:
    assert short_repr(Hostile()).startswith("<Hostile instance at 0x")
    assert short_repr([Hostile()]).startswith("[<Hostile instance at 0x")


@pytest.mark.parametrize(
    "make", [lambda: "x" * 10**6, lambda: list(range(10**6)), lambda: {it: it for it in range(10**5)}]
)
def test_a_repr_is_short(make: Callable[[], object]) -> None:
    assert len(short_repr(make())) < 300


def test_a_repr_has_no_password_of_a_url() -> None:
    assert short_repr({"url": "ftp://me:hush@host/x"}) == "{'url': 'ftp://***@host/x'}"


def test_the_text_of_an_error_never_raises() -> None:
    assert error_text(HostileError()) == "<its str raised RuntimeError>"
    assert error_text(ValueError("why")) == "why"


def test_the_line_of_an_error_never_raises() -> None:
    assert error_line(HostileError()) == "HostileError: <its str raised RuntimeError>"
    assert error_line(ValueError("why")) == "ValueError: why"
    assert error_line(StopIteration()) == "StopIteration"


class Local(datetime):
    """A datetime with a text of its own, as those of libraries have."""

    def __str__(self) -> str:
        raise RuntimeError("no str")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), "2026-03-28 12:00:00+00:00"),
        (timedelta(minutes=5), "0:05:00"),
        (1711627200, "1711627200"),
        ("a\nb", r"'a\nb'"),
    ],
)
def test_a_value_in_a_sentence_is_one_line(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_value_in_a_sentence_never_raises() -> None:
    assert value_text(Hostile()).startswith("<Hostile instance at 0x")
    assert "2026" in value_text(Local(2026, 3, 28))


def test_a_class_can_not_hide_its_name() -> None:
    hidden = HiddenType("Hidden", (), {})()
    assert (class_name(hidden), qualified_name(hidden)) == ("Hidden", "Hidden")
    assert class_name(Hostile()) == "Hostile"


def test_the_words_of_errors_are_still_public() -> None:
    assert errors.many is plural
    assert errors.short_repr is short_repr
    assert {"many", "short_repr", "error_text", "class_name", "qualified_name"} < set(errors.__all__)


# counts and instants


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "record", "0 records"),
        (1, "record", "1 record"),
        (1_234_567, "record", "1,234,567 records"),
        (2, "query", "2 queries"),
        (2, "key", "2 keys"),
        (2, "match", "2 matches"),
        (2, "process", "2 processes"),
        (2, "late record", "2 late records"),
    ],
)
def test_a_noun_has_the_form_of_its_number(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


def test_an_instant_is_in_utc_with_microseconds() -> None:
    summer = timezone(timedelta(hours=2))
    assert iso(datetime(2026, 7, 1, 1, 30, tzinfo=summer)) == "2026-06-30T23:30:00.000000Z"
    assert iso(None) is None


@given(st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)))
def test_an_instant_is_read_back_as_it_was(moment: datetime) -> None:
    assert datetime.fromisoformat(iso(moment)) == moment


@given(st.lists(st.datetimes(timezones=st.just(UTC)), max_size=8))
def test_instants_sort_as_their_texts(moments: list[datetime]) -> None:
    assert sorted(map(iso, moments)) == [iso(it) for it in sorted(moments)]
