"""Statements that are no queries: what they change, what they answer, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime
from malflow.connectors.kafka.reader import KafkaRecord
from malflow.graph import Graph
from malflow.nodes import EpochsNode
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from malflow.streams.stream import StreamProvider
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


def answers_of(text: str, tables: str = TABLES) -> list[str]:
    """Return what statements answer."""
    found: list[str] = []
    graph_of(text, tables, found.append)
    return found


def graph_of(text: str, tables: str = TABLES, tell: Any = print) -> Graph:
    """Return the graph of statements."""
    graph = Graph()
    StreamProvider(graph).sql("shop").run(tables + text, tell=tell)
    graph.complete()
    return graph


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


LATE = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('url' = 't.jsonl', 'late' = 'lost');"
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
        (f"{LATE} DROP TABLE t; {LATE} DESCRIBE lost", "ts  TIMESTAMP(3)"),
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
        (f"{LATE} INSERT INTO two SELECT 1 FROM lost; DROP TABLE t", "'lost' is read or written above"),
        ("EXPLAIN ESTIMATED_COST SELECT 1", "there is no ESTIMATED_COST, as there is one plan; write EXPLAIN"),
        ("EXPLAIN CREATE TABLE t (x INT)", "EXPLAIN takes a query, INSERT INTO or a statement set"),
        ("EXPLAIN SELECT nope FROM bids", "no column 'nope'"),
    ],
)
def test_statements_about_unknown_things_are_refused(statement: str, fault: str) -> None:
    (found,) = faults_of(f"{ASKED} {statement}")
    assert found.startswith(fault)


NUMBERS = """
CREATE TABLE t (x INT) WITH ('url' = 't.jsonl');
CREATE TABLE o (x INT) WITH ('url' = 'o.jsonl');
"""


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO o SELECT /*+ ON_ERROR('skip') */ 6 / x FROM t",
        "INSERT INTO o SELECT /*+ ON_ERROR('skip') */ n FROM (SELECT 6 / x AS n FROM t)",
        "INSERT INTO o SELECT n FROM (SELECT /*+ ON_ERROR('dead_letter') */ 6 / x AS n FROM t)",
        "INSERT INTO o SELECT /*+ ON_ERROR('skip') */ 6 FROM t WHERE 6 / x > 0 UNION ALL SELECT 3 FROM t WHERE x = 3",
        "SET 'malflow.on-error' = 'skip'; INSERT INTO o SELECT 6 / x FROM t",
        "SET 'malflow.on-error' = 'skip'; CREATE VIEW v AS SELECT 6 / x AS n FROM t; INSERT INTO o SELECT n FROM v",
        "INSERT INTO o SELECT /*+ ON_ERROR('skip') */ CASE WHEN x = 0 THEN 4294967296 ELSE 6 END FROM t",
    ],
)
def test_rows_that_fail_are_dropped_where_the_text_says_so(text: str) -> None:
    found = run_sql(NUMBERS + text, {"t": [(0,), (1,)]})
    assert found == {"o": [{"x": 6}]}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW v AS SELECT 6 / x AS n FROM t; INSERT INTO o SELECT /*+ ON_ERROR('skip') */ n FROM v",
        "INSERT INTO o WITH v AS (SELECT 6 / x AS n FROM t) SELECT /*+ ON_ERROR('skip') */ n FROM v",
        "INSERT INTO o SELECT n FROM (SELECT /*+ ON_ERROR('fail') */ 6 / x AS n FROM t)",
        "INSERT INTO o SELECT /*+ ON_ERROR('skip') */ x FROM t UNION ALL SELECT 6 / x FROM t",
        "INSERT INTO o SELECT 6 / x FROM t; SET 'malflow.on-error' = 'skip'",
    ],
)
def test_the_policy_of_a_query_is_for_itself_and_its_subqueries(text: str) -> None:
    with pytest.raises(OperatorError, match="division by zero"):
        run_sql(NUMBERS + text, {"t": [(0,), (1,)]})


def test_explain_shows_the_policy() -> None:
    (found,) = answers_of("EXPLAIN SELECT /*+ ON_ERROR('skip') */ 6 / id FROM bids")
    assert cells(found)[0] == ["calc", "append", "shop.calc", "state: none; rows that fail: skip"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("SELECT /*+ ON_ERROR('skp') */ 1", "the hint ON_ERROR takes 'fail', 'skip', 'dead_letter'; got 'skp'"),
        ("SELECT /*+ ON_ERROR */ 1", "the hint ON_ERROR has one text in it: ON_ERROR('skip')"),
        ("SELECT /*+ ON_EROR('skip') */ 1", "there is no hint ON_EROR; did you mean ON_ERROR?"),
        ("SELECT /*+ ON_ERROR('skip'), on_error('fail') */ 1", "the hint ON_ERROR comes twice"),
        (
            "SELECT /*+ OPTIONS('start' = 'latest') */ 1",
            "the hint OPTIONS is written after a table, as in FROM bids /*+",
        ),
        (
            "SELECT * FROM bids /*+ ON_ERROR('skip') */",
            "the hint ON_ERROR is written after SELECT, as in SELECT /*+ ON",
        ),
        ("SELECT /*+ BROADCAST(bids) */ id FROM bids", "there is no hint BROADCAST; there is one way to join"),
        (
            "SELECT /*+ STATE_TTL('bids' = '1 d') */ id FROM bids",
            "there is no hint STATE_TTL; each state ends with its",
        ),
    ],
)
def test_hints_without_a_meaning_are_refused(text: str, fault: str) -> None:
    (found,) = faults_of(f"INSERT INTO one {text}")
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("malflow.on-error", "ignore", "malflow.on-error is one of 'fail', 'skip', 'dead_letter'; got 'ignore'"),
        ("malflow.on_error", "skip", "there is no key 'malflow.on_error'; did you mean 'malflow.on-error'?"),
        (
            "table.exec.source.idle-timeout",
            "10",
            "table.exec.source.idle-timeout is a span with its unit, as in '10 s'",
        ),
        ("table.exec.source.idle_timeout", "10 s", "did you mean 'table.exec.source.idle-timeout'?"),
        ("table.local-time-zone", "Europe/Prague", "table.local-time-zone is 'UTC' only: the time zone is UTC; got"),
        ("execution.runtime-mode", "batch", "execution.runtime-mode is 'streaming' only: rows are computed as they"),
        ("pipeline.name", "shop", "name the job: malflow run --job NAME, or job in malflow.toml"),
        ("parallelism.default", "4", "write malflow run --parallelism N"),
        ("execution.checkpointing.interval", "10 s", "write malflow run --persistence URL --snapshots 10s"),
        ("table.exec.state.ttl", "1 d", "each state ends with its windows, or with its bounds in time"),
        ("sql-client.execution.result-mode", "tableau", "malflow sql has options of its own"),
        ("taskmanager.numberOfTaskSlots", "4", "there is no cluster"),
        ("nothing.like.this", "1", "there is no key 'nothing.like.this'; there are 'malflow.on-error', 'table.exec"),
    ],
)
def test_keys_of_set_without_a_meaning_are_refused(key: str, value: str, fault: str) -> None:
    (found,) = faults_of(f"SET '{key}' = '{value}'")
    assert fault in found


def test_keys_of_set_that_hold_anyway_are_taken() -> None:
    text = "SET 'execution.runtime-mode' = 'streaming'; SET 'table.local-time-zone' = 'UTC';"
    assert run_sql(f"{text} {NUMBERS} INSERT INTO o SELECT x FROM t", {"t": [(1,)]}) == {"o": [{"x": 1}]}


# Options, metadata, and tables that are like others


def connections_of(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """Return the sources and sinks that a text connects: the table, the URL and the options of each."""
    found: list[tuple[str, str, dict[str, str]]] = []

    def connected(name: str, url: str, options: dict[str, str]) -> Any:
        found.append((name, url, options))
        return VecSink() if name in {"one", "two"} else ScriptedSource(BIDS)

    SingleThreadRuntime(lambda provider: provider.sql("shop", connect=connected).run(text)).execute()
    return found


def test_a_table_is_read_with_options_of_its_own() -> None:
    text = f"""{TABLES}
        INSERT INTO one SELECT id FROM bids;
        INSERT INTO two SELECT id FROM bids /*+ OPTIONS('encoding' = 'latin-1') */ AS late WHERE id > 1;
    """
    assert connections_of(text) == [
        ("bids", "bids.jsonl", {}),
        ("bids", "bids.jsonl", {"encoding": "latin-1"}),
        ("one", "one.jsonl", {}),
        ("two", "two.jsonl", {}),
    ]
    assert {"shop.bids", "shop.bids.watermark", "shop.two.late", "shop.two.late.watermark"} <= {
        it.node.name for it in graph_of(text, "").vertices
    }


def test_readings_with_equal_options_share_a_source() -> None:
    reading = "INSERT INTO one SELECT id FROM bids /*+ OPTIONS('start' = 'latest') */;"
    assert len(connections_of(TABLES + 2 * reading)) == 2


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ("SELECT id FROM bids /*+ OPTIONS('start') */", "OPTIONS has keys with values, as in OPTIONS('start' = 'la"),
        ("SELECT id FROM v /*+ OPTIONS('start' = 'latest') */", "OPTIONS belong to a table with a URL"),
        (
            "SELECT l.id FROM bids /*+ OPTIONS('a' = 'b') */ JOIN bids /*+ OPTIONS('a' = 'c') */ ON TRUE",
            "'bids' is read with other options above; give it an alias",
        ),
        ("SELECT id FROM bids /*+ OPTIONS('password' = 'hush') */", "option 'password' has a secret that is written"),
    ],
)
def test_options_of_a_reading_that_are_wrong_are_refused(statements: str, fault: str) -> None:
    (found,) = faults_of(f"CREATE VIEW v AS SELECT id FROM bids; INSERT INTO one {statements}")
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("'encodng' = 'utf-8'", "SQL:2:17: connect('b.jsonl') has no option 'encodng'; did you mean 'encoding'?"),
        ("'encoding' = 'nope'", "SQL:2:17: JsonLinesSource needs a text encoding; got 'nope'"),
        ("'password' = 'hush'", "SQL:2:17: option 'password' has a secret that is written in the text; write ${NAME}"),
        ("'encoding' = 'utf-8', 'encoding' = 'utf-8'", "SQL:2:39: option 'encoding' comes twice"),
        ("'encoding' = '${'", "SQL:2:17: option 'encoding' has a malformed '${'; write ${NAME}"),
    ],
)
def test_a_wrong_option_is_shown_with_its_place(option: str, fault: str) -> None:
    text = f"CREATE TABLE t (x INT) WITH ('url' = 'b.jsonl',\n                {option}); "
    with pytest.raises(SqlError) as caught:
        answers_of(f"{text} CREATE TABLE one (x INT); INSERT INTO one SELECT x FROM t", "")
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ("'connector' = 'kafka', 'topic' = 'x'", "write 'url' = 'kafka://broker:9092/topic', 'format' = 'json'"),
        ("'connector' = 'datagen'", "write 'url' = 'bids.jsonl', or a source in Python"),
        ("'urll' = 'bids.jsonl'", "did you mean 'url'?"),
        ("'format' = 'json'", "add 'url' = 'kafka://broker/bids' or the like"),
    ],
)
def test_options_without_a_url_are_refused_with_one(options: str, cure: str) -> None:
    (found,) = faults_of(f"CREATE TABLE t (x INT) WITH ({options})")
    assert cure in found


def test_no_error_shows_a_password() -> None:
    text = "CREATE TABLE t (x INTT) WITH ('url' = 'kafka://me:hush@a/t', 'settings.sasl.password' = 'psst')"
    for wrong in (text, text.replace("INTT", "INT")):
        with pytest.raises(SqlError) as caught:
            graph_of(wrong, "")
        assert "hush" not in str(caught.value)
        assert "psst" not in str(caught.value)
        assert "kafka://me:****@a/t" in str(caught.value)


IDLE = "SET 'table.exec.source.idle-timeout' = '{}';"


@pytest.mark.parametrize(("value", "seconds"), [("10 s", 10), ("250ms", 0.25), ("2 min", 120), ("0 s", None)])
def test_idle_sources_are_left_behind(value: str, seconds: float | None) -> None:
    text = f"{TABLES} {IDLE.format(value)} INSERT INTO one SELECT id FROM bids"
    graph = graph_of(text, "")
    (node,) = (it.node for it in graph.vertices if isinstance(it.node, EpochsNode))
    assert (node.idle_after, node.second) == ((None, None) if seconds is None else (timedelta(seconds=seconds), 1000))


def test_the_timeout_of_sources_stands_before_they_are_read() -> None:
    sql = StreamProvider(Graph()).sql("s")
    sql.run(f"{TABLES} INSERT INTO one SELECT id FROM bids")
    with pytest.raises(SqlError, match="idle-timeout is for all sources; write it before the queries that read them"):
        sql.run(IDLE.format("10 s"))


FACTS = """
CREATE TABLE t (
  stamp TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, id BIGINT, `offset` BIGINT METADATA VIRTUAL,
  who STRING METADATA FROM 'key' VIRTUAL, headers MAP<STRING, BYTES> METADATA VIRTUAL, twice AS id * 2,
  topic STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL, WATERMARK FOR stamp AS stamp
) WITH ('url' = 'kafka://a:9092/t', 'format' = 'json');
CREATE TABLE o (stamp TIMESTAMP_LTZ(3), id BIGINT, at BIGINT, who STRING, headers MAP<STRING, BYTES>, twice BIGINT,
  topic STRING, part INT) WITH ('url' = 'o.jsonl');
