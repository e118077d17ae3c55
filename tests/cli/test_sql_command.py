"""``malflow sql``: paths and URLs in quotes are tables, and the rows of queries are shown."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from malflow.cli.sql.guessing import create_table, of_rows, of_schema, of_texts
from malflow.sql.bind.scope import Field
from malflow.sql.build.doors import Door
from malflow.sql.parser.statements import parse
from malflow.sql.syntax.queries import ColumnDef, CreateTable
from malflow.sql.text import Source
from tests.cli.conftest import Malflow, environment

BIDS: list[dict[str, Any]] = [
    {"auction": 1, "price": 10.5, "channel": "web", "ts": "2026-03-01 00:00:30"},
    {"auction": 2, "price": 20, "channel": "app", "ts": "2026-03-01 00:01:30"},
    {"auction": 3, "price": 5, "channel": "web", "ts": "2026-03-01 00:02:30"},
    {"auction": 4, "price": None, "channel": None, "ts": "2026-03-01 00:03:30.5"},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with bids as JSON lines and CSV."""
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{json.dumps(it)}\n" for it in BIDS)
    Path("bids.jsonl").write_text(lines)
    Path("bids.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    Path("data").mkdir()
    Path("data/a.jsonl").write_text(lines)
    head = "auction,price,channel,ts\n"
    rows = (",".join("" if it is None else str(it) for it in row.values()) for row in BIDS)
    Path("bids.csv").write_text(head + "".join(f"{it}\n" for it in rows))
    return tmp_path


def rows_of(malflow: Malflow, text: str) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    done = malflow("sql", "--json", "-c", text)
    assert done.code == 0, done.err
    return [json.loads(it) for it in done.out.splitlines()]


# tables


@pytest.mark.parametrize("path", ["bids.jsonl", "bids.jsonl.gz", "data/*.jsonl", "bids.jsonl?encoding=utf-8"])
def test_a_path_is_a_table(malflow: Malflow, path: str) -> None:
    times = [f"{it['ts']}.000" if "." not in it["ts"] else f"{it['ts']}00" for it in BIDS]
    expected = [{**it, "ts": at} for it, at in zip(BIDS, times, strict=True)]
    assert rows_of(malflow, f"SELECT * FROM '{path}'") == expected


def test_csv_has_the_types_of_its_values(malflow: Malflow) -> None:
    text = "SELECT auction + 1 AS n, price * 2 AS twice, channel, YEAR(ts) AS y FROM 'bids.csv' WHERE price IS NOT NULL"
    first, *_, last = rows_of(malflow, text)
    assert first == {"n": 2, "twice": 21.0, "channel": "web", "y": 2026}
    assert last == {"n": 4, "twice": 10.0, "channel": "web", "y": 2026}


def test_the_name_of_a_file_is_the_name_of_its_table(malflow: Malflow) -> None:
    text = "SELECT bids.auction, b.price FROM 'bids.jsonl' JOIN 'bids.csv' AS b ON bids.auction = b.auction"
    done = malflow("sql", "-c", text)
    assert "a join without a bound in time" in done.err
    assert rows_of(malflow, "SELECT bids.auction FROM 'data/../bids.jsonl' LIMIT 1") == [{"auction": 1}]


def test_standard_input_is_a_table(malflow: Malflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 1}\n\n{"a": 2}\n'))
    assert rows_of(malflow, "SELECT a * 2 AS b FROM '-'") == [{"b": 2}, {"b": 4}]
    monkeypatch.setattr(sys, "stdin", io.StringIO('a,"b c"\n1,"x\ny"\n,z\n'))
    assert rows_of(malflow, "SELECT a, `b c` AS b FROM '-'") == [{"a": 1, "b": "x\ny"}, {"a": None, "b": "z"}]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "standard input has no rows"),
        ("a,b\n", "has no rows below its header"),
        ("a,a\n1,2\n", "the field name 'a' more than once"),
        ("a,b\n1\n", "line 2 has 1 field, expected 2"),
        ('{"a": 1}\n{"a"\n', "JSONDecodeError"),
        ("[1]\n", "a row is a JSON object; got list"),
    ],
)
def test_faults_of_standard_input(malflow: Malflow, monkeypatch: pytest.MonkeyPatch, text: str, fault: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    done = malflow("sql", "-c", "SELECT * FROM '-'")
    assert done.code != 0
    assert fault in done.err


def test_a_statement_creates_tables_for_those_after_it(malflow: Malflow) -> None:
    text = """
    CREATE TABLE bids (auction BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
      WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('url' = '${BIDS:-bids}.csv');
    CREATE TABLE dear (auction BIGINT);
    CREATE TABLE out (auction BIGINT) WITH ('url' = 'out.jsonl');
    INSERT INTO dear SELECT auction FROM bids WHERE price > 6;
    INSERT INTO out SELECT auction FROM dear;
    SELECT auction FROM dear;
    SELECT window_start, SUM(price) AS total FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' MINUTE))
      GROUP BY window_start, window_end;
    """
    assert rows_of(malflow, text) == [
        {"auction": 1},
        {"auction": 2},
        {"window_start": "2026-03-01 00:00:00.000", "total": 30.5},
        {"window_start": "2026-03-01 00:02:00.000", "total": 5.0},
    ]
    assert Path("out.jsonl").read_text().split("\n") == ['{"auction": 1}', '{"auction": 2}', ""]


def test_a_file_of_statements_is_run(malflow: Malflow, folder: Path) -> None:
    (folder / "look.sql").write_text("SELECT channel FROM 'bids.jsonl' LIMIT 1")
    assert malflow("sql", "look.sql").out == "channel\n-------\nweb\n"


# what only input that ends has


def test_groups_of_input_that_ends(malflow: Malflow) -> None:
    text = "SELECT channel, COUNT(*) AS n, SUM(price) AS total FROM '{}' GROUP BY channel ORDER BY channel"
    expected = [
        {"channel": None, "n": 1, "total": None},
        {"channel": "app", "n": 1, "total": 20.0},
        {"channel": "web", "n": 2, "total": 15.5},
    ]
    assert rows_of(malflow, text.format("bids.jsonl")) == expected
    assert rows_of(malflow, "SELECT COUNT(*) AS n, MAX(ts) AS t FROM 'bids.jsonl' HAVING COUNT(*) > 3") == [
        {"n": 4, "t": "2026-03-01 00:03:30.500"}
    ]
    assert rows_of(malflow, "SELECT DISTINCT price > 6 AS dear FROM 'bids.jsonl' ORDER BY 1") == [
        {"dear": None},
        {"dear": False},
        {"dear": True},
    ]


def test_groups_of_groups(malflow: Malflow) -> None:
    inner = "SELECT channel, COUNT(*) AS n FROM 'bids.jsonl' GROUP BY channel"
    text = f"SELECT n, COUNT(*) AS channels FROM ({inner}) GROUP BY n ORDER BY n"
    assert rows_of(malflow, text) == [{"n": 1, "channels": 2}, {"n": 2, "channels": 1}]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ORDER BY price", [4, 3, 1, 2]),
        ("ORDER BY price DESC", [2, 1, 3, 4]),
        ("ORDER BY price NULLS LAST", [3, 1, 2, 4]),
        ("ORDER BY channel DESC, auction DESC", [3, 1, 2, 4]),
        ("ORDER BY 1 DESC LIMIT 2", [4, 3]),
        ("ORDER BY auction LIMIT 2 OFFSET 1", [2, 3]),
        ("ORDER BY MOD(auction, 2), bids.ts DESC", [4, 2, 3, 1]),
        ("LIMIT 3", [1, 2, 3]),
        ("OFFSET 3", [4]),
        ("LIMIT 0", []),
    ],
)
def test_order_and_limit(malflow: Malflow, order: str, expected: list[int]) -> None:
    assert [it["auction"] for it in rows_of(malflow, f"SELECT auction FROM 'bids.jsonl' {order}")] == expected


