"""Checks of options: what they accept, and the sentence of each error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from malflow.checks import (
    check_choice,
    check_choice_or_function,
    check_flag,
    check_function,
    check_mapping,
    check_name,
    check_number,
    check_whole_number,
    checked_duration,
    checked_length,
    checked_names,
    checked_seconds,
    checked_wait,
    is_number,
    is_whole_number,
)
from malflow.errors import GraphError

HUGE = 10**400


class Hostile:
    """An object whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class HostileMapping(dict[Any, Any]):
    """A mapping whose repr raises: it may have secrets."""

    __repr__ = Hostile.__repr__


async def deferred(_: Any) -> None:
    """Return nothing, and not at once."""


def forgetful(value: int) -> None:
    value += 1


GOT_HOSTILE = "got <Hostile instance at 0x"

WHOLE = partial(check_whole_number, "Sink", "batch")
SHARE = partial(check_number, "Sink", "share", least=0, most=1)
TIMEOUT = partial(checked_duration, "Sink", "timeout")
FLAG = partial(check_flag, "Sink", "append")
CHOICE = partial(check_choice, "Sink", "mode", choices=("fail", "drop", None))
NAME = partial(check_name, "Sink", "table", what="the name of a table")
NAMES = partial(checked_names, "Sink", "key", what="columns")
MAPPING = partial(check_mapping, "Sink", "settings", what="options")
FUNCTION = partial(check_function, "Sink", "row")
EITHER = partial(check_choice_or_function, "Sink", "row", choices=("json",))
LENGTH = partial(checked_length, "Sink", "within")

