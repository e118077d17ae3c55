"""Sinks that continue without refused records, on every runtime: letters on both sides, and their replay."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.connectors.sql import SqlSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import ScriptedSource

EACH_TICK = timedelta(microseconds=1)
SIZE = 20
GOOD = [n for n in range(SIZE) if n % 10 != 3]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(tmp_path / "shop.db", isolation_level=None) as shop:
        shop.execute("create table t (n int primary key)")
        shop.execute("create trigger no before insert on t when new.n < 0 begin select raise(abort, 'negative'); end")
        yield shop
    shop.close()


def flow(folder: Path) -> Any:
    """Return a dataflow of which one record is no row, and two rows are refused."""

    def build(provider: StreamProvider) -> None:
        values = [{"n": -n if n % 10 == 3 else n} for n in range(SIZE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": [*values, "none"]}))
        keyed = numbers.key_distribute("key", lambda msg: str(msg.value))
        keyed.sink("out", SqlSink(f"sqlite:///{folder}/shop.db", "t"), on_error="dead_letter")

    return build


def rows(shop: sqlite3.Connection) -> list[int]:
    return [n for (n,) in shop.execute("select n from t order by n")]


@pytest.mark.fault("N18", "N20")
def test_the_rest_is_written(
    any_parallelism: Any, shop: sqlite3.Connection, store: FsspecBackend, tmp_path: Path
) -> None:
    any_parallelism(flow(tmp_path), store, EACH_TICK).execute()
    assert rows(shop) == GOOD
    assert sorted(str(letter.value) for letter in dead_letters(store, "out")) == ["none", "{'n': -13}", "{'n': -3}"]
    shop.execute("drop trigger no")
    listeners = [ReplayingListener("out", Output(quiet=True))]
    any_parallelism(flow(tmp_path), store, EACH_TICK, listeners=listeners).execute()
    assert rows(shop) == [-13, -3, *GOOD]
    [letter] = dead_letters(store, "out")
    assert (letter.value, letter.attempts) == ("none", 2)