def test_order_and_groups_of_endless_input_are_refused(malflow: Malflow) -> None:
    endless = "'bids.jsonl?discover_every=1s'"
    done = malflow("sql", "-c", f"SELECT COUNT(*) FROM {endless}; SELECT auction FROM {endless} ORDER BY auction")
    assert "-c:1:8: GROUP BY without a window needs an input that ends" in done.err
    assert "ORDER BY needs an input that ends" in done.err


# forms


def test_rows_are_an_aligned_table(malflow: Malflow) -> None:
    done = malflow("sql", "-c", "SELECT auction, price, channel, price > 6 AS dear FROM 'bids.jsonl'")
    assert done.out.splitlines() == [
        "auction  price  channel  dear",
        "-------  -----  -------  -----",
        "      1   10.5  web      TRUE",
        "      2   20.0  app      TRUE",
        "      3    5.0  web      FALSE",
        "      4   NULL  NULL     NULL",
    ]
    assert done.err == "(4 rows)\n"


def test_a_table_without_rows_has_its_names(malflow: Malflow) -> None:
    done = malflow("sql", "-c", "SELECT auction FROM 'bids.jsonl' WHERE price > 100")
    assert (done.out, done.err) == ("auction\n-------\n", "(0 rows)\n")


def test_rows_as_csv(malflow: Malflow) -> None:
    text = "SELECT channel, CAST(price AS DECIMAL(6, 2)) AS p, 'a,\"b' AS q FROM 'bids.jsonl' WHERE auction > 2"
    assert malflow("sql", "--csv", "-c", text).out == 'channel,p,q\nweb,5.00,"a,""b"\n,,"a,""b"\n'


