"""Functions, table functions and aggregators of Python in SQL: their types, their NULLs, and their failures."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from malflow.testing import assert_exactly_once, run_sql, sql_dataflow

TEXTS = [(1, "a bb"), (2, None), (3, "")]


class Word(NamedTuple):
    word: str
    size: int | None


@dataclass
class Plain:
    word: str
    size: int | None


def pairs(text: str) -> Iterator[tuple[str, int | None]]:
    return ((it, len(it)) for it in text.split())


def named(text: str) -> Iterator[Word]:
    for it in text.split():
        yield Word(it, len(it))


def plain(text: str) -> Iterator[Plain]:
    for it in text.split():
        yield Plain(it, len(it))


class Typed(TypedDict):
    word: str
    size: int | None


def typed(text: str) -> Iterator[Typed]:
    for it in text.split():
        yield {"size": len(it), "word": it}


def count_up(count: int, step: int = 1) -> Iterator[int]:
    yield from range(0, count * step, step)


def wrong_later(count: int) -> Iterator[int]:
    yield count
    yield "x"  # type: ignore[misc]  # on purpose


def no_iterator(count: int) -> Iterator[int]:
    return count  # type: ignore[return-value]  # on purpose


def broken(number: int) -> int:
    return {2: 1}[number]


def failing(number: int) -> Iterator[int]:
    yield number
    raise LookupError("no more")


def spread(numbers: list[int]) -> dict[str, int]:
    return {"least": min(numbers), "greatest": max(numbers)}


class Longest(agg.Aggregator[str, int, int]):
    """The length of the longest text."""

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: str, timestamp: Any) -> int:
        return max(acc, len(value))

    def merge(self, one: int, other: int) -> int:
        return max(one, other)

    def result(self, acc: int) -> int:
        return acc


class Weighted(agg.Aggregator[tuple[float, int], tuple[float, int], float]):
    """The mean of numbers by their weights."""

    def create(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, acc: tuple[float, int], value: tuple[float, int], timestamp: Any) -> tuple[float, int]:
        return acc[0] + value[0] * value[1], acc[1] + value[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]

    def result(self, acc: tuple[float, int]) -> float:
        return acc[0] / acc[1]


FUNCTIONS = (pairs, named, plain, typed, count_up, wrong_later, no_iterator, broken, failing, spread)


def rows_of(text: str, values: Any = TEXTS, schema: str = "id BIGINT, city STRING") -> list[Any]:
    """Return the rows of a query over a table `t` of some values, with all functions and aggregators of this file."""
    sink = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        stream = provider.new_stream().source("values", SingleIteratorSource(values))
        is_timed = "ts TIMESTAMP" in schema
        if is_timed:
            stream = stream.event_time("times", lambda message: message.value[-1], out_of_orderness=0)
        sql.table("t", stream, schema, time="ts" if is_timed else None)
        for it in FUNCTIONS:
            sql.function(it)
        sql.aggregator("longest", Longest())
        sql.aggregator("weighted", Weighted())
        sql.aggregator("half", agg.quantile(None, 0.5), takes="DOUBLE")
        sql.aggregator("greatest_two", agg.largest(2), returns="ARRAY<BIGINT>")
        sql.aggregator("newest", agg.last(), returns=datetime)
        sql.aggregator("lying", agg.last(), returns=int)
        sql.query("q", text).rows(tuple).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return sink.values


WORDS = [(1, "a", 1), (1, "bb", 2)]


@pytest.mark.parametrize("function", ["pairs", "named", "plain", "typed"])
@pytest.mark.parametrize(
    ("join", "more"),
    [
        (", LATERAL TABLE({}(city)) AS w(word, n)", []),
        ("CROSS JOIN LATERAL TABLE({}(city)) w(word, n)", []),
        ("JOIN LATERAL TABLE({}(city)) AS w(word, n) ON TRUE", []),
        ("LEFT JOIN LATERAL TABLE({}(city)) AS w(word, n) ON TRUE", [(2, None, None), (3, None, None)]),
    ],
)
def test_a_table_function_adds_its_rows(function: str, join: str, more: list[Any]) -> None:
    assert rows_of(f"SELECT id, word, n FROM t {join.format(function)}") == [*WORDS, *more]


def test_columns_have_the_names_of_fields() -> None:
    assert rows_of("SELECT t.id, word, size FROM t, LATERAL TABLE(Named(t.city))") == WORDS
    assert rows_of("SELECT f1, f0 FROM t, LATERAL TABLE(PAIRS(city)) AS p WHERE p.f1 > 1") == [(2, "bb")]


def test_a_table_function_needs_no_table() -> None:
    assert rows_of("SELECT * FROM TABLE(count_up(3))") == [(0,), (1,), (2,)]
    assert rows_of("SELECT n + m FROM TABLE(count_up(2)) AS a(n), LATERAL TABLE(count_up(2, 10)) AS b(m)") == [
        *[(0,), (10,), (1,), (11,)]
    ]


def test_collections_are_lists_and_dicts() -> None:
    assert rows_of("SELECT spread(ARRAY[3, id])['greatest'] FROM t") == [(3,), (3,), (3,)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "SELECT f0 FROM t, LATERAL TABLE(wrong_later(id))",
            "a row of function 'wrong_later': 'x' is not of type BIGI",
        ),
        (
            "SELECT f0 FROM t, LATERAL TABLE(no_iterator(id))",
            "'no_iterator' failed: TypeError: 'int' object is not ite",
        ),
        ("SELECT 1 + broken(id) FROM t", "function 'broken' failed: KeyError: 1 in 'broken(id)' (q:1:12)"),
        ("SELECT id FROM t WHERE broken(id) > 0", "function 'broken' failed: KeyError: 1 in 'broken(id)' (q:1:24)"),
        (
            "SELECT f0 FROM t, LATERAL TABLE(failing(id))",
            "'failing' failed: LookupError: no more in 'failing(id)' (q:1:",
        ),
    ],
)
@pytest.mark.fault("U6")
def test_a_function_that_fails_is_named_with_its_place(query: str, words: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(words)) as caught:
        rows_of(query)
    assert caught.value.__cause__ is not None
    if "failed: " in words:
        assert type(caught.value.__cause__.__cause__).__name__ in words


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELECT pairs(city) FROM t", "pairs is a table function; write LATERAL TABLE(pairs(city)) in FROM"),
        ("SELECT 1 FROM t, LATERAL TABLE(broken(id))", "broken is not a table function; one is a generator of Python"),
        ("SELECT 1 FROM t, LATERAL TABLE(SPLIT(city, ','))", "SPLIT is not a table function; write UNNEST(SPLIT(city,"),
        (
            "SELECT 1 FROM t, LATERAL TABLE(pairs(id))",
            "function 'pairs' takes STRING, not BIGINT; CAST it",
        ),
        ("SELECT broken(1.5) FROM t", "function 'broken' takes BIGINT, not DECIMAL(2, 1); CAST it"),
        ("SELECT 1 FROM TABLE(count_up(1, 2, 3))", "function 'count_up' takes 1 to 2 arguments, got 3"),
        ("SELECT 1 FROM t LEFT JOIN LATERAL TABLE(count_up(id)) AS c(n) ON n > 1", "write ON TRUE, and filter"),
        ("SELECT 1 FROM t, LATERAL TABLE(count_up(id)) AS c(n, m)", "2 names for 1 column"),
        ("SELECT id FROM t WHERE longest(city) > 1", "LONGEST is an aggregate, which is not possible in WHERE"),
    ],
)
def test_calls_that_do_not_fit_are_refused(query: str, fault: str) -> None:
    with pytest.raises(SqlError, match=re.escape(fault)):
        rows_of(query)


TIMED = [(at, at % 3 or None, "x" * at, at * 1_000) for at in range(8)]
SCHEMA = "id BIGINT, n INT, s STRING, ts TIMESTAMP(3)"
IN_WINDOWS = "FROM TABLE({}) GROUP BY window_start, window_end"
TUMBLED = IN_WINDOWS.format("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND)")
HOPPED = IN_WINDOWS.format("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '8' SECOND)")
ONE_SESSION = IN_WINDOWS.format("SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND)")


@pytest.mark.parametrize(
    ("select", "windows", "expected"),
    [
        ("longest(s), COUNT(*)", TUMBLED, [(3, 4), (7, 4)]),
        ("LONGEST(s) FILTER (WHERE id < 2)", TUMBLED, [(1,), (None,)]),
        ("longest(s)", HOPPED, [(3,), (7,), (7,)]),
        ("longest(s), half(n)", ONE_SESSION, [(7, 1.0)]),
        ("half(n) + 1, greatest_two(n)", TUMBLED, [(2.0, [2, 1]), (2.0, [2, 1])]),
        ("weighted(n, id)", TUMBLED, [(5 / 3,), (21 / 16,)]),
        ("newest(ts) = TIMESTAMP '1970-01-01 00:00:03'", TUMBLED, [(True,), (False,)]),
        ("weighted(CAST(NULL AS DOUBLE), id)", TUMBLED, [(None,), (None,)]),
        ("weighted(id, n)", TUMBLED, [(5 / 3,), (21 / 4,)]),
    ],
)
def test_an_aggregator_skips_null(select: str, windows: str, expected: list[Any]) -> None:
    found = rows_of(f"SELECT {select} {windows}", TIMED, SCHEMA)
    assert [tuple(pytest.approx(it) for it in row) for row in expected] == found


@pytest.mark.parametrize(
    ("select", "fault"),
    [
        ("longest(DISTINCT s)", "longest is an aggregator of Python, which has no DISTINCT"),
        ("longest(id)", "aggregator 'longest' takes STRING, not BIGINT; CAST it"),
        ("longest(*)", "LONGEST takes a column"),
        ("weighted(n)", "aggregator 'weighted' takes 2 arguments, got 1"),
        ("greatest_two()", "aggregator 'greatest_two' takes 1 argument, got 0"),
    ],
)
def test_an_aggregator_that_does_not_fit_is_refused(select: str, fault: str) -> None:
    with pytest.raises(SqlError, match=re.escape(fault)):
        rows_of(f"SELECT {select} {TUMBLED}", TIMED, SCHEMA)


def test_an_aggregator_that_returns_another_type_is_named() -> None:
    with pytest.raises(OperatorError, match="the result of aggregator 'lying': 'xxx' is not of type BIGINT"):
        rows_of(f"SELECT lying(s) {TUMBLED}", TIMED, SCHEMA)


class Identity:
    """An object that can be called."""

    def __call__(self, number: int) -> int:
        return number


async def later(number: int) -> int:
    return number


def untold(number: int):  # type: ignore[no-untyped-def]
    yield number


def unknown(number: NoSuchType) -> int:  # type: ignore[name-defined]  # noqa: F821 - on purpose
    return int(number)


def pair(number: int) -> tuple[int, str]:
    return number, ""


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda sql: sql.function(later), "function 'later' is asynchronous"),
        (lambda sql: sql.function(untold), "function 'untold' is a generator; write the type of its rows"),
        (lambda sql: sql.function(unknown), "the annotations of function 'unknown' can't be read: NameError"),
        (
            lambda sql: sql.function(pair),
            r"the result of function 'pair' is tuple\[int, str\]; types with a column are",
        ),
        (lambda sql: sql.function(max), "the annotations of function 'max' can't be read"),
        (lambda sql: sql.function(3), r"sql\.function needs a function; got 3"),
        (lambda sql: sql.function(functools.partial(broken)), "has no name; write name='dear', for example"),
        (lambda sql: sql.function(broken, "Count"), "SQL has COUNT itself; use another name"),
        (lambda sql: sql.function(broken, "a b"), "'a b' is not a name that SQL writes without quotes"),
        (
            lambda sql: [sql.function(it, "twice") for it in (broken, Identity())],
            "there is a function 'twice' already",
        ),
        (lambda sql: sql.aggregator("x", agg.sum()), "aggregator 'x' needs the type of its result; write returns="),
        (lambda sql: sql.aggregator("x", agg.sum), r"is not an aggregator; call it: write agg\.sum"),
        (lambda sql: sql.aggregator("x", agg.sum(), returns="DOUBEL"), "expected a type; did you mean DOUBLE"),
        (lambda sql: sql.aggregator("x", agg.sum(), returns="INT INT"), "expected one type"),
        (lambda sql: sql.aggregator("x", agg.sum(), returns=set), "types with a column are bool, int"),
    ],
)
def test_functions_and_aggregators_that_sql_can_not_call_are_refused(register: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        SingleThreadRuntime(lambda provider: register(provider.sql("s"))).execute()


OF_FILE = f"""
CREATE TABLE bids (item BIGINT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'kafka://broker/b');
CREATE FUNCTION longest AS '{__name__}:Longest' LANGUAGE PYTHON;
CREATE FUNCTION Words AS '{__name__}.pairs';
CREATE TABLE o (item BIGINT, n BIGINT) WITH ('url' = 'kafka://broker/o');
INSERT INTO o SELECT item, longest(w) FROM (SELECT window_start, window_end, item, w FROM
  TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND)), LATERAL TABLE(WORDS(s)) AS x(w, n))
  GROUP BY window_start, window_end, item;