WRONG: list[tuple[Callable[[Any], Any], Any, str]] = [
    (WHOLE, True, "batch must be a whole number, at least 1; got True"),
    (WHOLE, 0, "batch must be a whole number, at least 1; got 0"),
    (WHOLE, None, "batch must be a whole number, at least 1; got None"),
    (WHOLE, 2.5, "batch must be a whole number, at least 1; got 2.5"),
    (WHOLE, 2.0, "batch must be a whole number, at least 1; got 2.0; write 2"),
    (WHOLE, float("nan"), "batch must be a whole number, at least 1; got nan"),
    (WHOLE, float("inf"), "batch must be a whole number, at least 1; got inf"),
    (WHOLE, "5", "batch must be a whole number, at least 1; got '5'; write 5"),
    (WHOLE, "five", "batch must be a whole number, at least 1; got 'five'"),
    (WHOLE, "\u0665", "batch must be a whole number, at least 1; got '\u0665'"),
    (WHOLE, "9" * 30, f"batch must be a whole number, at least 1; got '{'9' * 30}'"),
    (WHOLE, Fraction(5), "batch must be a whole number, at least 1; got Fraction(5, 1)"),
    (WHOLE, Hostile(), f"batch must be a whole number, at least 1; {GOT_HOSTILE}"),
    (partial(WHOLE, least=0, most=9), 10, "batch must be a whole number, from 0 to 9; got 10"),
    (partial(WHOLE, or_else="None"), 0, "batch must be a whole number, at least 1, or None; got 0"),
    (SHARE, True, "share must be a number, from 0 to 1; got True"),
    (SHARE, 1.01, "share must be a number, from 0 to 1; got 1.01"),
    (SHARE, -1, "share must be a number, from 0 to 1; got -1"),
    (SHARE, "0.5", "share must be a number, from 0 to 1; got '0.5'"),
    (SHARE, float("nan"), "share must be a number, from 0 to 1; got nan"),
    (SHARE, Hostile(), f"share must be a number, from 0 to 1; {GOT_HOSTILE}"),
    (partial(check_number, "Sink", "factor", least=1), 0.5, "factor must be a number, at least 1; got 0.5"),
    (partial(check_number, "Sink", "rate", above=0), 0, "rate must be a number, above 0; got 0"),
    (partial(check_number, "Sink", "rate", above=0), float("inf"), "rate must be a number, above 0; got inf"),
    (partial(check_number, "Sink", "rate", most=9), 10, "rate must be a number, at most 9; got 10"),
    (partial(check_number, "Sink", "rate"), float("inf"), "rate must be a finite number; got inf"),
    (TIMEOUT, 0, "timeout must be a time above zero, such as '10s', a number of seconds or a timedelta; got 0"),
    (TIMEOUT, True, "a number of seconds or a timedelta; got True"),
    (TIMEOUT, HUGE, "a number of seconds or a timedelta; got 1000"),
    (TIMEOUT, Hostile(), GOT_HOSTILE),
    (partial(TIMEOUT, may_be_zero=True), "-1s", "timeout must be a time of zero or more, such as '10s'"),
    (partial(TIMEOUT, or_else="None"), "5 parsecs", "or a timedelta, or None; got '5 parsecs'"),
    (FLAG, 1, "append must be True or False; got 1"),
    (FLAG, None, "append must be True or False; got None"),
    (partial(FLAG, optional=True), "yes", "append must be True, False or None; got 'yes'"),
    (FLAG, Hostile(), f"append must be True or False; {GOT_HOSTILE}"),
    (CHOICE, "stop", "mode must be 'fail', 'drop' or None; got 'stop'"),
    (CHOICE, ["fail"], "mode must be 'fail', 'drop' or None; got ['fail']"),
    (CHOICE, Hostile(), f"mode must be 'fail', 'drop' or None; {GOT_HOSTILE}"),
    (NAME, "", "table must be the name of a table, as text; got ''"),
    (NAME, b"t", "table must be the name of a table, as text; got b't'"),
    (NAME, None, "table must be the name of a table, as text; got None"),
    (partial(NAME, optional=True), 5, "table must be the name of a table or None, as text; got 5"),
    (NAME, Hostile(), f"table must be the name of a table, as text; {GOT_HOSTILE}"),
    (NAMES, "id", "key must be a list of columns; got 'id'; write ['id']"),
    (NAMES, {"id": 1}, "key must be a list of columns; got {'id': 1}"),
    (NAMES, b"id", "key must be a list of columns; got b'id'"),
    (NAMES, 5, "key must be a list of columns; got 5"),
    (NAMES, ["id", ""], "key must be a list of columns, none empty; got ['id', '']"),
    (NAMES, ["id", "id"], "key must be a list of columns, each once; got 'id' more than once in ['id', 'id']"),
    (NAMES, Hostile(), f"key must be a list of columns; {GOT_HOSTILE}"),
    (MAPPING, ["hush"], "settings must be a dict of options; got a list"),
    (
        MAPPING,
        {5: "hush"},
        "settings must be a dict of options, with texts as names; got the name 5",
    ),
    (MAPPING, HostileMapping({5: 1}), "with texts as names; got the name 5"),
    (FUNCTION, 5, "row must be a plain function; got 5"),
    (FUNCTION, None, "row must be a plain function; got None"),
    (FUNCTION, deferred, "row must be a plain function; got a coroutine function, deferred ("),
    (FUNCTION, forgetful, "row must return a value; forgetful ("),
    (FUNCTION, Hostile(), f"row must be a plain function; {GOT_HOSTILE}"),
    (EITHER, "xml", "row must be 'json' or a plain function; got 'xml'"),
    (EITHER, ["json"], "row must be 'json' or a plain function; got ['json']"),
    (partial(FUNCTION, arguments="key, row"), len, "calls row(key, row), but len takes other arguments"),
    (partial(FUNCTION, arguments=""), "Infinity".join, "calls row(), but str.join takes other arguments"),
    (LENGTH, "5", "within must be a positive number or timedelta, or a text such as '5 min' for datetimes; got '5'"),
    (LENGTH, True, "within must be a positive number or timedelta, or a text such as '5 min' for datetimes; got True"),
    (LENGTH, timedelta(0), "; got datetime.timedelta(0)"),
    (LENGTH, float("nan"), "; got nan"),
    (LENGTH, Decimal("sNaN"), "; got Decimal('sNaN')"),
    (LENGTH, Hostile(), GOT_HOSTILE),
    (partial(LENGTH, may_be_zero=True), -1, "within must be a number or timedelta of zero or more, or a text"),
    (partial(LENGTH, may_be_negative=True), None, "within must be a number or timedelta, or a text such as '5 min'"),
    (partial(FUNCTION, or_else=("a name",)), 5, "row must be a name or a plain function; got 5"),
]


