from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from malflow import SingleThreadRuntime
from malflow.connectors.postgres import PostgresError, PostgresSink, PostgresSource
from malflow.errors import GraphError
from malflow.sinks import VecSink
from tests.connectors.postgres.kit import Database, poll_until, read_all
from tests.kit.waiting import wait_until

MANY = """
create table people (country text collate "C", id int, name text, primary key (country, id));
insert into people select 'c' || i %% 7, i, 'n' || i from generate_series(1, 1000) i
"""


@dataclass
class Person:
    country: str
    id: int
    name: str


@pytest.fixture
def people(database: Database) -> Database:
    database.connection.execute(MANY.replace("%%", "%"))
    return database


def expected(people: Database) -> list[tuple[object, ...]]:
    return people.rows("select * from people order by country, id")


def test_pages_in_order_of_a_key_of_two_columns(people: Database) -> None:
    source = PostgresSource(people.dsn, "people", row=tuple, page_rows=64)
    assert read_all(source.build_part("people", None), limit=17) == expected(people)


def test_resuming_from_each_position(people: Database) -> None:
    source = PostgresSource(people.dsn, "people", row=tuple, page_rows=64)
    rows: list[object] = []
    position = None
    while len(rows) < 1000:
        reader = source.build_part("people", position)
        got = poll_until(reader, lambda values: len(values) > 0, limit=93)
        rows += got
        position = reader.snapshot()
        reader.suspend()
    assert rows == expected(people)


def test_rows_as_dicts_dataclasses_and_calls(people: Database) -> None:
    first = {"country": "c0", "id": 7, "name": "n7"}
    for row, wanted in ((dict, first), (Person, Person(**first)), (lambda **columns: columns["id"], 7)):
        reader = PostgresSource(people.dsn, "people", row=row).build_part("people", None)
        assert read_all(reader)[0] == wanted


def test_query_with_a_key_and_a_timestamp(people: Database) -> None:
    query = "select id, name, id * 10 as at from people where id % 2 = 0;"
    source = PostgresSource(people.dsn, query=query, key=["id"], timestamp="at", page_rows=100)
    reader, values, times = source.build_part("query", None), [], []
    while not reader.is_finished():
        got, at = reader.poll_batch(1000)
        values += got
        times += at
    assert [row["id"] for row in values] == list(range(2, 1001, 2))
    assert times == [row["at"] for row in values]


def test_new_rows_while_it_watches(people: Database) -> None:
    source = PostgresSource(people.dsn, "people", poll_every=timedelta(milliseconds=20))
    reader = source.build_part("people", None)
    poll_until(reader, lambda values: len(values) == 1000)
    people.execute("insert into people values ('z', 1, 'late')")
    assert poll_until(reader, len) == [{"country": "z", "id": 1, "name": "late"}]
    reader.suspend()


def test_dataflow_over_a_table(people: Database) -> None:
    names: VecSink[Any, str, Any] = VecSink()

    def build(provider: Any) -> None:
        rows = provider.new_stream().source("people", PostgresSource(people.dsn, "people"))
        rows.map("name", lambda row: row["name"]).sink("names", names)

    SingleThreadRuntime(build).execute()
    assert sorted(names.values) == sorted(str(row[2]) for row in expected(people))


@pytest.mark.parametrize(
    ("statement", "options", "words"),
    [
        ("create table t (a int)", {}, "no primary key"),
        ("create table t (a int)", {"key": ["a"]}, "unique index"),
        ("create table t (a int unique)", {"key": ["a"]}, "NOT NULL"),
        ("create table t (a int primary key)", {"timestamp": "b"}, "no column b"),
        ("create table other (a int)", {}, "table 't' does not exist"),
        ("create table t (a int primary key)", {"columns": ["b"]}, "b"),
    ],
)
def test_tables_that_cannot_be_read(database: Database, statement: str, options: dict, words: str) -> None:
    database.execute(statement)
    reader = PostgresSource(database.dsn, "t", **options).build_part("t", None)
    with pytest.raises(PostgresError, match=words):
        read_all(reader)


@pytest.mark.parametrize(
    ("values", "words"),
    [("(1), (2), (2), (3)", r"k is \(2,\) in two rows"), ("(1), (2), (null), (null)", "k is NULL in a row")],
)
@pytest.mark.parametrize("page_rows", [2, 9])
def test_rows_that_a_key_leaves_out(database: Database, values: str, words: str, page_rows: int) -> None:
    database.execute(f"create table t (k int); insert into t values {values}")
    source = PostgresSource(database.dsn, query="select * from t -- all", key=["k"], page_rows=page_rows)
    with pytest.raises(PostgresError, match=words):
        read_all(source.build_part("query", None))


