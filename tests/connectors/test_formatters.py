"""`formatter=`, which every sink of an external system has."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sqlite3
import traceback
from pathlib import Path
from typing import Any

import pytest

import malflow
from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.kafka import KafkaSink
from malflow.connectors.redis import RedisSink
from malflow.connectors.sql import SqlSink
from malflow.sinks import JsonLinesSink, StatelessSinkImpl, StdOutSink, TextFileSink, VecSink
from tests.conformance.dataflow import sis


def row(msg: Any) -> dict[str, Any]:
    return {"name": msg.key, "n": msg.value, "at": msg.timestamp}


def classes_of_sinks() -> list[type]:
    """Return the sinks that users can make, of all modules of the package."""
    for module in pkgutil.walk_packages(malflow.__path__, "malflow."):
        if "spark" not in module.name:
            importlib.import_module(module.name)
    found: list[type] = [StatelessSinkImpl]
    for kind in found:
        found.extend(it for it in kind.__subclasses__() if it.__module__.startswith("malflow.") and it not in found)
    return [it for it in found if it.__name__.endswith("Sink") and it.__name__[0] != "_" and not inspect.isabstract(it)]


@pytest.mark.slow
def test_every_sink_but_the_list_has_a_formatter() -> None:
    sinks = classes_of_sinks()
    assert {KafkaSink, RedisSink, SqlSink, JsonLinesSink, TextFileSink, StdOutSink} <= set(sinks)
    without = [it for it in sinks if "formatter" not in inspect.signature(it).parameters]
    assert without == [VecSink]


def write(sink: Any) -> None:
    sink.sink_batch(["a", "b"], [1, 2], [10, 20])


def test_kafka_writes_the_value_that_the_formatter_returns() -> None:
    sink: Any = KafkaSink("t", servers="localhost:1", delivery="exactly-once", encode="json", formatter=row)
    write(sink)
    records = sink.prepare(1)[2]
    assert [(it[1], json.loads(it[2])) for it in records] == [
        (b"a", {"name": "a", "n": 1, "at": 10}),
        (b"b", {"name": "b", "n": 2, "at": 20}),
    ]


def test_kafka_writes_a_tombstone_where_the_formatter_returns_none() -> None:
    make: Any = lambda msg: row(msg) if msg.value > 1 else None  # noqa: E731
    sink: Any = KafkaSink("t", servers="localhost:1", delivery="exactly-once", encode="json", formatter=make)
    write(sink)
    assert [it[2] is None for it in sink.prepare(1)[2]] == [True, False]


def test_redis_writes_what_the_formatter_returns_and_deletes_by_it() -> None:
    make: Any = lambda msg: None if msg.value == 1 else f"{msg.key} at {msg.timestamp}"  # noqa: E731
    sink: Any = RedisSink("redis://localhost:1/0", table="t", formatter=make)
    write(sink)
    assert sink.prepare(1)[2:] == ([b"a", b"b"], [None, b"b at 20"])


def test_sql_writes_the_row_that_the_formatter_returns(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("create table t (name text primary key, n int, at int)")
    sink: Any = SqlSink(f"sqlite:///{tmp_path}/out.db", "t", delivery="at-least-once", formatter=row)
    write(sink)
    sink.flush()
    sink.close()
    assert connection.execute("select * from t").fetchall() == [("a", 1, 10), ("b", 2, 20)]
    connection.close()


def test_a_sql_sink_by_its_url_has_its_formatter(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("create table t (name text primary key, n int, at int)")
    options: Any = {"delivery": "at-least-once", "formatter": row}
    sink: Any = malflow.connect(f"sqlite:///{tmp_path}/out.db/t", **options).sink()
    write(sink)
    sink.flush()
    sink.close()
    assert connection.execute("select * from t").fetchall() == [("a", 1, 10), ("b", 2, 20)]
    connection.close()


def test_standard_output_prints_what_the_formatter_returns(capsys: pytest.CaptureFixture[str]) -> None:
    write(StdOutSink[Any, Any, Any](formatter=lambda msg: f"{msg.key}: {msg.value}"))
    assert capsys.readouterr().out == "a: 1\nb: 2\n"


def fails(msg: Any) -> Any:
    return {"n": 1 // (msg.value - 2)}


def test_an_error_names_the_formatter_and_the_message() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("source", sis([1, 2])).sink("sink", StdOutSink(formatter=fails))

    with pytest.raises(OperatorError, match=r"operator 'sink' failed.*in fails \(.*test_formatters.py") as error:
        SingleThreadRuntime(build_dataflow).execute()
    told = "".join(traceback.format_exception(error.value))
    assert "the formatter was called with key NoKey, value 2, timestamp 1" in told


@pytest.mark.parametrize(
    ("formatter", "words"),
    [
        ("{value}", "formatter must be a plain function; got '{value}'"),
        (lambda key, value: value, r"calls formatter\(msg\), but .*<lambda> \(.*test_formatters.py:\d+\) takes other"),
    ],
)
def test_a_formatter_is_a_function_of_a_message(formatter: Any, words: str) -> None:
    for make in (
        lambda: StdOutSink[Any, Any, Any](formatter=formatter),
        lambda: JsonLinesSink[Any, Any, Any]("out", formatter=formatter),
        lambda: SqlSink("sqlite:///x.db", "t", formatter=formatter),
    ):
        with pytest.raises(GraphError, match=words):
            make()


def test_kafka_takes_key_and_time_from_fields_of_the_value() -> None:
    options: Any = {"servers": "localhost:1", "delivery": "exactly-once", "encode": "json"}
    sink: Any = KafkaSink("t", key="town", timestamp="at", formatter=lambda msg: msg.value["n"], **options)
    sink.sink_batch(["a"], [{"town": "Ulm", "at": 7, "n": 1}], [10])
    assert sink.prepare(1)[2] == (("t", b"Ulm", b"1", 7, None),)