"""


def bids(count: int) -> list[tuple[int, str | None, str]]:
    """Return rows with texts."""
    return [(at % 2, "ab cde" if at % 3 else None, f"2026-03-01 00:00:{at:02}") for at in range(count)]


def test_a_file_of_sql_names_generators_and_aggregators() -> None:
    assert run_sql(OF_FILE, {"bids": bids(3)}) == {"o": [{"item": 1, "n": 3}, {"item": 0, "n": 3}]}


@pytest.mark.slow
def test_functions_and_aggregators_survive_crashes_and_rescales() -> None:
    assert_exactly_once(sql_dataflow(OF_FILE), {"sql.bids": bids(30)}, max_examples=10)


@pytest.mark.parametrize("target", ["no.such:f", f"{__name__}:later", f"{__name__}:EACH", "nothing"])
def test_a_function_that_can_not_be_made_is_told_once(target: str) -> None:
    text = f"""CREATE TABLE o (x BIGINT) WITH ('url' = 'o.jsonl'); CREATE FUNCTION f AS '{target}';
    INSERT INTO o SELECT f(1) FROM TABLE(f(2)); INSERT INTO o SELECT F(3); SHOW USER FUNCTIONS;"""
    told: list[str] = []

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        with pytest.raises(SqlError) as caught:
            sql.run(text, tell=told.append)
        assert len(caught.value.faults) == 1
        sql.function(broken, "f")
        provider.new_stream().source("one", SingleIteratorSource([1])).sink("out", VecSink())

    SingleThreadRuntime(build).execute()
    assert told == ["none"]