def test_control_characters_and_long_texts_are_harmless(malflow: Malflow, folder: Path) -> None:
    (folder / "odd.jsonl").write_text(json.dumps({"a\x1b[31m": "x\x1b[2J\ny\x85\x9b", "b": "z" * 500}))
    assert malflow("sql", "--json", "-c", "SELECT * FROM 'odd.jsonl'").out.rstrip("\n").isprintable()
    done = malflow("sql", "-c", "SELECT * FROM 'odd.jsonl'")
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == 3
    assert f"{'z' * 80}..." in done.out


# columns


def test_ddl_is_a_statement_that_flows_take(malflow: Malflow, folder: Path) -> None:
    ddl = malflow("sql", "--ddl", "-c", "SELECT * FROM 'bids.jsonl'").out
    assert ddl.splitlines() == [
        "CREATE TABLE bids (",
        "  auction BIGINT,",
        "  price DOUBLE,",
        "  channel STRING,",
        "  ts TIMESTAMP(3)",
        ") WITH ('url' = 'bids.jsonl');",
    ]
    made = ddl.replace("TIMESTAMP(3)", "TIMESTAMP(3), WATERMARK FOR ts AS ts")
    sink = "CREATE TABLE o (n BIGINT) WITH ('url' = 'o.jsonl');"
    (folder / "flow.sql").write_text(f"{made}{sink}INSERT INTO o SELECT auction FROM bids")
    assert malflow("run", "flow.sql").code == 0
    assert (folder / "o.jsonl").read_text().count("\n") == 4


def test_a_path_in_a_flow_is_refused_with_the_statement_to_write(malflow: Malflow, folder: Path) -> None:
    text = "CREATE TABLE o (n BIGINT) WITH ('url' = 'o.jsonl'); INSERT INTO o SELECT auction FROM 'bids.jsonl'"
    (folder / "flow.sql").write_text(text)
    done = malflow("check", "flow.sql")
    assert done.code == 3
    assert "write CREATE TABLE bids (...) WITH ('url' = 'bids.jsonl') and FROM bids" in done.err
    assert "malflow sql --ddl prints" in done.err


def test_values_of_several_types_are_texts(malflow: Malflow, folder: Path) -> None:
    lines = [{"a": 1, "b": {"x": 1}}, {"a": "x", "b": {"y": "z"}}, {"a": True, "c": [1.5]}]
    (folder / "mixed.jsonl").write_text("".join(f"{json.dumps(it)}\n" for it in lines))
    assert rows_of(malflow, "SELECT * FROM 'mixed.jsonl'") == [
        {"a": "1", "b": '{"x": 1}', "c": None},
        {"a": "x", "b": '{"y": "z"}', "c": None},
        {"a": "true", "b": None, "c": [1.5]},
    ]
    ddl = malflow("sql", "--ddl", "-c", "SELECT * FROM 'mixed.jsonl'").out
    assert "  a STRING, -- values of several types (1, 'x', True)" in ddl
    assert "  c ARRAY<DOUBLE> -- missing in some rows" in ddl


def types(guesses: Any) -> list[str]:
    """Return the types of guessed columns."""
    return [str(it.type) for it in guesses]


