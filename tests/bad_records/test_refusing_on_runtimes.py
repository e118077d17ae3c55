"""Sinks that continue without refused records, in processes and on Spark: letters on both sides, and their replay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, StreamProvider
from malflow.cli.output import Output
from malflow.cli.replaying import ReplayingListener
from malflow.connectors.sql import SqlSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import ScriptedSource

pytestmark = pytest.mark.slow

EACH_TICK = timedelta(microseconds=1)
SIZE = 20


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(tmp_path / "shop.db", isolation_level=None) as shop:
        shop.execute("create table t (n int primary key)")
        shop.execute("create trigger no before insert on t when new.n < 0 begin select raise(abort, 'negative'); end")
        yield shop
    shop.close()


def assert_continues(shop: sqlite3.Connection, folder: Path, run: Callable[..., None]) -> None:
    """Check a job of which one record is no row, and two rows are refused."""

    def build(provider: StreamProvider) -> None:
        values = [{"n": -n if n % 10 == 3 else n} for n in range(SIZE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": [*values, "none"]}))
        keyed = numbers.key_distribute("key", lambda msg: str(msg.value))
        keyed.sink("out", SqlSink(f"sqlite:///{folder}/shop.db", "t"), on_error="dead_letter")

    store = FsspecBackend(str(folder / "state"), job="shop")
    run(build, store)
    query = "select n from t order by n"
    good = [n for n in range(SIZE) if n % 10 != 3]
    assert [n for (n,) in shop.execute(query)] == good
    assert sorted(str(letter.value) for letter in dead_letters(store, "out")) == ["none", "{'n': -13}", "{'n': -3}"]
    shop.execute("drop trigger no")
    run(build, store, listeners=[ReplayingListener("out", Output(quiet=True))])
    assert [n for (n,) in shop.execute(query)] == [-13, -3, *good]
    [letter] = dead_letters(store, "out")
    assert (letter.value, letter.attempts) == ("none", 2)


@pytest.mark.fault("N20")
def test_in_processes_the_rest_is_written(shop: sqlite3.Connection, tmp_path: Path) -> None:
    def run(build: Any, store: FsspecBackend, **options: Any) -> None:
        MultiProcessRuntime(build, store, EACH_TICK, 2, **options).execute()

    assert_continues(shop, tmp_path, run)


@pytest.mark.spark
@pytest.mark.fault("N20")
def test_on_spark_the_rest_is_written(shop: sqlite3.Connection, tmp_path: Path, spark: Any) -> None:
    from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - needs Java

    def run(build: Any, store: FsspecBackend, **options: Any) -> None:
        SparkRuntime(build, store, EACH_TICK, 2, spark=spark, max_records_per_tick=SIZE, **options).execute()

    assert_continues(shop, tmp_path, run)