@pytest.mark.parametrize(("check", "value", "sentence"), WRONG, ids=lambda it: None)
def test_an_error_says_what_was_wanted_what_came_and_the_cure(
    check: Callable[[Any], Any], value: Any, sentence: str
) -> None:
    with pytest.raises(GraphError) as refused:
        check(value)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("Sink ")


@pytest.mark.parametrize(("check", "value", "sentence"), WRONG, ids=lambda it: None)
def test_a_function_makes_the_error_of_its_own_kind(check: Any, value: Any, sentence: str) -> None:
    by_function = partial(check.func, lambda wrong: TypeError(f"it: {wrong}"), *check.args[1:], **check.keywords)
    with pytest.raises(TypeError, match=r"^it: ") as refused:
        by_function(value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (WHOLE, [1, 5, HUGE]),
        (partial(WHOLE, least=0, most=9), [0, 9]),
        (SHARE, [0, 1, 0.5]),
        (partial(check_number, "Sink", "factor"), [-1, 0.0, 7]),
        (FLAG, [True, False]),
        (partial(FLAG, optional=True), [None]),
        (CHOICE, ["fail", "drop", None]),
        (NAME, ["orders"]),
        (partial(NAME, optional=True), [None]),
        (MAPPING, [None, {}, {"a": 1}]),
        (FUNCTION, [len, lambda it: it, int]),
        (partial(FUNCTION, returns=False), [print, forgetful]),
        (EITHER, ["json", len]),
        (partial(FUNCTION, arguments="key, row"), [lambda key, row: row, lambda *all_of_them: all_of_them]),
    ],
    ids=lambda it: None,
)
def test_good_values_pass(check: Callable[[Any], None], values: list[Any]) -> None:
    for value in values:
        check(value)


def test_names_are_returned_as_a_tuple() -> None:
    assert NAMES(["id", "day"]) == NAMES(iter(["id", "day"])) == ("id", "day")
    assert NAMES([]) == ()


def test_durations_are_returned_as_timedeltas_or_seconds() -> None:
    assert TIMEOUT("1.5m") == TIMEOUT(90) == TIMEOUT(Fraction(90)) == timedelta(seconds=90)
    assert TIMEOUT(0, may_be_zero=True) == timedelta(0)
    assert checked_seconds("Sink", "timeout", "100ms") == 0.1


def test_lengths_are_returned_in_the_unit_of_the_timestamps() -> None:
    assert [LENGTH(it) for it in ("5 min", 300, HUGE, Decimal(3))] == [timedelta(minutes=5), 300, HUGE, 3]
    assert [LENGTH(it, may_be_zero=True) for it in (0, "0s")] == [0, timedelta(0)]
    assert LENGTH(-1, may_be_negative=True) == -1


def test_a_wait_may_be_any_number() -> None:
    assert checked_wait("why()", float("inf")) == float("inf")
    assert checked_wait("why()", "1 min") == 60
    with pytest.raises(GraphError, match=r"why\(\) timeout must be a time of zero or more, .*; got True"):
        checked_wait("why()", True)


def test_predicates_have_the_same_limits() -> None:
    assert [it for it in (1, 0, True, 1.0, "1", None) if is_whole_number(it)] == [1]
    assert [it for it in (0.5, -1, True, "1", HUGE, float("nan"), None) if is_number(it)] == [0.5, -1]


def test_numbers_of_numpy_are_no_whole_numbers_but_shares() -> None:
    numpy = pytest.importorskip("numpy")
    five = r"batch must be a whole number, at least 1; got np\.int64\(5\); convert it with int\(\)"
    with pytest.raises(GraphError, match=five):
        WHOLE(numpy.int64(5))
    SHARE(numpy.float64(0.5))
    assert not is_whole_number(numpy.int64(1))