def test_types_of_values() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    rows = [
        [True, 1 << 62, 1 << 70, Decimal("1.25"), b"x", date(2026, 3, 1), noon, noon.replace(tzinfo=None), noon.time()],
        [None, 1, 1, 7, None, None, None, None, None],
    ]
    named = [{str(at): it for at, it in enumerate(row)} for row in rows]
    assert types(of_rows(named)) == [
        "BOOLEAN",
        "BIGINT",
        "DECIMAL(38, 0)",
        "DECIMAL(38, 2)",
        "BYTES",
        "DATE",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "TIMESTAMP(6)",
        "TIME(6)",
    ]


def test_types_of_nested_values() -> None:
    rows = [
        {"same": {"x": 1, "y": [1]}, "other": {"a": 1}, "list": [], "empty": {}},
        {"same": {"x": 2.5, "y": []}, "other": {"b": 2}, "list": [{"k": "v"}], "empty": {}},
    ]
    assert types(of_rows(rows)) == [
        "ROW<`x` DOUBLE, `y` ARRAY<BIGINT>>",
        "MAP<STRING NOT NULL, BIGINT>",
        "ARRAY<ROW<`k` STRING>>",
        "STRING",
    ]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "", "-2"], "BIGINT"),
        (["1", "2.5", "1e3", ".5"], "DOUBLE"),
        (["007", "1"], "STRING"),
        (["99999999999999999999"], "DECIMAL(38, 0)"),
        (["9" * 39], "STRING"),
        (["true", "FALSE"], "BOOLEAN"),
        (["0", "1"], "BIGINT"),
        (["2026-03-01", "2026-03-02"], "DATE"),
        (["2026-03-01T10:00:00.123456Z", "2026-03-01 10:00Z"], "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        (["2026-03-01 10:00:00", "2026-03-01 10:00:00Z"], "STRING"),
        (["2026-03-01 10:00:00+02:00", "2026-03-01 10:00:00Z"], "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        (["2026-03-01 10:00:00.1234567"], "STRING"),
        (["nan"], "STRING"),
        (["", ""], "STRING"),
    ],
)
def test_types_of_texts(texts: list[str], kind: str) -> None:
    assert types(of_texts(["a"], [[it] for it in texts])) == [kind]


