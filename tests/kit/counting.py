"""Runs that count items, for tests of what they keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from malflow import DataMessage, SingleThreadRuntime, StatefulLogic, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.testing import PAUSE, ScriptedSource

KEY = "0123456789abcdef-a-signing-key"
MOMENT = timedelta(microseconds=1)


def one_a_tick(items: Sequence[Any]) -> list[Any]:
    """Script items so that each has a tick of its own."""
    return [step for item in items for step in (PAUSE, item)][1:]


def count(_key: Any, _value: Any, so_far: int) -> tuple[int, int]:
    return so_far + 1, so_far + 1


def counting(
    items: Sequence[Any], sink: Any = None, name: str = "count", look: Callable[..., object] | None = None
) -> Callable[[StreamProvider], None]:
    """Build a dataflow that counts items."""

    def build_dataflow(provider: StreamProvider) -> None:
        source = provider.new_stream().source("items", ScriptedSource(items))
        looked = source if look is None else source.inspect("look", look)
        counts = looked.key_distribute("item", lambda msg: msg.value).stateful_map(name, count, int)
        counts.sink("out", VecSink() if sink is None else sink)

    return build_dataflow


def run(build_dataflow: Callable[[StreamProvider], object], backend: FsspecBackend, **options: Any) -> None:
    SingleThreadRuntime(build_dataflow, backend, **options).execute()


def counted(items: Sequence[Any], backend: FsspecBackend, **options: Any) -> list[tuple[Any, int]]:
    """Count items, and return what was emitted."""
    sink: VecSink[Any, int, Any] = VecSink()
    run(counting(items, sink), backend, **options)
    return [(msg.key, msg.value) for msg in sink]


def ids(backend: FsspecBackend) -> list[int]:
    return [snapshot.id for snapshot in snapshots(backend)]


class Totals(StatefulLogic[Any, Any, int, Any, int]):
    """Emits and drops every count at an epoch."""

    def on_data(self, msg: Any, state: int, output: Any) -> int:
        return state + 1

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in list(states):
            output.send(DataMessage(key, states.pop(key), epoch))
