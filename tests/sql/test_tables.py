"""Tables, INSERTs and functions of Python: what a text of SQL can say of them, and what it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.graph import Graph
from malflow.nodes import SinkNode
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from malflow.testing import run_sql


def rows_of(text: str, values: Any = (), schema: Any = "id BIGINT, city STRING", **parameters: Any) -> list[Any]:
    """Return the rows of a query over a table `t` of some values."""
    sink = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource(values)), schema)
        sql.query("q", text, **parameters).rows().sink("out", sink)

    SingleThreadRuntime(build).execute()
    return sink.values


def faults_of(text: str) -> list[str]:
    """Return the faults of statements, each as its place and message."""
    with pytest.raises(SqlError) as caught:
        SingleThreadRuntime(lambda provider: provider.sql("s").run(text)).execute()
    return [str(it).partition("\n")[0].removeprefix("SQL:") for it in caught.value.faults]


class Named(NamedTuple):
    id: int
    city: str | None


@dataclass
class Plain:
    id: int
    city: str | None


@pytest.mark.parametrize("schema", ["id BIGINT NOT NULL, city STRING", Named, Plain])
@pytest.mark.parametrize("value", [{"city": "Ulm", "id": 1, "more": 2}, (1, "Ulm"), Named(1, "Ulm"), Plain(1, "Ulm")])
def test_values_of_each_kind_are_rows(schema: Any, value: Any) -> None:
    assert rows_of("SELECT id, city FROM t", [value], schema) == [{"id": 1, "city": "Ulm"}]


@pytest.mark.parametrize(
    ("kind", "value", "inner"),
    [
        ("TINYINT", -128, -128),
        ("DECIMAL(4, 1)", "1.5", Decimal("1.5")),
        ("DECIMAL(4, 1)", 2, Decimal("2.0")),
        ("DOUBLE", 1, 1.0),
        ("FLOAT", 0.1, 0.10000000149011612),
        ("FLOAT", float("inf"), float("inf")),
        ("TIMESTAMP(3)", "2026-03-01 12:00:00.5", datetime(2026, 3, 1, 12, 0, 0, 500_000)),
        ("TIMESTAMP(6)", datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        ("TIMESTAMP_LTZ(0)", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        ("CHAR(3)", "ab", "ab "),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("MAP<STRING, INT>", {"a": 1}, {"a": 1}),
        ("ROW<x INT, y STRING>", {"y": "b", "x": 1}, {"x": 1, "y": "b"}),
        ("STRING", None, None),
    ],
)
def test_a_value_goes_through_its_type(kind: str, value: Any, inner: Any) -> None:
    (found,) = rows_of("SELECT v FROM t", [{"v": value}], f"v {kind}")
    assert (found, type(found["v"])) == ({"v": inner}, type(inner))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("TINYINT", 128, "column 'v': 128 does not fit into TINYINT"),
        ("INT", "7", "column 'v': '7' is not of type INT"),
        ("INT", True, "column 'v': True is not of type INT"),
        ("DOUBLE", "1.0", "column 'v': '1.0' is not of type DOUBLE"),
        ("DECIMAL(3, 1)", "1.25", "column 'v': 1.25 has more digits after the point than DECIMAL"),
        ("DECIMAL(3, 1)", 100, "column 'v': 100 does not fit into DECIMAL"),
        ("DECIMAL(3, 1)", "abc", "column 'v': 'abc' is not a number"),
        ("DECIMAL(3, 1)", "1_0", "column 'v': '1_0' is not a number"),
        ("DECIMAL(3, 1)", Decimal("NaN"), "column 'v': NaN is not a DECIMAL"),
        ("FLOAT", 1e300, r"column 'v': 1e\+300 does not fit into FLOAT"),
        ("VARCHAR(2)", "abc", "column 'v': 'abc' is longer than VARCHAR"),
        ("TIMESTAMP(3)", datetime(2026, 3, 1, tzinfo=UTC), "column 'v': .* has a zone, other than TIMESTAMP"),
        ("TIMESTAMP(3)", datetime(2026, 3, 1, 0, 0, 0, 1), "column 'v': .* is finer than TIMESTAMP"),
        ("TIMESTAMP(3)", "yesterday", "column 'v': 'yesterday' is not a TIMESTAMP"),
        ("DATE", "2026-02-30", "column 'v': '2026-02-30' is not a DATE: day is out of range for month"),
        ("TIME", "25:00", "column 'v': '25:00' is not a TIME: hour must be"),
        ("INT NOT NULL", None, "column 'v': NULL in a column of INT NOT NULL"),
    ],
)
@pytest.mark.fault("U3")
def test_a_value_that_does_not_fit_is_named_with_its_column(kind: str, value: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator 's\.q\.calc' failed .*table 't', {words}"):
        rows_of("SELECT v FROM t", [{"v": value}], f"v {kind}")


@pytest.mark.parametrize(("kind", "zone"), [("TIMESTAMP(3)", None), ("TIMESTAMP_LTZ(6)", UTC)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_with_datetimes_as_timestamps_is_a_table_with_time(kind: str, zone: Any, workers: int) -> None:
    sink = VecSink[Any, Any, Any]()
    values = [
        (number, datetime(2026, 3, 1, 0, 0, second, tzinfo=zone)) for number, second in enumerate([1, 9, 12, 3, 31])
    ]

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        stream = provider.new_stream().source("values", SingleIteratorSource(values))
        timed = stream.event_time("times", lambda msg: msg.value[1], out_of_orderness="5s")
        sql.table("t", timed, f"id BIGINT, ts {kind}", time="ts")
        text = """SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end"""
        sql.query("q", text).rows(tuple).sink("out", sink)

    SingleThreadRuntime(build, parallelism=workers).execute()
    days = [datetime(2026, 3, 1, 0, 0, second) for second in (0, 10, 30)]
    assert sorted(sink.values) == [*zip(days, [3, 1, 1], strict=True)]


@pytest.mark.fault("U3")
def test_a_missing_column_is_named() -> None:
    with pytest.raises(OperatorError, match=r"ValueError: column 'city' is missing in \{'id': 1\}"):
        rows_of("SELECT id FROM t", [{"id": 1}])


@pytest.mark.fault("U4")
def test_a_failing_part_is_named_with_its_place() -> None:
    with pytest.raises(OperatorError, match=r"operator 's\.q\.calc' .*division by zero in '10 / id' \(q:1:12\)"):
        rows_of("SELECT 1 + 10 / id FROM t", [(1, "a"), (0, "b")])


@pytest.mark.fault("U5")
def test_parameters_are_values_and_never_text() -> None:
    found = rows_of("SELECT id FROM t WHERE city = :city", [(1, "x' OR 'a' = 'a"), (2, "b")], city="x' OR 'a' = 'a")
    assert found == [{"id": 1}]


@pytest.mark.fault("U5")
def test_a_parameter_without_a_value_is_a_fault() -> None:
    with pytest.raises(SqlError, match=r"no value for the parameter :flor; did you mean 'floor'\?"):
        rows_of("SELECT id FROM t WHERE id > :flor", floor=1)


def test_a_function_of_python_gets_values_and_is_not_called_with_null() -> None:
    calls: list[Any] = []

    def later(moment: datetime, hours: int) -> datetime:
        calls.append(moment)
        return moment.replace(hour=hours)

    sink = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        values = [("2026-03-01 12:00:00",), (None,)]
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource(values)), "ts TIMESTAMP(3)")
        sql.function(later)
        sql.query("q", "SELECT later(ts, 3) AS x FROM t").rows().sink("out", sink)

    SingleThreadRuntime(build).execute()
    assert sink.values == [{"x": datetime(2026, 3, 1, 3)}, {"x": None}]
    assert calls == [datetime(2026, 3, 1, 12)]


@pytest.mark.fault("U6")
def test_a_function_that_returns_another_type_is_named() -> None:
    def wrong(number: int) -> str:
        return number  # type: ignore[return-value]  # on purpose

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([(1,)])), "id BIGINT")
        sql.function(wrong)
        sql.query("q", "SELECT wrong(id) FROM t").rows().sink("out", VecSink())

    words = r"the result of function 'wrong': 1 is not of type STRING in 'wrong\(id\)' \(q:1:8\)"
    with pytest.raises(OperatorError, match=words):
        SingleThreadRuntime(build).execute()


def test_a_function_without_types_is_refused() -> None:
    with pytest.raises(
        GraphError, match=r"parameter 'x' of function '<lambda>' is not annotated; types with a column are"
    ):
        SingleThreadRuntime(lambda provider: provider.sql("s").function(lambda x: x)).execute()


def test_inserts_into_a_table_are_written_by_one_sink(tmp_path: Path) -> None:
    text = f"""
        CREATE TABLE a (x INT NOT NULL, y STRING, z DECIMAL(4, 1)) WITH ('url' = '{tmp_path / "a.jsonl"}');
        INSERT INTO a (y, x) VALUES ('q', 1);
        EXECUTE STATEMENT SET BEGIN INSERT INTO a VALUES (2, 'w', 1.5); INSERT INTO a SELECT 3, 'e', 2; END
    """
    SingleThreadRuntime(lambda provider: provider.sql("s").run(text)).execute()
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert sorted(found, key=lambda it: it["x"]) == [
        {"x": 1, "y": "q", "z": None},
        {"x": 2, "y": "w", "z": 1.5},
        {"x": 3, "y": "e", "z": 2.0},
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("CAST(NULL AS INT), 'a', x'01'", "column 'x': NULL in a column of INT NOT NULL"),
        ("1, 'abcd', x'01'", "column 'y': 'abcd' is longer than VARCHAR"),
        ("b, 'a', x'01'", "3000000000 does not fit into INT"),
        ("1, 'a', x'010203'", r"column 'z': .* is not of type VARBINARY\(2\)"),
    ],
)
@pytest.mark.fault("U3")
def test_an_inserted_row_that_does_not_fit_ends_the_run(value: str, words: str, tmp_path: Path) -> None:
    text = f"""
        CREATE TABLE a (x INT NOT NULL, y VARCHAR(3), z VARBINARY(2)) WITH ('url' = '{tmp_path / "a.jsonl"}');
        INSERT INTO a SELECT {value} FROM (VALUES (3000000000)) AS t(b);
    """
    with pytest.raises(OperatorError, match=words):
        SingleThreadRuntime(lambda provider: provider.sql("s").run(text)).execute()


def test_the_environment_is_expanded_in_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    text = "CREATE TABLE a (x INT) WITH ('url' = '${FOLDER}/${NAME:-a}.jsonl'); INSERT INTO a VALUES (1)"
    SingleThreadRuntime(lambda provider: provider.sql("s").run(text)).execute()
    assert (tmp_path / "a.jsonl").read_text() == '{"x": 1}\n'


KNOWN = "CREATE TABLE a (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'a.jsonl');"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("SELEC 1", ["1:1: expected a statement"]),
        ("SELECT 1", ["1:1: nothing reads the rows of this query; write INSERT INTO"]),
        (f"{KNOWN} INSERT INTO a SELECT y, z FROM a", ["no column 'y'", "no column 'z'"]),
        (f"{KNOWN} INSERT INTO b SELECT x FROM a", ["no table 'b'; CREATE TABLE makes one"]),
        (f"{KNOWN} INSERT INTO a SELECT x FROM a", ["1 column for 2 columns of 'a'"]),
        (f"{KNOWN} INSERT INTO a SELECT ts, x FROM a", ["'x' of 'a' is INT, not TIMESTAMP(3)", "'ts' of 'a'"]),
        (f"{KNOWN} CREATE TABLE a (x INT)", ["'a' exists already"]),
        (
            f"{KNOWN} INSERT INTO a SELECT /*+ STATE_TTL('a' = '1d') */ x, ts FROM a",
            ["there is no hint STATE_TTL; each state ends"],
        ),
        (f"{KNOWN} INSERT INTO a SELECT x, ts FROM a /*+ OPTIONS('a' = 'b') */", ["has no option 'a'"]),
        (f"{KNOWN} INSERT INTO a SELECT x, MAX(ts) FROM a GROUP BY x", ["GROUP BY without a window is not supported"]),
        (f"{KNOWN} INSERT INTO a SELECT x, ts FROM a WHERE COUNT(*) > 1", ["COUNT is an aggregate"]),
        (f"{KNOWN} INSERT INTO a SELECT DISTINCT x, ts FROM a", ["SELECT DISTINCT without a window is not supported"]),
        (f"{KNOWN} INSERT INTO a SELECT x, ts FROM a ORDER BY x LIMIT 3", ["ORDER BY needs an input that ends"]),
        (f"{KNOWN} INSERT INTO a SELECT l.x, l.ts FROM a l JOIN a r ON l.x = r.x", ["a join without a bound in time"]),
        ("CREATE TABLE a (x INT, x INT) WITH ('url' = 'a.jsonl')", ["two columns are called 'x'"]),
        ("CREATE TABLE a (x INT, WATERMARK FOR x AS x) WITH ('url' = 'a.jsonl')", ["INT is not a time; use TIMESTAMP"]),
        (
            "CREATE TABLE a (ts TIMESTAMP(3), WATERMARK FOR ts AS ts + INTERVAL '1' DAY) WITH ('url' = 'a.jsonl')",
            ["a watermark follows its column at a constant distance"],
        ),
        ("CREATE TABLE a (x INT, PRIMARY KEY (x) NOT ENFORCED)", ["PRIMARY KEY is not supported"]),
        (
            "CREATE TABLE a (x INT) WITH ('url' = '${NO_SUCH_NAME}')",
            ["option 'url' needs the variable NO_SUCH_NAME, which is not set"],
        ),
        ("CREATE FUNCTION f AS 'no.such.module:f'", ["'no.such.module' can't be imported"]),
        (
            "CREATE FUNCTION f AS 'com.shop.Dear'",
            ["No module named 'com'; write the module and the name"],
        ),
        ("CREATE FUNCTION f AS 'math:pi'", ["'pi' of 'math' is 3.141592653589793, and not a function"]),
        ("CREATE FUNCTION f AS 'math:sqrt'", ["parameter 'x' of function 'f' is not annotated; types with a column"]),
        ("CREATE FUNCTION f AS 'math:sinn'", ["'math' has no function 'sinn'; did you mean 'sin'?"]),
        (
            f"{KNOWN} INSERT INTO a (x) SELECT t.y FROM (VALUES (1 / 0), (1), (CAST('z' AS INT))) AS t(y)",
            ["VALUES can't be computed: division by zero in '1 / 0'", "'z' is not of type INT in \"CAST('z' AS INT)\""],
        ),
        ("SET 'table.exec.state.ttl' = '1 d'", ["no key 'table.exec.state.ttl'; each state"]),
        (
            "SELECT 1; SELEC; CREATE STREAM s (x INT)",
            ["nothing reads the rows", "expected a statement", "CREATE STREAM"],
        ),
    ],
)
@pytest.mark.fault("U2")
def test_the_faults_of_a_text_are_told_together(text: str, faults: list[str]) -> None:
    found = faults_of(text)
    assert len(found) == len(faults), found
    for it, words in zip(found, faults, strict=True):
        assert words in it


TIMED = """
CREATE TABLE l (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'l.jsonl');
CREATE TABLE r (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'r.jsonl');
CREATE TABLE o (x BIGINT) WITH ('url' = 'o.jsonl');
"""
NUMBERED = """SELECT x, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x) AS n
FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '1' SECOND))"""


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELECT l.x FROM l JOIN r USING (x)", "USING is not supported; write ON"),
        (
            "SELECT COUNT(x, ts) FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
            "GROUP BY window_start, window_end",
            "no COUNT(INT, TIMESTAMP(3))",
        ),
        (
            "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE l PARTITION BY x, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
            "GROUP BY window_start, window_end",
            "TUMBLE has no PARTITION BY; write GROUP BY",
        ),
        (
            "SELECT x FROM (SELECT x, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x) AS n "
            "FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '1' SECOND))) WHERE n < NULL",
            "the number of a row is compared with a limit",
        ),
        (NUMBERED, "the number of a row needs a limit; write WHERE n <= 3 around the query"),
        (f"{NUMBERED} UNION ALL SELECT 1, 1", "the number of a row needs a limit"),
        (f"SELECT l.x FROM l JOIN ({NUMBERED}) r ON l.x = r.x", "the number of a row needs a limit"),
    ],
)
def test_queries_over_time_that_would_be_wrong_are_refused(query: str, fault: str) -> None:
    found = faults_of(f"{TIMED} INSERT INTO o {query}")
    assert len(found) == 1, found
    assert fault in found[0]


def test_an_insert_after_a_query_that_reads_the_table_is_refused() -> None:
    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.run("CREATE TABLE a (x INT)")
        sql.query("q", "SELECT x FROM a").rows().sink("out", VecSink())
        sql.run("INSERT INTO a VALUES (1)")

    with pytest.raises(SqlError, match="'a' has been read: write INSERT INTO before the queries that read the table"):
        SingleThreadRuntime(build).execute()


def test_rows_of_equal_times_are_joined() -> None:
    text = """
    CREATE TABLE l (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND) WITH ('url' = 'l.jsonl');
    CREATE TABLE r (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND) WITH ('url' = 'r.jsonl');
    CREATE TABLE o (x INT, y INT) WITH ('url' = 'o.jsonl');
    INSERT INTO o SELECT l.x, r.x FROM l JOIN r ON l.ts = r.ts AND l.x = r.x;
    """
    left = [(1, "2026-03-01 00:00:01"), (2, "2026-03-01 00:00:02")]
    right = [(1, "2026-03-01 00:00:02"), (2, "2026-03-01 00:00:02")]
    assert run_sql(text, {"l": left, "r": right}) == {"o": [{"x": 2, "y": 2}]}


def test_times_are_compared_where_windows_are_joined() -> None:
    rows = "(SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND)))"
    text = f"""
    CREATE TABLE l (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'l.jsonl');
    CREATE TABLE r (y INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 'r.jsonl');
    CREATE TABLE o (x INT, y INT) WITH ('url' = 'o.jsonl');
    INSERT INTO o SELECT l.x, r.y FROM {rows.format("l")} l JOIN {rows.format("r")} r
      ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.ts < r.ts;
    """
    right = [(1, "2026-03-01 00:00:01"), (2, "2026-03-01 00:00:06")]
    assert run_sql(text, {"l": [(5, "2026-03-01 00:00:05")], "r": right}) == {"o": [{"x": 5, "y": 2}]}


def test_rows_are_joined_with_the_window_that_ends_at_their_time() -> None:
    text = """
    CREATE TABLE l (x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND) WITH ('url' = 'l.jsonl');
    CREATE TABLE o (x INT, ts TIMESTAMP(3)) WITH ('url' = 'o.jsonl');
    INSERT INTO o SELECT l.x, l.ts FROM l JOIN (
      SELECT x, window_end FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '5' SECOND))
      GROUP BY x, window_start, window_end
    ) w ON l.x = w.x WHERE l.ts >= w.window_end AND l.ts < w.window_end + INTERVAL '2' SECOND
    """
    rows = [(1, f"2026-03-01 00:00:0{second}") for second in ("4", "4.999", "5", "6.999", "7")]
    found = run_sql(text, {"l": rows})["o"]
    assert [f"{it['ts']:%S.%f}" for it in found] == ["05.000000", "06.999000"]


@pytest.mark.fault("U5")
def test_a_parameter_that_the_text_lacks_is_refused() -> None:
    with pytest.raises(GraphError, match="query 'q' has no parameter :flor; remove flor="):
        rows_of("SELECT id FROM t", flor=1)


def test_two_tables_of_one_name_are_refused() -> None:
    def build(provider: Any) -> None:
        sql = provider.sql("s")
        for name in ("one", "two"):
            sql.table("t", provider.new_stream().source(name, SingleIteratorSource([])), "id BIGINT")

    with pytest.raises(GraphError, match="there is a table 't' already"):
        SingleThreadRuntime(build).execute()


def test_a_schema_with_a_fault_is_shown() -> None:
    with pytest.raises(SqlError, match=r"the schema of t:1:4: expected a type; write STRING, got TEXT"):
        rows_of("SELECT 1", schema="id TEXT")


@pytest.mark.parametrize(("options", "key"), [("", None), (", 'key' = 'town'", b"Ulm")])
def test_the_key_of_a_topic_is_an_option(options: str, key: bytes | None) -> None:
    text = f"""CREATE TABLE t (town STRING, n BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('url' = 'x.jsonl');
    CREATE TABLE o (town STRING, n BIGINT) WITH ('url' = 'kafka://broker/o', 'format' = 'json'{options});
    INSERT INTO o SELECT town, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE))
    GROUP BY window_start, window_end, n, town"""
    graph = Graph()
    StreamProvider(graph).sql("s").run(text)
    graph.close()
    sinks: list[Any] = [it.node.sink.impl for it in graph.vertices if isinstance(it.node, SinkNode)]
    ((_, found, raw, _, _),) = sinks[0].encode([(1, None)], [{"town": "Ulm", "n": 2}], [0])
    assert (found, json.loads(raw)) == (key, {"town": "Ulm", "n": 2})


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("STDDEV_POP(DISTINCT x)", 1.0),
        ("VAR_SAMP(DISTINCT x)", 2.0),
        ("AVG(DISTINCT x)", 2.0),
        ("SUM(DISTINCT x)", 4.0),
        ("COUNT(DISTINCT x)", 2),
        ("MAX(DISTINCT x)", 3.0),
        ("FIRST_VALUE(DISTINCT x)", 1.0),
        ("STDDEV_POP(x)", 0.8660254037844386),
        ("LAST_VALUE(x)", 3.0),
        ("COUNT(x) + COUNT(*)", 9),
    ],
)
def test_aggregates_take_each_value_or_each_distinct_one(aggregate: str, expected: Any) -> None:
    text = f"""
    CREATE TABLE t (x DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 't.jsonl');
    CREATE TABLE o (y {"BIGINT" if "COUNT" in aggregate else "DOUBLE"}) WITH ('url' = 'o.jsonl');
    INSERT INTO o SELECT {aggregate} FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))
    GROUP BY window_start, window_end;
    """
    rows = [(x, f"2026-03-01 00:00:0{at}") for at, x in enumerate([None, 1.0, 1.0, 1.0, 3.0])]
    assert run_sql(text, {"t": rows}) == {"o": [{"y": pytest.approx(expected)}]}


@pytest.mark.parametrize(
    ("value", "written"),
    [("12345678901.25", "12345678901.25"), ("0.1", "0.1"), ("12345678901234567.25", '"12345678901234567.25"')],
)
def test_a_decimal_is_a_number_of_json_unless_it_would_be_rounded(value: str, written: str, tmp_path: Path) -> None:
    text = f"""
    CREATE TABLE a (x DECIMAL(38, 2)) WITH ('url' = '{tmp_path / "a.jsonl"}');
    INSERT INTO a SELECT CAST({value} AS DECIMAL(38, 2));
    """
    SingleThreadRuntime(lambda provider: provider.sql("s").run(text)).execute()
    assert (tmp_path / "a.jsonl").read_text() == f'{{"x": {written}}}\n'


def test_timestamps_of_results_become_datetimes_again() -> None:
    found: list[Any] = []
    values = [(1, datetime(2026, 3, 1, 0, 0, 1)), (2, datetime(2026, 3, 1, 0, 0, 12))]

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        stream = provider.new_stream().source("values", SingleIteratorSource(values))
        timed = stream.event_time("times", 1, out_of_orderness="0s")
        sql.table("t", timed, "id BIGINT, ts TIMESTAMP(3)", time="ts")
        rows = sql.query("q", "SELECT id FROM t").rows(tuple)
        again = rows.convert_timestamps("again", lambda at: datetime(1970, 1, 1) + timedelta(milliseconds=at))
        again.inspect("seen", lambda message, _: found.append(message.timestamp)).sink("out", VecSink())

    SingleThreadRuntime(build).execute()
    assert found == [at for _, at in values]
