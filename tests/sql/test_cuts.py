"""Cuts into batches, parallelism and the order of arrival within the bound change no result of a query over time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.testing import PAUSE, run_sql

TABLES = """
CREATE TABLE l (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' SECOND)
  WITH ('url' = 'kafka://l', 'late' = 'late_l');
CREATE TABLE r (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://r');
CREATE TABLE lost (k INT, v INT, ts TIMESTAMP(3)) WITH ('url' = 'kafka://lost');
"""
BOUND = 3

WINDOWS = st.sampled_from(
    [
        "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '4' SECOND)",
        "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '2' SECOND)",
        "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
        "CUMULATE(TABLE {}, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    ]
)
SESSION = "SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)"
HOW = st.sampled_from(["", "LEFT", "RIGHT", "FULL"])
TIMES = st.sampled_from([("1", "2"), ("0", "0"), ("-1", "3")])

Query = tuple[str, str]
"""The columns of a query, and its text."""


def group(window: str, table: str = "l", hint: str = "") -> Query:
    """Return the groups of a window."""
    return (
        "a TIMESTAMP(3), b TIMESTAMP(3), k INT, n BIGINT, s INT, m INT",
        f"SELECT {hint} window_start, window_end, k, COUNT(*), SUM(v), MAX(v) FROM TABLE({window.format(table)}) "
        "GROUP BY window_start, window_end, k",
    )


def first(window: str) -> Query:
    """Return the first rows of a window."""
    return (
        "a TIMESTAMP(3), k INT, v INT, n BIGINT",
        "SELECT window_start, k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
        f"ORDER BY v, ts, k) AS n FROM TABLE({window.format('l')})) WHERE n <= 2",
    )


def joined(window: str, how: str) -> Query:
    """Return a join in a window."""
    left, right = (f"(SELECT * FROM TABLE({window.format(it)}))" for it in ("l", "r"))
    return (
        "v INT, w INT, a TIMESTAMP(3)",
        f"SELECT a.v, b.v, COALESCE(a.window_end, b.window_end) FROM {left} a {how} JOIN {right} b ON a.k = b.k AND "
        "a.window_start = b.window_start AND a.window_end = b.window_end",
    )


def matched(window: str, test: str) -> Query:
    """Return the rows with a partner in their window, or without one."""
    left, right = (f"(SELECT * FROM TABLE({window.format(it)}))" for it in ("l", "r"))
    same = "a.window_start = window_start AND a.window_end = window_end"
    return ("k INT, v INT", f"SELECT a.k, a.v FROM {left} a WHERE a.k {test} (SELECT k FROM {right} WHERE {same})")


def near(how: str, times: tuple[str, str]) -> Query:
    """Return a join in time."""
    low, high = (f"l.ts + INTERVAL '{it}' SECOND" for it in times)
    return ("v INT, w INT", f"SELECT l.v, r.v FROM l {how} JOIN r ON l.k = r.k AND r.ts BETWEEN {low} AND {high}")


OF_ONE = st.one_of(
    st.builds(group, WINDOWS | st.just(SESSION), st.just("l"), st.sampled_from(["", "/*+ LATE('lost') */"])),
    st.builds(first, WINDOWS),
    st.just(("k INT, v INT, ts TIMESTAMP(3)", "SELECT * FROM late_l")),
    st.just(("v INT, a TIMESTAMP(3)", f"SELECT /*+ LATE('lost') */ v, window_start FROM TABLE({SESSION.format('l')})")),
)
COUNTED: Query = (
    "a BIGINT, k INT, s INT, f INT",
    "SELECT window_start, k, SUM(v), FIRST_VALUE(v) FROM TABLE(COUNTING(TABLE l PARTITION BY k, 3)) "
    "GROUP BY window_start, window_end, k",
)
OF_TWO = st.one_of(
    st.builds(group, WINDOWS | st.just(SESSION), st.just("both_sides")),
    st.builds(joined, WINDOWS, HOW),
    st.builds(matched, WINDOWS, st.sampled_from(["IN", "NOT IN"])),
    st.builds(near, HOW, TIMES),
)
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 20)), max_size=14)
CUTS = st.lists(st.booleans(), min_size=14, max_size=14)
JITTER = st.lists(st.integers(0, BOUND - 1), min_size=14, max_size=14)


def given_rows(rows: list[tuple[int, int, int]], cuts: list[bool]) -> list[Any]:
    """Return rows with the ends of ticks between them."""
    found: list[Any] = []
    for (key, value, second), is_cut in zip(rows, cuts, strict=False):
        found += [(key, value, f"2026-03-01 00:00:{second:02}"), *([PAUSE] if is_cut else [])]
    return found


def in_bound(rows: list[tuple[int, int, int]], jitter: list[int]) -> list[tuple[int, int, int]]:
    """Return rows in an order in which none is late: each comes before rows that are further than the bound."""
    late = [second + by for (_, _, second), by in zip(rows, jitter, strict=False)]
    return [it for _, _, it in sorted(zip(late, range(len(rows)), rows, strict=True))]


def results(query: Query, workers: int, **tables: list[Any]) -> dict[str, list[str]]:
    """Return the sorted rows of a query, and of the table of lost rows."""
    columns, text = query
    view = "CREATE VIEW both_sides AS SELECT * FROM l UNION ALL SELECT k, v + 10, ts FROM r"
    made = f"{TABLES} {view}; CREATE TABLE o ({columns}) WITH ('url' = 'kafka://o'); INSERT INTO o {text}"
    found = run_sql(made, tables, parallelism=workers)
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


@given(OF_ONE, ROWS, CUTS, CUTS, st.integers(1, 3))
def test_cuts_and_parallelism_change_nothing_with_late_rows(
    query: Query, rows: list[Any], cuts: list[bool], others: list[bool], workers: int
) -> None:
    expected = results(query, 1, l=given_rows(rows, cuts))
    assert results(query, workers, l=given_rows(rows, others)) == expected


@given(ROWS, CUTS, CUTS, st.integers(1, 3))
def test_cuts_and_parallelism_change_nothing_where_rows_are_counted(
    rows: list[Any], cuts: list[bool], others: list[bool], workers: int
) -> None:
    expected = results(COUNTED, 1, l=given_rows(rows, cuts))
    assert results(COUNTED, workers, l=given_rows(rows, others)) == expected


@given(OF_ONE | OF_TWO, ROWS, ROWS, JITTER, JITTER, CUTS, st.integers(1, 3))
def test_the_order_of_arrival_within_the_bound_changes_nothing(
    query: Query,
    left: list[Any],
    right: list[Any],
    jitter: list[int],
    others: list[int],
    cuts: list[bool],
    workers: int,
) -> None:
    reads_two = "both_sides" in query[1] or " r " in query[1] or "TABLE r," in query[1]

    def found(jitter: list[int], cuts: list[bool], workers: int) -> dict[str, list[str]]:
        sides = {"l": left, **({"r": right} if reads_two else {})}
        return results(
            query, workers, **{name: given_rows(in_bound(rows, jitter), cuts) for name, rows in sides.items()}
        )

    assert found(others, cuts, workers) == found(jitter, [True] * len(cuts), 1)
