"""Bad input of each kind gets an error with its place and a cure, before the first record wherever it can be known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from malflow.streams.stream import StreamProvider
from malflow.testing import run_sql

TABLES = """
CREATE TABLE bids (id BIGINT, price INT, city VARCHAR(3), ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('url' = 'bids.jsonl');
CREATE TABLE fine (id BIGINT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts) WITH ('url' = 'fine.jsonl');
CREATE TABLE o (id BIGINT) WITH ('url' = 'o.jsonl');
"""


def faults_of(text: str, tables: str = TABLES) -> list[str]:
    """Return the faults of a text: each shows its line with carets."""
    with pytest.raises(SqlError) as caught:
        StreamProvider(Graph()).sql("s").run(tables + text)
    assert all("^" in str(it) for it in caught.value.faults)
    return [it.message for it in caught.value.faults]


NAMES = {
    "INSERT INTO o SELECT idd FROM bids": "no column 'idd'; did you mean 'id'?",
    "INSERT INTO o SELECT ID FROM bids": "no column 'ID'; did you mean 'id'? names keep their case",
    "INSERT INTO o SELECT id FROM bidz": "no table 'bidz'; did you mean 'bids'?",
    "INSERT INTO O SELECT id FROM bids": "no table 'O'; did you mean 'o'? names keep their case",
    "INSERT INTO o SELECT b.id FROM bids c": "no table or column 'b'; there is 'c'",
    "INSERT INTO o SELECT ABSS(id) FROM bids": "no function ABSS; did you mean ABS?",
    "CREATE TABLE t (x INT) WITH ('url' = 't.jsonl', 'encodin' = 'a'); INSERT INTO o SELECT x FROM t": "has no option "
    "'encodin'; did you mean 'encoding'?",
    "CREATE TABLE t (x INT) WITH ('url' = 'kafak://a/t'); INSERT INTO o SELECT x FROM t": "no connector for scheme "
    "'kafak'; did you mean 'kafka'?",
    "CREATE TABLE t (x INT) WITH ('uri' = 'kafka://a/t')": "option 'uri' is about a source; did you mean 'url'?",
    "CREATE TABLE t (x INTEGR)": "expected a type; did you mean INTEGER?",
    "SET 'malflow.on-eror' = 'skip'": "no key 'malflow.on-eror'; did you mean 'malflow.on-error'?",
    "SELEKT 1": "expected a statement",
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_that_is_near_another_is_told(text: str) -> None:
    (found,) = faults_of(text)
    assert NAMES[text] in found


OTHERS = {
    # ksqlDB
    "INSERT INTO o SELECT id FROM bids EMIT CHANGES": "there is no EMIT",
    "CREATE STREAM s (x INT) WITH (kafka_topic = 's')": "there is no CREATE STREAM; write CREATE TABLE",
    "INSERT INTO o SELECT id FROM bids WINDOW TUMBLING (SIZE 5 SECONDS)": "write FROM TABLE(TUMBLE(TABLE t, DESC",
    "INSERT INTO o SELECT l.id FROM bids l JOIN bids r WITHIN 5 MINUTES ON l.id = r.id": "r.ts BETWEEN l.ts AND",
    # Siddhi, EventFlux
    "define stream s (x int)": "write CREATE TABLE for DEFINE STREAM",
    "from bids select id insert into o": "write SELECT ... FROM ..., not FROM ... SELECT",
    "INSERT INTO o SELECT id FROM bids#window.length(5)": "a window is written FROM TABLE(TUMBLE(...))",
    "INSERT INTO o SELECT id FROM bids WINDOW('length', 5)": "there is no WINDOW (...); write FROM TABLE(COUNTING(",
    "INSERT INTO o SELECT id FROM bids OUTPUT EVERY 5 SECONDS": "there is no OUTPUT",
    "PARTITION WITH (id OF bids) BEGIN SELECT id FROM bids END": "write PARTITION BY in the query",
    # Postgres
    "INSERT INTO o SELECT id::int FROM bids": "there is no ::; write CAST(id AS ...)",
    "INSERT INTO o SELECT id FROM bids WHERE city ILIKE 'u%'": "there is no ILIKE; write LOWER(a) LIKE 'x%'",
    'INSERT INTO o SELECT "id" FROM bids': "names are quoted in backticks",
    "INSERT INTO o VALUES (1) ON CONFLICT DO NOTHING": "there is no ON CONFLICT; rows are added",
    "INSERT INTO o SELECT id FROM bids RETURNING id": "there is no RETURNING",
    "SELECT id INTO o FROM bids": "write INSERT INTO t SELECT ...",
    "CREATE TABLE t (x TEXT)": "expected a type; write STRING",
    "CREATE MATERIALIZED VIEW v AS SELECT 1": "there is no CREATE MATERIALIZED",
    "INSERT INTO o SELECT id FROM bids LIMIT 3": "LIMIT needs an input that ends",
    "INSERT INTO o SELECT id FROM bids ORDER BY price": "ORDER BY needs an input that ends",
    "UPDATE bids SET id = 1": "there is no UPDATE",
    "DELETE FROM bids": "there is no DELETE",
    # Flink, beyond what is here
    "ADD JAR 'x.jar'": "there is no ADD; install the package of Python",
    "COMPILE PLAN 'p' FOR INSERT INTO o SELECT 1": "there is no COMPILE; a text has one plan",
    "USE CATALOG c": "there is no USE; there are no catalogs and databases",
    "INSERT OVERWRITE o SELECT 1": "there is no INSERT OVERWRITE; write INSERT INTO",
    "CREATE TABLE t (x INT) PARTITIONED BY (x)": "no sink has a folder for each value of a column",
    "CREATE TABLE t AS SELECT 1": "CREATE TABLE ... AS SELECT is not supported; write CREATE VIEW",
    "CREATE FUNCTION f AS 'a.b' LANGUAGE JAVA": "functions are written in Python",
}


@pytest.mark.parametrize("text", OTHERS)
def test_words_of_other_dialects_are_answered(text: str) -> None:
    (found,) = faults_of(text)
    assert OTHERS[text] in found


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO o SELECT id, FROM bids",
        "INSERT INTO o SELECT id FROM bids, WHERE id > 1",
        "CREATE TABLE t (x INT, )",
        "INSERT INTO o VALUES (1), ;",
        "INSERT INTO o SELECT ABS(id,) FROM bids",
        "CREATE TABLE t (x INT) WITH ('url' = 't.jsonl',)",
        "INSERT INTO o SELECT id FROM bids,",
    ],
)
def test_a_comma_too_many_is_named(text: str) -> None:
    assert faults_of(text) == ["there is a comma too many; remove it"]


@pytest.mark.parametrize(
    "end", ["", ",", "(", " WHERE", " WHERE id", " WHERE id >", " GROUP BY", " UNION ALL", " /*+ A"]
)
def test_a_statement_that_is_cut_short_is_refused_at_its_end(end: str) -> None:
    text = f"INSERT INTO o SELECT id FROM bids{end}"
    if end and end != " WHERE id":
        assert len(faults_of(text)) == 1
    for length in range(len("INSERT INTO o SELECT id FROM bid")):
        if text[:length].strip():
            assert faults_of(text[:length])


def test_a_file_of_ten_megabytes_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "big.sql"
    file.write_text("SELECT a, b FROM n WHERE a = 1;\n" * 330_000)
    with pytest.raises(SqlError, match=r"big\.sql:1:1: the text has 10,560,000 characters, and 2,000,000 are read at"):
        StreamProvider(Graph()).sql("s").run(file)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_a_file_that_is_not_utf_8_is_refused(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_bytes("INSERT INTO o SELECT 'é' FROM bids".encode(encoding))
    with pytest.raises(GraphError, match="UTF-8"):
        StreamProvider(Graph()).sql("s").run(file)


@pytest.mark.parametrize("shape", ["({}1{})", "ABS({}1{})", "- {}1{}", "CASE WHEN {}TRUE{} THEN 1 END"])
def test_a_text_that_is_nested_10_000_deep_is_refused(shape: str) -> None:
    before, after = shape.partition("{}")[0] * 10_000, shape.rpartition("{}")[2] * 10_000
    (found,) = faults_of(f"INSERT INTO o SELECT {before}1{after}")
    assert "levels of nesting" in found or "in a row" in found


WINDOW = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
BOUND = {
    "INSERT INTO o SELECT id + city FROM bids": "no BIGINT + VARCHAR(3)",
    "INSERT INTO o SELECT city FROM bids": "column 'id' of 'o' is BIGINT, not VARCHAR(3); CAST it",
    "INSERT INTO o SELECT id FROM bids WHERE price": "expected a condition, got INT",
    "INSERT INTO o SELECT id FROM bids l JOIN bids r ON l.id = r.id AND l.ts = r.ts": "column 'id' is ambiguous",
    "INSERT INTO o SELECT id FROM bids WHERE SUM(price) > 1": "SUM is an aggregate, which is not possible in WHERE",
    f"INSERT INTO o SELECT price FROM {WINDOW.format('bids', 'ts')}": "column 'price' "
    "is neither grouped nor aggregated",
    f"INSERT INTO o SELECT COUNT(*) FROM {WINDOW.format('bids', 'id')}": "'id' is not a time attribute",
    "INSERT INTO o SELECT COUNT(*) FROM bids GROUP BY city": "GROUP BY without a window is not supported",
    "INSERT INTO o SELECT id, price FROM bids": "2 columns for 1 column of 'o'",
    "INSERT INTO o SELECT :floor FROM bids": "no value for the parameter :floor",
    "CREATE FUNCTION f AS 'no.such.module:f'": "'no.such.module' can't be imported",
    "CREATE FUNCTION f AS 'math:sinn'": "'math' has no function 'sinn'; did you mean 'sin'?",
    "CREATE TABLE t (x INT, WATERMARK FOR x AS x, WATERMARK FOR x AS x)": "a table has one watermark; remove this one",
}


@pytest.mark.parametrize("text", BOUND)
def test_queries_that_do_not_fit_are_refused_before_the_first_record(text: str) -> None:
    assert BOUND[text] in "\n".join(faults_of(text))


def test_watermarks_of_two_precisions_are_refused() -> None:
    union = "(SELECT id, ts FROM bids UNION ALL SELECT id, ts FROM fine)"
    text = f"INSERT INTO o SELECT COUNT(*) FROM {WINDOW.format('u', 'ts')}"
    assert faults_of(f"CREATE VIEW u AS SELECT * FROM {union} AS x; {text}")
    join = "ON l.id = r.id AND r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND l.ts"
    assert faults_of(f"INSERT INTO o SELECT l.id FROM bids l JOIN fine r {join}")


ROWS = {
    "a field is missing": ({"price": 1, "city": "Ulm", "ts": "2026-03-01 00:00:00"}, "column 'id' is missing"),
    "text for a number": ((1, "1", "Ulm", "2026-03-01 00:00:00"), "'1' is not of type INT"),
    "too large a number": ((1, 1 << 31, "Ulm", "2026-03-01 00:00:00"), "2147483648 does not fit into INT"),
    "too long a text": ((1, 1, "Berlin", "2026-03-01 00:00:00"), "'Berlin' is longer than VARCHAR(3)"),
    "no time": ((1, 1, "Ulm", "noon"), "'noon' is not a TIMESTAMP"),
    "too fine a time": ((1, 1, "Ulm", "2026-03-01 00:00:00.0001"), "is finer than TIMESTAMP(3)"),
    "no row": (7, "is missing in 7"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_that_does_not_fit_its_schema_fails_by_the_policy(kind: str) -> None:
    row, fault = ROWS[kind]
    text = f"{TABLES} INSERT INTO o SELECT id FROM bids"
    with pytest.raises(OperatorError) as caught:
        run_sql(text, {"bids": [row]})
    assert fault in str(caught.value)
    good = (2, 1, "Ulm", "2026-03-01 00:00:01.500000")
    assert run_sql(f"SET 'malflow.on-error' = 'skip'; {text}", {"bids": [row, good]}) == {"o": [{"id": 2}]}


VALUES = {
    "id + 9223372036854775807": "does not fit into BIGINT",
    "10 / (id - 1)": "division by zero in '10 / (id - 1)'",
    "CAST(id * 1000 AS TINYINT)": "1000 does not fit into TINYINT",
    "CAST('x' AS BIGINT)": "'x' is not of type BIGINT in",
}


@pytest.mark.parametrize("expression", VALUES)
def test_a_calculation_that_fails_names_operator_and_place(expression: str) -> None:
    row = (1, 1, "Ulm", "2026-03-01 00:00:00")
    with pytest.raises(OperatorError, match=r"operator 'sql\.o") as caught:
        run_sql(f"{TABLES} INSERT INTO o SELECT {expression} FROM bids", {"bids": [row]})
    assert VALUES[expression] in str(caught.value)
    skipping = f"{TABLES} INSERT INTO o SELECT /*+ ON_ERROR('skip') */ {expression} FROM bids"
    assert run_sql(skipping, {"bids": [row]}) == {"o": []}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("'url' = 'postgres+changes://a/db', 'tables' = 't'", "can't be written to"),
        ("'url' = 'o.nope'", "no connector for files of format 'nope'"),
        ("'url' = 'https://a/o', 'methd' = 'PUT'", "has no option 'methd'; did you mean 'method'?"),
    ],
)
def test_a_sink_that_can_not_take_the_rows_is_refused_at_its_options(options: str, fault: str) -> None:
    graph = Graph()
    StreamProvider(graph).sql("s").run(f"{TABLES} CREATE TABLE t (id BIGINT) WITH ({options}); INSERT INTO t SELECT 1")
    with pytest.raises(SqlError) as caught:
        graph.complete()
    assert fault in str(caught.value)
    assert caught.value.line == TABLES.count("\n") + 1


@pytest.mark.parametrize(
    "options",
    ["'url' = 'postgres://me:hush@a/db', 'table' = 't'", "'url' = 'kafka://a/t?settings.sasl.password=hush'"],
)
def test_a_secret_that_is_written_in_a_text_is_refused_and_not_shown(options: str) -> None:
    with pytest.raises(SqlError, match=r"has a secret that is written in the text; write \$\{NAME\}") as caught:
        StreamProvider(Graph()).sql("s").run(f"CREATE TABLE t (id BIGINT) WITH ({options})")
    assert "hush" not in str(caught.value)


def test_a_table_of_changes_is_refused_as_rows() -> None:
    provider = StreamProvider(Graph())
    keyed = provider.new_stream().source("values", SingleIteratorSource([(1, 2)]))
    table = keyed.key_distribute("key", lambda it: it.value[0]).to_table("table")
    with pytest.raises(
        GraphError, match=r"needs rows that are added; got Table; pass a stream, such as \.changes\(\) of a table"
    ):
        provider.sql("s").table("t", table, "id BIGINT, n BIGINT")


def wrong(number: int) -> str:
    """A function with a wrong annotation."""
    return number  # type: ignore[return-value]  # on purpose


def test_functions_and_parameters_that_are_wrong_are_named() -> None:
    calls: list[int] = []

    def seen(number: int) -> int:
        calls.append(number)
        return number

    def run(query: str, **parameters: Any) -> list[Any]:
        sink = VecSink[Any, Any, Any]()

        def build(provider: Any) -> None:
            sql = provider.sql("s")
            sql.table("t", provider.new_stream().source("values", SingleIteratorSource([(None,), (1,)])), "id BIGINT")
            sql.function(seen)
            sql.function(wrong)
            sql.query("q", query, **parameters).rows(tuple).sink("out", sink)

        SingleThreadRuntime(build).execute()
        return sink.values

    assert run("SELECT seen(id) FROM t") == [(None,), (1,)]
    assert calls == [1]
    with pytest.raises(OperatorError, match=r"function 'wrong'.*1 is not of type STRING"):
        run("SELECT wrong(id) FROM t")
    with pytest.raises(SqlError, match=r"no value for the parameter :flor; did you mean 'floor'"):
        run("SELECT id FROM t WHERE id > :flor", floor=1)
    with pytest.raises(GraphError, match=r"has no parameter :more; remove more="):
        run("SELECT id FROM t", more=1)
    assert run("SELECT id FROM t WHERE :text = 'x'", text="x' OR 'a' = 'a") == []