def test_keys_of_types_that_python_does_not_have(database: Database) -> None:
    database.execute("create table t (a real, b interval, c int[], d jsonb, primary key (a, b, c, d))")
    database.execute("insert into t values (0.1, '1 year', '{1}', '{}'), (0.1, '364 days', '{1}', '\"x\"')")
    database.execute("insert into t values (0.1, '1 year', '{1}', '[0]'), (0.1, '1 year', '{2}', '1')")
    reads: list[dict[str, Any]] = [{"table": "t"}, {"query": "select * from t", "key": ["a", "b", "c", "d"]}]
    for options in reads:
        source = PostgresSource(database.dsn, page_rows=1, row=tuple, text=["b"], **options)
        assert [row[2:] for row in read_all(source.build_part("t", None))] == [
            ([1], [0]),
            ([1], {}),
            ([2], 1),
            ([1], "x"),
        ]
    database.execute("create table u (id int primary key, d date); insert into u values (1, 'infinity')")
    with pytest.raises(PostgresError, match=r"table u, column 'd': .*infinity.*text=\['d'\]"):
        read_all(PostgresSource(database.dsn, "u").build_part("u", None))


def test_null_in_the_key_of_a_query(database: Database) -> None:
    reader = PostgresSource(database.dsn, query="select null::int as a", key=["a"]).build_part("query", None)
    with pytest.raises(PostgresError, match="the key a is NULL"):
        read_all(reader)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"table": "t", "query": "select 1"},
        {"query": "select 1"},
        {"table": "t", "key": "id"},
        {"table": "t", "page_rows": 0},
    ],
)
def test_arguments_that_make_no_sense(options: dict) -> None:
    with pytest.raises(GraphError):
        PostgresSource("host=localhost", **options)


def test_names_with_quotes_percents_and_spaces(database: Database) -> None:
    database.connection.execute('create schema "My %s"')
    database.connection.execute('create table "My %s"."a""b" ("k%" int primary key, "{x}" text)')
    database.connection.execute("insert into \"My %s\".\"a\"\"b\" values (1, 'it''s'), (2, '{}')")
    reader = PostgresSource(database.dsn, '"My %s"."a""b"', page_rows=1).build_part("t", None)
    assert read_all(reader) == [{"k%": 1, "{x}": "it's"}, {"k%": 2, "{x}": "{}"}]


@pytest.mark.parametrize("page_rows", [1, 3, 7, 1000])
def test_rows_of_tables_that_inherit(page_rows: int, database: Database) -> None:
    database.execute("create table parent (id int primary key, v text); create table child () inherits (parent)")
    database.execute("insert into parent select n, 'p' from generate_series(1, 9, 2) n")
    database.execute("insert into child select n, 'c' from generate_series(2, 10, 2) n")
    source = PostgresSource(database.dsn, "parent", page_rows=page_rows)
    assert [row["id"] for row in read_all(source.build_part("parent", None))] == list(range(1, 11))
    database.execute("insert into child values (7, 'twice')")
    with pytest.raises(PostgresError, match=r"the key id is \(7,\) in two rows; its inheritance children .*from only"):
        read_all(source.build_part("parent", None))


def test_value_that_python_lacks_in_a_row(database: Database) -> None:
    database.execute("create table t (id int primary key, day date, until date)")
    database.execute("insert into t values (1, '2020-01-01', '2020-01-01'), (2, '2020-01-01', 'infinity')")
    with pytest.raises(PostgresError, match=r"table t, column 'until': Python cannot represent 'infinity'.*text="):
        read_all(PostgresSource(database.dsn, "t").build_part("t", None))


@pytest.mark.slow
def test_log_of_a_server_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    source = PostgresSource("host=127.0.0.1 port=1 dbname=x", "t", retry_for=timedelta(seconds=60))
    reader = source.build_part("t", None)
    wait_until(lambda: bool(reader.poll_batch(1)[0]) or "trying again for 60 s" in caplog.text, 5)
    reader.suspend()
    assert "reading table t failed at host=127.0.0.1 port=1 dbname=x: " in caplog.text
    sink = PostgresSink("host=127.0.0.1 port=1 dbname=x", "t", retry_for=timedelta(seconds=0.5))
    with pytest.raises(PostgresError, match="describing table t"):
        sink.sink_batch([None], [{"id": 1}], [0])
    assert "describing table t failed at host=127.0.0.1 port=1 dbname=x: " in caplog.text
