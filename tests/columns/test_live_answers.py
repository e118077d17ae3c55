"""A question about a key of many costs that key: its state alone becomes objects, and nothing is written back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from malflow import SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.columns import Column, Frame
from malflow.columns.aggregates.accumulators import Accumulators
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import sliding, tumbling
from tests.kit.waiting import wait_until

KEYS = 50_000


class Keys(StatefulSourceImpl[str, Any, int, int]):
    """A record of each key, in one part that does not end."""

    def list_parts(self) -> list[str]:
        return ["part"]

    def build_part(self, part: str, state: int | None) -> Any:
        return KeysPart()


class KeysPart(StatefulSourcePartition[Any, int, int]):
    """The reader."""

    def __init__(self) -> None:
        self._at = 0

    def poll(self) -> Any:
        raise NotImplementedError

    def poll_batch(self, limit: int) -> tuple[Any, Any]:
        keys = np.arange(self._at, min(KEYS, self._at + limit))
        self._at += len(keys)
        if not len(keys):
            return (), ()
        return Frame(pa.record_batch({"k": keys, "x": keys * 2})), Column(np.full(len(keys), 5))

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self._at


@contextmanager
def running(windows: Any, made: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run sums of all keys, and note the number of accumulators that become objects."""
    states = Accumulators.states

    def counted(self: Accumulators, fields: Any) -> list[Any]:
        found = states(self, fields)
        made.append(len(found))
        return found

    monkeypatch.setattr(Accumulators, "states", counted)

    def build(provider: StreamProvider) -> None:
        rows: Any = provider.new_stream().source("rows", StatefulSource(Keys()))
        if windows is None:
            keyed = rows.key_distribute("key", "k")
        else:
            timed = rows.generate_epochs("epochs", limit_out_of_orderness(5)).on_time
            keyed = timed.key_distribute("key", "k").window(windows)
        keyed.aggregate("sums", agg.sum("x"), agg.count()).sink("out", VecSink())

    handle = SingleThreadRuntime(build, parallelism=2).start()
    try:
        wait_until(lambda: handle.progress.records.get("sums") == KEYS, 60)
        yield handle
    finally:
        handle.stop()
        handle.await_termination()


def test_states_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    with running(None, made, monkeypatch) as handle:
        sums = handle.state("sums")
        assert sums.get(7).result() == [14, 1]
        assert sums.get(KEYS, default=None).result() is None
        assert sums.get_many([8, 9, KEYS + 1]).result() == {8: [16, 1], 9: [18, 1]}
        assert sum(made) == 3
        assert len(sums.items(limit=10).result()) == 10
        assert sum(made) <= 3 + 2 * 10


@pytest.mark.parametrize("windows", [tumbling(10), sliding(20, 10)])
def test_windows_of_keys(windows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    with running(windows, made, monkeypatch) as handle:
        found = handle.windows("sums").get(7).result()
        assert {it.value for it in found} == {(14, 1)}
        assert sum(made) == 1