def test_parquet_has_its_own_columns(malflow: Malflow, folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made = pa.table(
        {
            "n": pa.array([1, None], pa.int8()),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
            "t": pa.array([datetime(2026, 3, 1, 12), None], pa.timestamp("ms")),
            "z": pa.array([datetime(2026, 3, 1, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "s": pa.array(["a", None]).dictionary_encode(),
            "l": pa.array([[{"x": 1}], None]),
            "m": pa.array([[("k", 2)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    parquet.write_table(made, folder / "a.parquet")
    assert types(of_schema(made.schema)) == [
        "TINYINT",
        "DECIMAL(6, 2)",
        "TIMESTAMP(3)",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "STRING",
        "ARRAY<ROW<`x` BIGINT>>",
        "MAP<STRING NOT NULL, BIGINT>",
    ]
    first, second = rows_of(malflow, "SELECT * FROM 'a.parquet'")
    assert first == {
        "n": 1,
        "d": 1.5,
        "t": "2026-03-01 12:00:00.000",
        "z": "2026-03-01 12:00:00.000000Z",
        "s": "a",
        "l": [{"x": 1}],
        "m": {"k": 2},
    }
    assert {*second.values()} == {None}


def test_a_column_of_parquet_without_a_type_of_sql_is_named(malflow: Malflow, folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"d": pa.array([1], pa.duration("s"))}), folder / "a.parquet")
    assert "column 'd' is duration" in malflow("sql", "-c", "SELECT * FROM 'a.parquet'").err


# bad input


@pytest.mark.parametrize(
    ("file", "content", "path", "fault"),
    [
        ("x.csv", "", "x.csv", "'x.csv' is empty"),
        ("x.csv", "a,b\n", "x.csv", "'x.csv' has no rows to guess columns from"),
        ("x.csv", "1,2.5,x\n2,3,y\n", "x.csv", "write 'x.csv?header=no' for columns c1, c2 and so on"),
        ("x.csv", "a,b,a\n1,2,3\n", "x.csv", "the field name 'a' more than once"),
        ("x.csv", "a;b\n1;2\n", "x.csv", "write 'x.csv?delimiter=%3B'"),
        ("x.jsonl", "[1]\n", "x.jsonl", "must be an object with columns; got [1]"),
        ("x.jsonl", "{\n", "x.jsonl", "x.jsonl line 1"),
        ("x.txt", "hello\n", "x.txt", "must be an object with columns; got 'hello'"),
        ("x.parquet", "noise", "x.parquet", "cannot be read as Parquet"),
        (None, "", "bid.jsonl", "there is no file 'bid.jsonl'; did you mean 'bids.jsonl'?"),
        (None, "", "nowhere/x.csv", "there is no file 'nowhere/x.csv'"),
        (None, "", "data", "'data' is a folder; name its files: 'data/*.jsonl'"),
        (None, "", "data/*.csv", "matches no files"),
        (None, "", "", "connect needs a URL or a path"),
        (None, "", "nosuch://x", "no connector for scheme 'nosuch'"),
        (None, "", "https://x/y", "can't be read: its connector does not support it"),
        (None, "", "${NOT_SET}/x.csv", "needs the variable NOT_SET, which is not set"),
        (None, "", "bids.csv?headr=no", "no option 'headr'; did you mean 'header'?"),
        (None, "", "kafka://127.0.0.1:1/bids", "no broker answers at 127.0.0.1:1"),
        (None, "", "kafka://me:hush@127.0.0.1:1/bids", "no broker answers at 127.0.0.1:1"),
    ],
)
def test_unreadable_paths_are_named_at_their_place(
    malflow: Malflow, folder: Path, file: str | None, content: str, path: str, fault: str
) -> None:
    if file is not None:
        (folder / file).write_text(content)
    done = malflow("sql", "-c", f"SELECT * FROM '{path}'")
    assert done.code == 3
    assert "error: -c:1:15: " in done.err
    assert fault in done.err
    assert "hush" not in done.err
    assert done.out == ""


def test_odd_names_are_quoted(malflow: Malflow, folder: Path) -> None:
    (folder / "odd.csv").write_text("weird name,né,select,a`b\n1,2,3,4\n")
    expected = {"weird name": 1, "né": 2, "select": 3, "a`b": 4}
    assert rows_of(malflow, "SELECT * FROM 'odd.csv'") == [expected]
    assert "  `weird name` BIGINT,\n" in malflow("sql", "--ddl", "-c", "SELECT * FROM 'odd.csv'").out


def test_a_file_without_a_header_has_numbered_columns(malflow: Malflow, folder: Path) -> None:
    (folder / "x.csv").write_text("1,a\n2,b\n")
    assert rows_of(malflow, "SELECT c2, c1 FROM 'x.csv?header=no'") == [{"c2": "a", "c1": 1}, {"c2": "b", "c1": 2}]


def test_a_row_that_does_not_fit_its_guess_is_an_error(malflow: Malflow, folder: Path) -> None:
    (folder / "x.csv").write_text("a\n" + "1\n" * 1500 + "x\n")
    done = malflow("sql", "-c", "SELECT * FROM 'x.csv'")
    assert done.code == 5
    assert "x.csv line 1502" in done.err
    assert "'a' is not int | None: 'x'" in done.err


def test_all_faults_of_all_statements_are_told(malflow: Malflow) -> None:
    done = malflow("sql", "-c", "SELECT prize FROM 'bids.jsonl'; SELCT 1; SELECT auction FROM bidz")
    assert done.code == 3
    for place in ("-c:1:8: no column 'prize'; did you mean 'price'?", "-c:1:33: ", "-c:1:62: no table 'bidz'"):
        assert place in done.err


def test_faults_with_json_are_documents(malflow: Malflow) -> None:
    done = malflow("sql", "--json", "-c", "SELECT prize FROM 'bids.jsonl'")
    assert "no column 'prize'" in json.loads(done.err)["error"]["message"]


@pytest.mark.parametrize("given", [[], ["x.sql", "-c", "SELECT 1"], ["--csv", "--json", "-c", "SELECT 1"]])
def test_usage(malflow: Malflow, given: list[str]) -> None:
    assert malflow("sql", *given).code == 2


def test_values_need_no_table(malflow: Malflow) -> None:
    assert rows_of(malflow, "SELECT 1 + 1 AS two; VALUES (1, 'a'), (2, 'b')") == [
        {"two": 2},
        {"EXPR$0": 1, "EXPR$1": "a"},
        {"EXPR$0": 2, "EXPR$1": "b"},
    ]


# processes


def test_ctrl_c_ends_a_query(folder: Path) -> None:
    """Rows come while standard input is open; then Ctrl-C ends the query, with exit code 0."""
    command = [sys.executable, "-m", "malflow", "sql", "-c", "SELECT a + 1 AS b FROM '-'"]
    started: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=environment(), text=True, **started) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write('{"a": 1}\n')
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(3)] == ["b\n", "-\n", "2\n"]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == "(1 row, stopped)\n"


def test_the_reader_may_leave(folder: Path) -> None:
    (folder / "many.csv").write_text("a\n" + "1\n" * 200_000)
    command = f"{sys.executable} -m malflow sql -q -c \"SELECT * FROM 'many.csv'\" | head -1"
    shell: list[Any] = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("a\n", "", 141)


# Kafka


@pytest.fixture
def topic(kafka_servers: str) -> Iterator[Callable[[str, list[bytes]], str]]:
    """Make topics with values, and return their URLs."""
    admin = importlib.import_module("confluent_kafka.admin")
    producer = importlib.import_module("confluent_kafka").Producer({"bootstrap.servers": kafka_servers})
    client, made = admin.AdminClient({"bootstrap.servers": kafka_servers}), list[str]()

    def make(name: str, values: list[bytes]) -> str:
        made.append(f"{name}_{token_hex(4)}")
        client.create_topics([admin.NewTopic(made[-1], 1, 1)])[made[-1]].result(30)
        for it in values:
            producer.produce(made[-1], it)
        producer.flush(30)
        return f"kafka://{kafka_servers}/{made[-1]}"

    yield make
    for it in client.delete_topics(made).values():
        it.result(30)


def test_a_topic_is_a_table(malflow: Malflow, topic: Callable[[str, list[bytes]], str]) -> None:
    url = topic("bids", [json.dumps(it).encode() for it in BIDS])
    assert rows_of(malflow, f"SELECT auction FROM '{url}' LIMIT 2") == [{"auction": 1}, {"auction": 2}]
    counted = f"SELECT channel, COUNT(*) AS n FROM '{url}?stop=latest' GROUP BY channel ORDER BY channel"
    assert [it["n"] for it in rows_of(malflow, counted)] == [1, 1, 2]
    refused = malflow("sql", "-c", f"SELECT COUNT(*) FROM '{url}'")
    assert "GROUP BY without a window needs an input that ends" in refused.err
    ddl = malflow("sql", "--ddl", "-c", f"SELECT * FROM '{url}'").out
    assert f"WITH ('url' = '{url}?format=json');" in ddl


def test_faults_of_topics(
    malflow: Malflow, topic: Callable[[str, list[bytes]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("malflow.cli.sql.prompt._PATIENCE", 1.0)
    empty, noise = topic("empty", []), topic("noise", [b"\xff\x00"])
    assert "has no rows to guess columns from" in malflow("sql", "-c", f"SELECT * FROM '{empty}'").err
    assert "the record cannot be decoded" in malflow("sql", "-c", f"SELECT * FROM '{noise}'").err
    assert "nowhere' does not exist" in malflow("sql", "-c", f"SELECT * FROM '{empty}nowhere'").err


# explanations


def test_explain(malflow: Malflow) -> None:
    text = "SELECT channel, COUNT(*) AS n FROM 'bids.jsonl' WHERE price > 6 GROUP BY channel ORDER BY n LIMIT 1"
    lines = malflow("sql", "--explain", "-c", text).out.splitlines()
    assert [" ".join(it.split()) for it in lines] == [
        "calc append sql.calc state: none",
        "groups, by channel append sql.group state: a row a group, until the input ends",
        "calc WHERE price > 6 append sql.group.input state: none",
        "bids.jsonl append sql.bids bids.jsonl",
    ]


def test_statements_that_ask_are_answered_in_their_place(malflow: Malflow) -> None:
    text = "SHOW TABLES; CREATE TABLE a (x INT); DESCRIBE a; SHOW TABLES; SELECT 1 AS one; SHOW VIEWS"
    assert malflow("sql", "-c", text).out.split() == ["none", "x", "INT", "a", "one", "---", "1", "none"]


# more of it


def test_delimiters_of_csv(malflow: Malflow, folder: Path) -> None:
    (folder / "x.csv").write_text("a;b\n1;x\n;y\n")
    assert rows_of(malflow, "SELECT * FROM 'x.csv?delimiter=%3B'") == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]


def test_order_in_a_part_of_a_statement_is_refused(malflow: Malflow) -> None:
    done = malflow("sql", "-c", "SELECT * FROM (SELECT * FROM 'bids.jsonl' LIMIT 1)")
    assert "LIMIT belongs at the end of the statement" in done.err


def test_windows_of_a_path_are_refused_with_a_cure(malflow: Malflow) -> None:
    windows = "TABLE(TUMBLE(TABLE 'bids.jsonl', DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    done = malflow("sql", "-c", f"SELECT COUNT(*) FROM {windows} GROUP BY window_start, window_end")
    assert "take the CREATE TABLE that --ddl prints, and add WATERMARK FOR to it" in done.err


def test_a_table_that_is_only_written_to_is_not_looked_at(malflow: Malflow) -> None:
    assert rows_of(malflow, "CREATE TABLE o (a INT) WITH ('url' = 'https://127.0.0.1:1/x'); SELECT 1 AS a") == [
        {"a": 1}
    ]


def test_definitions_alone_run_nothing(malflow: Malflow) -> None:
    done = malflow("sql", "-c", "CREATE TABLE x (a INT)")
    assert (done.code, done.out, done.err) == (0, "", "no query or INSERT; nothing has run\n")


def test_secrets_are_not_written(malflow: Malflow, folder: Path) -> None:
    url = f"{folder}/bids.jsonl?encoding=utf-8"
    table = f"CREATE TABLE t (a INT) WITH ('url' = 'kafka://me:hush@127.0.0.1:1/t'); SELECT x FROM '{url}', t"
    done = malflow("sql", "-c", table)
    assert done.code == 3
    assert "hush" not in done.out + done.err


def test_functions_of_a_file_are_imported_from_its_folder(malflow: Malflow, folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "flows_of_halves.py").write_text("def half(n: int) -> float:\n    return n / 2\n")
    text = "CREATE FUNCTION half AS 'flows_of_halves:half' LANGUAGE PYTHON; SELECT half(3) AS h"
    (folder / "own" / "x.sql").write_text(text)
    assert malflow("sql", "--csv", "own/x.sql").out == "h\n1.5\n"
    assert "there is no file 'own/y.sql'; did you mean 'own/x.sql'?" in malflow("sql", "own/y.sql").err


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda it: st.lists(it, max_size=3) | st.dictionaries(st.text(max_size=3), it, max_size=3), max_leaves=5
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=4)


@given(
    content=st.binary(max_size=60) | ROWS | st.lists(st.lists(st.text(max_size=4), max_size=3)),
    ending=st.sampled_from(["csv", "jsonl"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=10)
@pytest.mark.filterwarnings("ignore")
def test_noise_gives_rows_or_a_fault(malflow: Malflow, folder: Path, content: Any, ending: str) -> None:
    if isinstance(content, list):
        lines = (",".join(it) if ending == "csv" and isinstance(it, list) else json.dumps(it) for it in content)
        content = "".join(f"{it}\n" for it in lines).encode("utf-8", "surrogatepass")
    (folder / f"x.{ending}").write_bytes(content)
    done = malflow("sql", "-c", f"SELECT * FROM 'x.{ending}'")
    assert done.code in {0, 3, 5}, done.err
    assert "Traceback" not in done.err
    assert "\x1b" not in done.out + done.err


@given(ROWS.filter(any))
def test_first_rows_fit_the_columns_that_are_guessed(rows: list[dict[str, Any]]) -> None:
    rows = json.loads(json.dumps(rows))
    (table,) = parse(Source(create_table("t", "x.jsonl", of_rows(rows))))
    assert isinstance(table, CreateTable)
    fields = [Field(it.name.text, it.type) for it in table.elements if isinstance(it, ColumnDef)]
    door = Door(fields, "t", as_json=True, may_lack=True)
    assert {len(door.row(it)) for it in rows} == {len(table.elements)}