INSERT INTO o SELECT * FROM t;
"""


class Records(ScriptedSource):
    """Records of Kafka without a broker."""

    connector = "kafka"


def test_metadata_of_kafka_are_columns() -> None:
    record = KafkaRecord("me", {"id": 7}, "t", 3, 12, 1_767_225_600_250, (("a", b"b"),))
    sink, options = VecSink[Any, Any, Any](), dict[str, str]()

    def connected(name: str, _url: str, given: dict[str, str]) -> Any:
        options.update(given)
        return Records([record]) if name == "t" else sink

    SingleThreadRuntime(lambda provider: provider.sql("s", connect=connected).run(FACTS)).execute()
    stamp = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    assert options == {"format": "json", "emit": "record", "decode_key": "text"}
    assert [tuple(it.values()) for it in sink.values] == [(stamp, 7, 12, "me", {"a": b"b"}, 14, "t", 3)]


def test_lists_have_metadata_as_columns() -> None:
    row = {"stamp": 5, "id": 7, "offset": 1, "who": None, "headers": None, "topic": "t", "partition": 0}
    (found,) = run_sql(FACTS, {"t": [row]})["o"]
    assert (found["id"], found["twice"], found["topic"]) == (7, 14, "t")


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("x INT METADATA FROM 'ofset' VIRTUAL", "no metadata 'ofset'; did you mean 'offset'?"),
        ("x TIMESTAMP(6) METADATA FROM 'timestamp' VIRTUAL", "the metadata 'timestamp' is TIMESTAMP_LTZ(3), not TIME"),
        ("headers STRING METADATA VIRTUAL", "the metadata 'headers' is MAP<STRING, BYTES>, not STRING"),
    ],
)
def test_metadata_that_do_not_fit_are_refused(column: str, fault: str) -> None:
    (found,) = faults_of(f"CREATE TABLE t (id INT, {column}) WITH ('url' = 'kafka://a/t')")
    assert found.startswith(fault)


def test_metadata_of_other_connectors_are_refused() -> None:
    (found,) = faults_of("CREATE TABLE t (id INT, topic STRING METADATA VIRTUAL) WITH ('url' = 't.jsonl')")
    assert found.startswith("METADATA columns are of Kafka's records only")


def test_inserts_fill_the_columns_that_are_stored() -> None:
    text = """
        CREATE TABLE o (id INT, twice AS id * 2, `offset` BIGINT METADATA VIRTUAL) WITH ('url' = 'kafka://a/o');
        INSERT INTO o SELECT 7
    """
    assert run_sql(text, {}) == {"o": [{"id": 7}]}
    (found,) = faults_of(text.replace("METADATA VIRTUAL", "METADATA"))
    assert found == "'o' has a column 'offset' of METADATA, which is read only; write VIRTUAL after it"


LIKE = """CREATE TABLE base (id INT, twice AS id * 2, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('url' = 'a.jsonl', 'encoding' = 'utf-8');"""


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        ("t LIKE base", ["id INT", "twice INT", "ts TIMESTAMP(3) time ts - INTERVAL '5' SECOND"]),
        (
            "t (more STRING) LIKE base (EXCLUDING GENERATED)",
            ["id INT", "ts TIMESTAMP(3) time ts - INTERVAL '5' SECOND", "more STRING"],
        ),
        ("t LIKE base (EXCLUDING ALL INCLUDING OPTIONS)", ["id INT", "ts TIMESTAMP(3)"]),
        (
            "t (twice AS id * 3, WATERMARK FOR ts AS ts) LIKE base (OVERWRITING GENERATED OVERWRITING WATERMARKS)",
            ["id INT", "twice INT", "ts TIMESTAMP(3) time ts"],
        ),
    ],
)
def test_a_table_is_like_another(made: str, columns: list[str]) -> None:
    (found,) = answers_of(f"{LIKE} CREATE TABLE {made}; DESCRIBE t")
    assert [" ".join(it) for it in cells(found)] == columns


def test_options_of_a_table_overwrite_the_ones_it_is_like() -> None:
    text = f"{TABLES} {LIKE} CREATE TABLE t WITH ('url' = 'b.jsonl') LIKE base; INSERT INTO one SELECT id FROM t"
    assert connections_of(text)[0] == ("t", "b.jsonl", {"encoding": "utf-8"})
    none = text.replace("LIKE base;", "LIKE base (EXCLUDING OPTIONS);")
    assert connections_of(none)[0] == ("t", "b.jsonl", {})


def test_a_table_is_like_one_of_another_text() -> None:
    found: list[str] = []

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.run(LIKE)
        sql.run("CREATE TABLE t (more INT) LIKE base; DESCRIBE t", tell=found.append)

    SingleThreadRuntime(build).execute()
    assert [it[0] for it in cells(found[0])] == ["id", "twice", "ts", "more"]


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        ("t LIKE bas", "no table 'bas'; did you mean 'base'?"),
        ("t (id STRING) LIKE base", "base has id too; remove it, or rename it"),
        ("t (twice AS 1) LIKE base", "base has twice too; rename it, or write LIKE base (EXCLUDING GENERATED)"),
        (
            "t (WATERMARK FOR ts AS ts) LIKE base",
            "base has a watermark too; rename it, or write LIKE base (EXCLUDING WA",
        ),
        ("t WITH ('url' = 'b') LIKE base (INCLUDING OPTIONS)", "base has the option 'url' too; write LIKE base (OVER"),
        ("t AS SELECT 1", "CREATE TABLE ... AS SELECT is not supported; write CREATE VIEW"),
        (
            "t (x INT, PRIMARY KEY (x) NOT ENFORCED)",
            "PRIMARY KEY is not supported: rows are added, none is replaced; re",
        ),
    ],
)
def test_tables_that_can_not_be_like_another_are_refused(made: str, fault: str) -> None:
    (found,) = faults_of(f"{LIKE} CREATE TABLE {made}")
    assert found.startswith(fault)


# Faults that follow from others


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (x INTT); INSERT INTO one SELECT x FROM t; INSERT INTO t SELECT 1; DESCRIBE t; DROP TABLE t",
        "CREATE TABLE t (x INT, x INT); CREATE VIEW v AS SELECT x FROM t; INSERT INTO one SELECT x FROM v",
        "CREATE TEMPORARY VIEW IF NOT EXISTS v AS SELECT id, FROM bids; INSERT INTO one SELECT id FROM v",
        "CREATE FUNCTION f AS 'no.such:f'; INSERT INTO one SELECT f(id) FROM bids WHERE f(id) > 1",
        "CREATE TABLE t (id INT, ts TIMESTAMP(3)); INSERT INTO t SELECT nope, ts FROM bids;"
        f"INSERT INTO one SELECT 1 {WINDOW.format('t')}",
        "CREATE TABLE t (id INT, ts TIMESTAMP(3)); INSERT INTO t SELECT id, FROM bids;"
        f"INSERT INTO one SELECT 1 {WINDOW.format('t')}",
        "CREATE TABLE t (x INTT); CREATE TABLE u LIKE t; INSERT INTO one SELECT x FROM u /*+ OPTIONS('a' = 'b') */",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO one SELECT id, FROM bids; INSERT INTO two SELECT id FROM bids; END",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO one SELECT nope FROM bids; INSERT INTO two SELECT id FROM bids; END",
        "INSERT INTO one SELECT id FROM bids WHERE id ILIKE 'a'",
    ],
)
def test_a_fault_is_told_without_the_ones_that_follow_from_it(text: str) -> None:
    assert len(faults_of(text)) == 1


def test_faults_beside_one_that_others_follow_from_are_told() -> None:
    text = "CREATE TABLE t (x INTT); INSERT INTO t SELECT nope FROM bids; INSERT INTO one SELECT x FROM t, nothing"
    assert [it.partition(";")[0] for it in faults_of(text)] == ["expected a type", "no column 'nope'"]


def test_a_text_that_failed_leaves_no_doubt_for_the_next() -> None:
    sql = StreamProvider(Graph()).sql("s")
    for _ in range(2):
        with pytest.raises(SqlError, match="expected a type"):
            sql.run("CREATE TABLE t (x INTT)")
    with pytest.raises(SqlError, match="no table 't'"):
        sql.query("q", "SELECT x FROM t")
