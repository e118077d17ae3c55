"""Statements that are no queries: what they change, what they answer, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from malflow.testing import ScriptedSource, run_sql

TABLES = """
CREATE TABLE bids (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('url' = 'bids.jsonl');
CREATE TABLE one (id INT) WITH ('url' = 'one.jsonl');
CREATE TABLE two (id INT) WITH ('url' = 'two.jsonl');
"""
BIDS = [(1, "2026-03-01 00:00:01"), (2, "2026-03-01 00:00:02"), (3, "2026-03-01 00:00:03")]

TWICE = {
    "by two INSERTs": "CREATE VIEW v AS SELECT * FROM bids WHERE id > 1; INSERT INTO one SELECT id FROM v;"
    "INSERT INTO two SELECT id FROM v",
    "by a join": "CREATE VIEW v AS SELECT * FROM bids WHERE id > 1;"
    "INSERT INTO one SELECT l.id FROM v l JOIN v r ON l.id = r.id AND l.ts = r.ts; INSERT INTO two SELECT id FROM v",
    "of WITH": "INSERT INTO one WITH v AS (SELECT * FROM bids WHERE id > 1) "
    "SELECT l.id FROM v l JOIN v r ON l.id = r.id AND l.ts = r.ts; INSERT INTO two SELECT id FROM bids WHERE id > 1",
}


@pytest.mark.parametrize("way", TWICE)
def test_a_view_is_read_twice(way: str) -> None:
    rows = [{"id": 2}, {"id": 3}]
    assert run_sql(TABLES + TWICE[way], {"bids": BIDS}) == {"one": rows, "two": rows}


def test_an_error_in_a_view_has_the_place_in_its_own_text() -> None:
    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([(0,)])), "id BIGINT")
        sql.run("CREATE VIEW v AS\nSELECT 10 / id AS part FROM t")
        sql.query("q", "SELECT part + 1 AS more FROM v").rows().sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"operator 's\.v\.calc' .*division by zero in '10 / id' \(SQL:2:8\)"):
        SingleThreadRuntime(build).execute()


def answers_of(text: str) -> list[str]:
    """Return what statements answer."""
    found: list[str] = []
    SingleThreadRuntime(lambda provider: provider.sql("shop").run(TABLES + text, tell=found.append)).execute()
    return found


def faults_of(text: str) -> list[str]:
    """Return the messages of the faults of statements."""
    with pytest.raises(SqlError) as caught:
        answers_of(text)
    return [it.message for it in caught.value.faults]


WINDOW = "FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"


def cells(answer: str) -> list[list[str]]:
    """Return the lines of an answer without their gaps."""
    return [[it.strip() for it in line.split("  ") if it.strip()] for line in answer.splitlines()]


OPEN = "state: aggregates of each open window and key, until it closes; late rows: taken while their window is open"
OF_BIDS = ["bids", "append, time ts - INTERVAL '5' SECOND", "shop.bids.watermark", "bids.jsonl"]


def test_explain_shows_operators_keys_bounds_of_state_and_late_rows() -> None:
    (found,) = answers_of(f"""
        CREATE VIEW some AS SELECT id, ts FROM bids WHERE id > 1 AND id < 9;
        EXPLAIN INSERT INTO one SELECT id {WINDOW.format("some")}, id;
    """)
    assert cells(found) == [
        ["INSERT INTO one", "append", "shop.one", "sink: one.jsonl"],
        ["calc", "append", "shop.one.calc", "state: none"],
        ["TUMBLE 1h, by id", "append", "shop.one.window", OPEN],
        ["calc", "append", "shop.one.window.input", "state: none"],
        ["calc WHERE id > 1 AND id < 9", "append", "shop.some.calc", "state: none"],
        OF_BIDS,
    ]
    assert [len(line) - len(line.lstrip()) for line in found.splitlines()] == [0, 2, 4, 6, 8, 10]


JOIN = "SELECT l.id FROM bids l JOIN bids r ON l.id = r.id AND l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts"
TOP = """SELECT * FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id) AS n
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))) WHERE n <= 3"""


@pytest.mark.parametrize(
    ("query", "line"),
    [
        (
            JOIN,
            "INNER JOIN, by id, the right row up to 0s before and 1h after the left append shop.interval_join "
            "state: left rows until the right side is 1h later, right rows until the left side is 0s later; "
            "late rows: dropped",
        ),
        (
            TOP,
            "first 3 rows of each window append shop.top state: 3 rows of each open window and key, until it closes; "
            "late rows: taken while their window is open",
        ),
        (TOP, "rows with their HOP 1h every 1m append shop.windows state: none"),
        (
            "SELECT id FROM bids UNION ALL SELECT 1",
            "UNION ALL append shop.union state: none; late rows: split off again, by the least watermark",
        ),
        ("SELECT * FROM (VALUES (1), (2)) AS v(x)", "VALUES of 2 rows append shop.v.values state: none"),
        (
            "SELECT n FROM bids CROSS JOIN UNNEST(ARRAY[1, id]) AS t(n)",
            "each element of ARRAY[1, id] append shop.unnest state: none",
        ),
    ],
)
def test_explain_knows_each_kind_of_relation(query: str, line: str) -> None:
    (found,) = answers_of(f"EXPLAIN CHANGELOG_MODE {query}")
    assert line in [" ".join(it) for it in cells(found)]


def test_explain_takes_no_names_and_runs_nothing() -> None:
    insert = "INSERT INTO one SELECT id FROM bids WHERE id > 1"
    statements = f"EXPLAIN {insert}; {insert}; EXPLAIN STATEMENT SET BEGIN {insert}; INSERT INTO two SELECT 1; END"
    given: list[str] = []
    text = TABLES + statements
    ran = run_sql_telling(text, given)
    assert ran == {"one": [{"id": 2}, {"id": 3}]}
    assert [cells(it)[1][2] for it in given] == ["sql.one.calc", "sql.one.calc2"]


def run_sql_telling(text: str, given: list[str]) -> Any:
    """Run a text on lists; add its answers to a list."""
    sink = VecSink[Any, Any, Any]()

    def connected(name: str, _url: str, _options: Any) -> Any:
        return ScriptedSource(BIDS) if name == "bids" else sink

    SingleThreadRuntime(lambda provider: provider.sql("sql", connect=connected).run(text, tell=given.append)).execute()
    return {"one": sink.values}


def test_a_query_from_python_explains_itself() -> None:
    found: list[str] = []

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([])), "id BIGINT")
        query = sql.query("q", "SELECT id FROM t WHERE id > 1")
        found.append(query.explain())
        query.rows().sink("out", VecSink())

    SingleThreadRuntime(build).execute()
    assert cells(found[0]) == [
        ["calc WHERE id > 1", "append", "s.q.calc", "state: none"],
        ["t", "append", "a stream of Python"],
    ]


ASKED = "CREATE VIEW v AS\n  SELECT id + 1 AS more, ts FROM bids; CREATE TABLE inner_ (x INT NOT NULL);"


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("SHOW TABLES", "bids\ninner_\none\ntwo\nv"),
        ("SHOW VIEWS", "v"),
        ("SHOW USER FUNCTIONS", "none"),
        ("SHOW CREATE VIEW v", "CREATE VIEW v AS\n  SELECT id + 1 AS more, ts FROM bids;"),
        ("SHOW CREATE TABLE one", "CREATE TABLE one (id INT) WITH ('url' = 'one.jsonl');"),
        ("DESCRIBE bids", "id  INT\nts  TIMESTAMP(3)  time ts - INTERVAL '5' SECOND"),
        ("DESC v", "more  INT\nts    TIMESTAMP(3)  time"),
        ("DESCRIBE inner_", "x  INT NOT NULL"),
        ("DROP VIEW v; SHOW VIEWS", "none"),
        ("DROP TABLE inner_; CREATE TABLE inner_ (y STRING); DESCRIBE inner_", "y  STRING"),
        ("CREATE FUNCTION f AS 'tests.sql.test_statements:doubled'; DROP FUNCTION f; SHOW USER FUNCTIONS", "none"),
        ("DROP TABLE IF EXISTS nothing; DROP TEMPORARY VIEW IF EXISTS nothing; SHOW VIEWS", "v"),
    ],
)
def test_statements_that_ask_are_answered(statement: str, answer: str) -> None:
    assert answers_of(f"{ASKED} {statement}") == [answer]


def doubled(number: int) -> int:
    """A function that SQL imports."""
    return 2 * number


def test_all_functions_are_shown() -> None:
    (found,) = answers_of("CREATE FUNCTION f AS 'tests.sql.test_statements:doubled'; SHOW FUNCTIONS")
    assert {"UPPER", "COUNT", "f"} <= {*found.splitlines()}


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DESCRIBE bid", "no table 'bid'; did you mean 'bids'?"),
        ("SHOW CREATE VIEW bids", "no view 'bids'; it is a table"),
        ("DROP TABLE v", "no table 'v'; it is a view"),
        ("DROP TABLE bids", "'bids' is read or written above; remove the DROP: a catalogue ends with its dataflow"),
        ("INSERT INTO two SELECT 1; DROP TABLE two", "'two' is read or written above"),
        ("DROP FUNCTION f", "no function 'f'"),
        ("EXPLAIN ESTIMATED_COST SELECT 1", "there is no ESTIMATED_COST, as there is one plan; write EXPLAIN"),
        ("EXPLAIN CREATE TABLE t (x INT)", "EXPLAIN takes a query, INSERT INTO or a statement set"),
        ("EXPLAIN SELECT nope FROM bids", "no column 'nope'"),
    ],
)
def test_statements_about_unknown_things_are_refused(statement: str, fault: str) -> None:
    (found,) = faults_of(f"{ASKED} {statement}")
    assert found.startswith(fault)
