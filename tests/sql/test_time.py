"""Time in SQL: which column is a time attribute, which rows are late, and what is refused instead of being wrong."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.sql.text import SqlError
from malflow.testing import PAUSE, run_sql

TABLES = """
CREATE TABLE l (x INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('url' = 'kafka://l');
CREATE TABLE r (x INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('url' = 'kafka://r');
CREATE TABLE fine (x INT, v INT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts) WITH ('url' = 'kafka://fine');
CREATE TABLE plain (x INT, v INT, ts TIMESTAMP(3)) WITH ('url' = 'kafka://plain');
CREATE TABLE inner_ (x INT, v INT, ts TIMESTAMP(3));
CREATE TABLE fine_inner (x INT, v INT, ts TIMESTAMP(6));
"""


def row(x: Any, v: Any, second: float) -> tuple[Any, ...]:
    """Return a row."""
    return x, v, f"2026-03-01 00:00:{second:06.3f}"


def result_of(text: str, columns: str, query: str, workers: int = 1, **tables: Any) -> list[tuple[Any, ...]]:
    """Return the sorted rows of a query, after statements over the tables; times as seconds."""
    text = f"{TABLES} CREATE TABLE o ({columns}) WITH ('url' = 'kafka://o'); {text}; INSERT INTO o {query}"
    found = run_sql(text, tables, parallelism=workers)["o"]
    return sorted((tuple(getattr(it, "second", it) for it in one.values()) for one in found), key=repr)


def faults_of(text: str) -> list[str]:
    """Return the faults of statements over the tables, without their places."""
    with pytest.raises(SqlError) as caught:
        run_sql(
            f"{TABLES} CREATE TABLE o (a INT, b INT) WITH ('url' = 'kafka://o'); {text}",
            dict.fromkeys(("l", "r", "fine", "plain"), ()),
        )
    return [it.message for it in caught.value.faults]


def tumble(table: str, seconds: int = 10, columns: str = "window_start, COUNT(*)") -> str:
    """Return a query of windows over the column `ts`."""
    size = f"INTERVAL '{seconds}' SECOND"
    return (
        f"SELECT {columns} FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), {size})) GROUP BY window_start, window_end"
    )


NO_TIME = "'ts' is not a time attribute; a column with WATERMARK FOR is one"


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE VIEW v AS SELECT * FROM l UNION ALL SELECT * FROM fine; INSERT INTO o {tumble('v')}",
        f"INSERT INTO fine_inner SELECT * FROM l; INSERT INTO o {tumble('fine_inner')}",
        f"CREATE VIEW v AS SELECT * FROM l UNION ALL SELECT * FROM plain; INSERT INTO o {tumble('v')}",
        "CREATE VIEW v AS SELECT ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY "
        "v) AS n FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '4' SECOND))) WHERE n = 1; "
        f"INSERT INTO o {tumble('v')}",
        "CREATE VIEW v AS SELECT l.ts FROM l JOIN r ON l.x = r.x AND r.ts BETWEEN l.ts - INTERVAL '1' SECOND AND l.ts "
        f"+ INTERVAL '1' SECOND; INSERT INTO o {tumble('v')}",
    ],
)
def test_a_column_that_is_not_the_time_of_its_rows_is_no_time_attribute(text: str) -> None:
    (fault,) = faults_of(text)
    assert fault.startswith(NO_TIME)


def test_rows_without_the_time_that_a_view_reads_are_refused() -> None:
    text = f"""INSERT INTO inner_ SELECT * FROM l; CREATE VIEW v AS {tumble("inner_")};
    INSERT INTO inner_ SELECT * FROM plain"""
    assert faults_of(text) == [
        "'inner_' is read as rows with the time attribute 'ts', and these have none; INSERT them before"
    ]


def test_a_second_watermark_is_refused() -> None:
    text = "CREATE TABLE t (a TIMESTAMP(3), b TIMESTAMP(6), WATERMARK FOR a AS a, WATERMARK FOR b AS b)"
    assert faults_of(text) == ["a table has one watermark; remove this one"]


def test_rows_without_time_are_united_with_late_ones() -> None:
    rows = [row(1, 0, 1), PAUSE, row(2, 0, 30), PAUSE, row(3, 0, 1)]
    query = "SELECT x, v FROM l UNION ALL SELECT x, v FROM plain"
    assert result_of("", "x INT, v INT", query, l=rows, plain=[row(4, 0, 1)]) == [(1, 0), (2, 0), (3, 0), (4, 0)]


WINDOWED = "(SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND)))"
SAME = "a.x = b.x AND a.window_start = b.window_start AND a.window_end = b.window_end"


@pytest.mark.parametrize("workers", [1, 3])
def test_other_conditions_of_a_window_join_count(workers: int) -> None:
    query = f"SELECT a.v, b.v FROM {WINDOWED.format('l')} a JOIN {WINDOWED.format('r')} b ON {SAME} AND a.ts < b.ts"
    left, right = [row(1, 1, 1), row(1, 2, 5)], [row(1, 3, 3), row(1, 4, 5)]
    assert result_of("", "v INT, w INT", query, workers, l=left, r=right) == [(1, 3), (1, 4)]


def test_one_bound_of_a_window_is_a_condition_of_a_join_in_time() -> None:
    query = f"""SELECT a.v, b.v FROM {WINDOWED.format("l")} a JOIN {WINDOWED.format("r")} b ON a.x = b.x
    AND a.window_start = b.window_start AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"""
    left, right = [row(1, 1, 1), row(1, 2, 8)], [row(1, 3, 3), row(1, 4, 11)]
    assert result_of("", "v INT, w INT", query, l=left, r=right) == [(1, 3)]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_of_windows_that_only_end_together_are_not_joined(workers: int) -> None:
    views = [
        f"CREATE VIEW {name} AS SELECT window_start, window_end, x, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE {table}, "
        f"DESCRIPTOR(ts), INTERVAL '{size}' SECOND)) GROUP BY window_start, window_end, x"
        for name, table, size in (("a", "l", 2), ("b", "r", 4))
    ]
    query = f"SELECT a.n, b.n FROM a JOIN b ON {SAME}"
    assert result_of("; ".join(views), "n BIGINT, m BIGINT", query, workers, l=[row(1, 1, 3)], r=[row(1, 2, 3)]) == []


def test_a_window_that_an_outer_join_may_lack_is_no_group() -> None:
    text = f"""INSERT INTO o SELECT 1, COUNT(*) FROM (SELECT b.window_start, b.window_end FROM {WINDOWED.format("l")} a
    LEFT JOIN {WINDOWED.format("r")} b ON {SAME}) GROUP BY window_start, window_end"""
    (fault,) = faults_of(text)
    assert "GROUP BY without a window is not supported" in fault
