"""Time in SQL: which column is a time attribute, which rows are late, and what is refused instead of being wrong."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import SingleThreadRuntime
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


NO_TIME = "'ts' is not a time attribute; WATERMARK FOR makes one"


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


NUMBERS = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n"
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


# Late rows


LATE = (
    """CREATE TABLE e (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'kafka://e', 'late' = 'behind');"""
)
LATELY = [row(0, it, second)[1:] for it, second in ((1, 1), (2, 5), (3, 5), (4, 2), (5, 12), (6, 11))]
"""Rows 3 (at the watermark), 4 and 6 are late; the window of 6 is still open."""


ON_TIME = "CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts)"


def apart(rows: list[Any]) -> list[Any]:
    """Return rows that come in ticks of their own."""
    return [part for it in rows for part in (it, PAUSE)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT v FROM behind", [3, 4, 6]),
        ("SELECT v FROM e WHERE ts <= CURRENT_WATERMARK(ts)", [3, 4, 6]),
        ("SELECT v FROM e WHERE ts <= CURRENT_WATERMARK(ts) AND v < 5", [3, 4]),
        (f"SELECT v FROM e WHERE {ON_TIME}", [1, 2, 5]),
        (f"SELECT v FROM e WHERE ({ON_TIME}) AND ts <= CURRENT_WATERMARK(ts)", []),
        ("SELECT v FROM e", [1, 2, 3, 4, 5, 6]),
        ("SELECT v FROM behind UNION ALL SELECT 9 FROM (VALUES (1)) AS t(x)", [3, 4, 6, 9]),
    ],
)
def test_late_rows_are_read(query: str, expected: list[int], workers: int) -> None:
    found = result_of(LATE, "v INT", query, workers, e=apart(LATELY))
    assert sorted(it for (it,) in found) == expected


@pytest.mark.fault("U7")
def test_late_rows_are_in_their_table_and_in_windows_that_are_open() -> None:
    late = f"{LATE} CREATE TABLE p (v INT) WITH ('url' = 'kafka://p'); INSERT INTO p SELECT v FROM behind"
    text = f"{TABLES} {late}; CREATE TABLE o (a TIMESTAMP(3), n BIGINT) WITH ('url' = 'o'); INSERT INTO o {tumble('e')}"
    found = run_sql(text, {"e": apart(LATELY)})
    assert sorted(it["v"] for it in found["p"]) == [3, 4, 6]
    assert sorted((it["a"].second, it["n"]) for it in found["o"]) == [(0, 4), (10, 2)]


@pytest.mark.parametrize("workers", [1, 3])
def test_late_rows_have_a_watermark_of_their_own_in_another_table(workers: int) -> None:
    text = f"""{LATE} CREATE TABLE again (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR);
    INSERT INTO again SELECT * FROM behind"""
    expected = [(0, 2), (10, 1)]
    assert result_of(text, "a TIMESTAMP(3), n BIGINT", tumble("again"), workers, e=apart(LATELY)) == expected


WITHIN = "'url' = 'kafka://t'"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{LATE} INSERT INTO o {tumble('behind')}", "'ts' is not a time attribute; WATERMARK FOR makes one"),
        (f"{LATE} INSERT INTO behind SELECT v, ts FROM e", "'behind' is the late rows of e: it can't be written to"),
        (f"{LATE} CREATE TABLE behind (x INT)", "'behind' exists already"),
        (f"CREATE TABLE t (x INT) WITH ({WITHIN}, 'late' = 'b')", "'late' is about the watermark of a table; write"),
        ("SELECT v, CURRENT_WATERMARK(ts) FROM l", "no function CURRENT_WATERMARK; WHERE ts <= CURRENT_WATERMARK(ts)"),
        ("SELECT v FROM l WHERE ts > CURRENT_WATERMARK(ts)", "this differs among rows on time, or among late ones"),
        ("SELECT v FROM l WHERE ts < CURRENT_WATERMARK(ts)", "this differs among rows on time, or among late ones"),
        ("SELECT v FROM l WHERE v < 3 OR ts <= CURRENT_WATERMARK(ts)", "CURRENT_WATERMARK is compared with its column"),
        ("SELECT v FROM plain WHERE ts <= CURRENT_WATERMARK(ts)", "CURRENT_WATERMARK takes the time attribute"),
    ],
)
def test_late_rows_that_are_not_there_are_refused(text: str, fault: str) -> None:
    text = text if "INTO" in text or "CREATE" in text else f"INSERT INTO o SELECT v, v FROM ({text})"
    (found,) = faults_of(text)
    assert found.startswith(fault)


# Watermarks of tables that INSERTs fill, and the order of statements


@pytest.mark.parametrize("workers", [1, 3])
def test_statements_of_tables_with_a_watermark_stand_in_any_order(workers: int) -> None:
    text = f"""CREATE TABLE both_ (x INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK());
    CREATE VIEW counts AS {tumble("both_", 10, "window_start, COUNT(*) AS n")};
    CREATE TABLE p (a TIMESTAMP(3), n BIGINT) WITH ('url' = 'kafka://p'); INSERT INTO p SELECT * FROM counts;
    INSERT INTO both_ SELECT * FROM l; INSERT INTO both_ SELECT * FROM r"""
    rows = {"l": [row(1, 1, 1), row(1, 1, 31)], "r": [row(1, 1, 2), row(1, 1, 32)]}
    expected = [(0, 2), (30, 2)]
    assert result_of(text, "a TIMESTAMP(3), n BIGINT", "SELECT * FROM counts", workers, **rows) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("INSERT INTO t SELECT * FROM plain", "'t' needs rows with a time attribute in the column 'ts'"),
        ("INSERT INTO t SELECT * FROM t", "'t' reads itself; use a process function in Python"),
        (
            "CREATE TABLE u (x INT, v INT, ts TIMESTAMP(3)); CREATE VIEW w AS SELECT * FROM t; INSERT INTO u "
            "SELECT * FROM w; INSERT INTO t SELECT * FROM u",
            "'t' reads itself; use a process function in Python",
        ),
        (
            f"CREATE TABLE s (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH ({WITHIN})",
            "a source has no watermark of its own; write ts - INTERVAL '5' SECOND",
        ),
    ],
)
def test_tables_without_a_time_of_their_rows_are_refused(text: str, fault: str) -> None:
    table = "CREATE TABLE t (x INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK());"
    (found,) = faults_of(f"{table} {text}")
    assert found.startswith(fault)


def test_rows_of_several_sources_get_no_new_watermark() -> None:
    text = f"""CREATE TABLE t (x INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
    INSERT INTO t SELECT * FROM plain; INSERT INTO t SELECT * FROM l; INSERT INTO o {tumble("t", 10, "1, 2")}"""
    (found,) = faults_of(text)
    assert found.startswith("operator 'sql.t.watermark' would get the records of source 'sql.plain' in another order")
    assert found.endswith("write SOURCE_WATERMARK() for the watermark that the rows have already")


# Options


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("'scan.watermark.idle-timeout' = '5'", "'scan.watermark.idle-timeout' is a span of time with its unit"),
        ("'scan.watermark.idle-timeot' = '5 s'", "no option 'scan.watermark.idle-timeot'; did you mean 'scan.water"),
        ("'idle-timeout' = '5 s'", "no option 'idle-timeout'; did you mean 'scan.watermark.idle-timeout'?"),
        ("'watermark.evry' = '5 s'", "no option 'watermark.evry'; did you mean 'watermark.every'?"),
        ("'watermark.every' = '1 us'", "'watermark.every' is a span of time with its unit"),
        ("'watermark.every' = '1500 micros'", "'watermark.every' is a multiple of the units of TIMESTAMP(3)"),
        ("'scan.watermark.emit.strategy' = 'on-event'", "there is no 'scan.watermark.emit.strategy': each row may"),
        ("'scan.watermark.alignment.group' = 'a'", "there is no 'scan.watermark.alignment.group': sources do not"),
        ("'late-rows' = 'a'", "no option 'late-rows'; "),
    ],
)
def test_options_about_watermarks_are_checked(option: str, fault: str) -> None:
    text = f"CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({WITHIN}, {option})"
    (found,) = faults_of(text)
    assert found.startswith(fault)


def behind(rows: list[Any], options: str) -> list[int]:
    """Return the late rows of a table with some options of its watermark."""
    text = f"""CREATE TABLE e (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'e', 'late' = 'b',
    {options});
    CREATE TABLE o (v INT) WITH ('url' = 'o'); INSERT INTO o SELECT v FROM b"""
    return [it["v"] for it in run_sql(text, {"e": rows})["o"]]


def test_a_source_that_is_idle_lets_time_advance() -> None:
    rows = [row(0, 1, 1)[1:], PAUSE(60), PAUSE(30), row(0, 2, 30)[1:], row(0, 3, 40)[1:]]
    assert behind(rows, "'scan.watermark.idle-timeout' = '1 min'") == [2]
    assert behind(rows, "'scan.watermark.idle-timeout' = '0 s'") == []


def test_a_watermark_in_steps_is_rounded_down() -> None:
    rows = apart([row(0, 1, 12)[1:], row(0, 2, 11)[1:], row(0, 3, 9)[1:]])
    assert behind(rows, "'watermark.every' = '10 s'") == [3]


@pytest.mark.parametrize("digits", [0, 3])
def test_a_watermark_is_not_rounded_up(digits: int) -> None:
    text = f"""CREATE TABLE e (v INT, ts TIMESTAMP({digits}), WATERMARK FOR ts AS ts - INTERVAL '0.5' SECOND)
    WITH ('url' = 'e', 'late' = 'b'); CREATE TABLE o (v INT) WITH ('url' = 'o'); INSERT INTO o SELECT v FROM b"""
    rows = apart([(1, "2026-03-01 00:00:10"), (2, "2026-03-01 00:00:10"), (3, "2026-03-01 00:00:09")])
    assert run_sql(text, {"e": rows})["o"] == [{"v": 3}]


def test_a_row_at_the_watermark_is_late_and_one_after_it_is_not() -> None:
    text = """CREATE TABLE e (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('url' = 'e',
    'late' = 'b'); CREATE TABLE o (v INT) WITH ('url' = 'o'); INSERT INTO o SELECT v FROM b"""
    rows = apart([row(0, 1, 10)[1:], row(0, 2, 8)[1:], row(0, 3, 8.001)[1:]])
    assert run_sql(text, {"e": rows})["o"] == [{"v": 2}]


# Windows of so many rows


COUNTED = "v INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
COUNTS = """SELECT window_start, window_end, k, COUNT(*), SUM(v), FIRST_VALUE(v)
FROM TABLE(COUNTING(TABLE {} PARTITION BY k, 2)) GROUP BY window_start, window_end, k"""

COUNTING = "SELECT 1, 2 FROM TABLE(COUNTING(TABLE l PARTITION BY v, 2))"


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("pauses", [False, True])
def test_rows_are_counted_as_they_arrive(pauses: bool, workers: int) -> None:
    rows = [
        row(it, key, second)
        for it, key, second in ((1, 1, 9), (2, 1, 2), (4, 2, 9), (8, 1, 1), (16, 1, 30), (32, 1, 2))
    ]
    text = f"CREATE TABLE e ({COUNTED}) WITH ('url' = 'kafka://e'); CREATE VIEW w AS SELECT * FROM e WHERE v > 0"
    columns = "a BIGINT, b BIGINT, k INT, n BIGINT, s INT, f INT"
    found = result_of(text, columns, COUNTS.format("w"), workers, e=apart(rows) if pauses else rows)
    assert found == [(0, 2, 1, 2, 3, 1), (0, 2, 2, 1, 4, 4), (2, 4, 1, 2, 24, 8), (4, 6, 1, 1, 32, 32)]


def test_rows_without_a_partition_and_a_time_are_counted() -> None:
    query = """SELECT window_start, SUM(v) FILTER (WHERE x > 1) FROM TABLE(COUNTING(DATA => TABLE plain, SIZE => 3))
    GROUP BY window_start, window_end HAVING COUNT(*) = 3"""
    rows = [row(it, 2**it, 1) for it in range(7)]
    assert result_of("", "a BIGINT, s INT", query, plain=rows) == [(0, 4), (3, 56)]


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_of_windows_that_count_come_when_these_are_full(workers: int) -> None:
    query = "SELECT v, window_start, window_end FROM TABLE(COUNTING(TABLE plain PARTITION BY x, 2)) WHERE v > 1"
    rows = [row(1, 1, 1), row(1, 2, 1), row(2, 3, 1), row(1, 4, 1)]
    expected = [(2, 0, 2), (3, 0, 2), (4, 2, 4)]
    assert result_of("", "v INT, a BIGINT, b BIGINT", query, workers, plain=rows) == expected


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_of_sessions_are_joined_and_numbered(workers: int) -> None:
    rows = "(SELECT * FROM TABLE(SESSION(TABLE {} PARTITION BY x, DESCRIPTOR(ts), INTERVAL '3' SECOND)))"
    text = f"CREATE VIEW a AS SELECT * FROM {rows.format('l')}; CREATE VIEW b AS SELECT * FROM {rows.format('r')}"
    left, right = [row(1, 1, 1), row(1, 2, 3), row(1, 3, 9)], [row(1, 4, 1), row(1, 5, 3), row(1, 6, 8)]
    found = result_of(text, "v INT, w INT", f"SELECT a.v, b.v FROM a JOIN b ON {SAME}", workers, l=left, r=right)
    assert found == [(1, 4), (1, 5), (2, 4), (2, 5)]
    first = f"SELECT v, n FROM (SELECT v, {NUMBERS} FROM a) WHERE n = 1"
    assert result_of(text, "v INT, n BIGINT", first, workers, l=left) == [(1, 1), (3, 1)]


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        (f"{COUNTING} GROUP BY window_start, window_end, x", "the windows of COUNTING have a partition of their own"),
        (f"{COUNTING} GROUP BY window_end, v", "GROUP BY of a window needs window_start and window_end"),
        (f"{COUNTING} WHERE v > 1 GROUP BY window_start, window_end, v", "WHERE would leave windows of fewer rows"),
        (
            "SELECT 1 FROM TABLE(COUNTING(TABLE l, INTERVAL '1' SECOND)) GROUP BY window_start",
            "SIZE is a number of rows",
        ),
        (
            "SELECT 1 FROM TABLE(COUNTING(TABLE l, DESCRIPTOR(ts), 2)) GROUP BY window_start",
            "COUNTING takes DATA, SIZE",
        ),
        ("SELECT 1 FROM TABLE(COUNTING(TABLE l, 0)) GROUP BY window_start", "SIZE is a number of rows"),
        (f"{tumble('c')}", "'ts' is not a time attribute"),
    ],
)
def test_windows_of_rows_that_would_be_wrong_are_refused(query: str, fault: str) -> None:
    view = (
        "CREATE VIEW c AS SELECT window_start AS ts FROM TABLE(COUNTING(TABLE l, 2)) GROUP BY window_start, window_end;"
    )
    (found,) = faults_of(f"{view} INSERT INTO o {query}")
    assert found.startswith(fault)


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_on_time_are_joined_with_late_ones_in_open_windows(workers: int) -> None:
    windows = "(SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND)))"
    text = f"CREATE VIEW good AS SELECT * FROM l WHERE {ON_TIME}"
    query = f"SELECT a.v, b.v FROM {windows.format('good')} a LEFT JOIN {windows.format('r')} b ON {SAME}"
    left, right = [row(1, 1, 1), row(1, 2, 5), row(1, 3, 2)], [row(1, 4, 1), row(1, 5, 9), row(1, 6, 2)]
    expected = [(left, right) for left in (1, 2) for right in (4, 5, 6)]
    assert result_of(text, "v INT, w INT", query, workers, l=apart(left), r=apart(right)) == expected


# Late rows that operators drop


LOST = """CREATE TABLE lost (x INT, v INT, ts TIMESTAMP(3)) WITH ('url' = 'kafka://lost');
CREATE TABLE lost_r (x INT, v INT, ts TIMESTAMP(3)) WITH ('url' = 'kafka://lost_r');"""
DROPPED = apart([row(1, 1, 1), row(1, 2, 5), row(1, 3, 20), row(1, 4, 3), row(1, 5, 19), row(1, 6, 18)])
"""Row 4 is too late for its window of 10 seconds, row 6 is late and in time for it."""
OF_TEN = "FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '10' SECOND))"


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("query", "lost", "lost_r"),
    [
        (tumble("l", columns="/*+ LATE('lost') */ COUNT(*), SUM(v)"), [4], []),
        (f"SELECT /*+ LATE('lost') */ n, v FROM (SELECT x, v, {NUMBERS}, ts {OF_TEN}) WHERE n <= 2", [4], []),
        (
            "SELECT /*+ LATE('l' = 'lost', 'b' = 'lost_r') */ l.v, b.v FROM l JOIN r b ON l.x = b.x AND l.ts = b.ts",
            [4, 6],
            [4, 6],
        ),
    ],
)
def test_late_rows_that_an_operator_drops_are_written(
    query: str, lost: list[int], lost_r: list[int], workers: int
) -> None:
    text = f"{TABLES} {LOST} CREATE TABLE o (n BIGINT, v INT) WITH ('url' = 'kafka://o'); INSERT INTO o {query}"
    found = run_sql(text, {"l": DROPPED, **({"r": DROPPED} if lost_r else {})}, parallelism=workers)
    assert sorted(it["v"] for it in found["lost"]) == lost
    assert sorted(it["v"] for it in found.get("lost_r", ())) == lost_r


@pytest.mark.parametrize(
    ("hint", "query", "fault"),
    [
        ("LATE('lots')", tumble("l"), "no table 'lots'; did you mean 'lost'?"),
        ("LATE", tumble("l"), "LATE has a table for the late rows of each input; write LATE('lost')"),
        ("LATE('o')", tumble("l"), "3 columns for 2 columns of 'o'"),
        ("LATE('lost')", "SELECT x, v FROM l", "no operator of this SELECT drops late rows; write LATE in the SELECT"),
        (
            "LATE('lost')",
            "SELECT l.v, r.v FROM l JOIN r ON l.x = r.x AND l.ts = r.ts",
            "LATE has a table for the late rows of each input; write LATE('l' = 'lost_l', 'r' = 'lost_r')",
        ),
    ],
)
def test_a_table_of_late_rows_that_does_not_fit_is_refused(hint: str, query: str, fault: str) -> None:
    (found,) = faults_of(f"{LOST} INSERT INTO o {query.replace('SELECT', f'SELECT /*+ {hint} */', 1)}")
    assert found.startswith(fault)


# Rows with a partner in their window, or without one


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("a.x IN (SELECT x FROM {r} WHERE {same})", [1, 2]),
        ("a.x NOT IN (SELECT x FROM {r} WHERE {same})", [5]),
        ("EXISTS (SELECT 1 FROM {r} WHERE {same} AND x = a.x AND v > a.v)", [1]),
        ("NOT EXISTS (SELECT 1 FROM {r} WHERE {same} AND x = a.x AND v > a.v) AND a.v < 5", [2, 3, 4]),
    ],
)
def test_rows_have_a_partner_in_their_window_or_not(test: str, expected: list[int], workers: int) -> None:
    same = "window_start = a.window_start AND window_end = a.window_end"
    test = test.format(r=WINDOWED.format("r"), same=same)
    left = [row(1, 1, 1), row(1, 2, 2), row(2, 3, 3), row(None, 4, 4), row(1, 5, 25)]
    right = [row(1, 2, 3), row(None, 9, 4), row(3, 1, 12)]
    query = f"SELECT v FROM {WINDOWED.format('l')} a WHERE {test}"
    assert [it for (it,) in result_of("", "v INT", query, workers, l=left, r=right)] == expected


@pytest.mark.parametrize(
    ("test", "fault"),
    [
        ("a.x IN (SELECT x FROM r)", "IN of a query is supported for rows of one window; compare window_start"),
        (f"EXISTS (SELECT 1 FROM {WINDOWED.format('r')} WHERE x = a.x)", "EXISTS of a query is supported for rows of"),
        ("a.x IN (SELECT x, v FROM r)", "IN takes a query of one column"),
        ("a.x > 1 OR a.x IN (SELECT x FROM r)", "IN of a query is not supported"),
    ],
)
def test_tests_of_queries_that_would_need_all_rows_are_refused(test: str, fault: str) -> None:
    (found,) = faults_of(f"INSERT INTO o SELECT x, v FROM {WINDOWED.format('l')} a WHERE {test}")
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT v FROM e", "late rows: behind"),
        ("SELECT v FROM behind", "the late rows of e"),
        ("SELECT v FROM e WHERE ts <= CURRENT_WATERMARK(ts)", "rows that are late"),
        (f"SELECT v FROM e WHERE {ON_TIME}", "rows on time"),
        ("SELECT v, window_start FROM TABLE(COUNTING(TABLE e PARTITION BY v, 2))", "rows of COUNTING, by v"),
        (f"{COUNTING.replace('TABLE l', 'TABLE e')} GROUP BY window_start, window_end, v", "COUNTING 2 rows, by v"),
        (
            "SELECT v, window_start FROM TABLE(SESSION(TABLE e PARTITION BY v, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
            "rows of SESSION, by v",
        ),
        (
            f"SELECT v FROM {WINDOWED.format('e')} a WHERE v IN (SELECT v FROM {WINDOWED.format('e')} b "
            "WHERE a.window_start = b.window_start AND a.window_end = b.window_end)",
            "SEMI JOIN in each window, by v",
        ),
    ],
)
def test_explain_tells_where_late_rows_go(query: str, words: str) -> None:
    told: list[str] = []
    SingleThreadRuntime(lambda provider: provider.sql("s").run(f"{LATE}; EXPLAIN {query}", tell=told.append)).execute()
    assert words in told[0]
