"""Run a windowed dataflow over records that arrive in ticks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from malflow import MAX, SingleThreadRuntime, StatelessLogic, agg, limit_out_of_orderness
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish

Item = Any
"""``(key, timestamp, value)``, or `PAUSE` to begin a new tick."""


def source_of(items: Sequence[Item]) -> StatefulSource[Any, Any, Any, Any]:
    """Return a source of the items, whose values are ``(key, value)``."""
    script = [item if item is PAUSE else Timed((item[0], item[2]), item[1]) for item in items]
    return StatefulSource(ScriptedSource(script))


def windowed_flow(
    source: Any, bound: Any, add: Callable[[Any], Any], sink: Any, *, generator: Any = None
) -> Callable[[Any], None]:
    """Return a dataflow that keys the source's records, and adds operators behind their epochs."""

    def build(provider: Any) -> None:
        stamped = provider.new_stream().source("source", source)
        on_time, late = stamped.generate_epochs("epochs", generator or limit_out_of_orderness(bound))
        late.sink("late", VecSink())
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0]).map("value", lambda value: value[1])
        add(keyed).sink("results", sink)

    return build


def results_of(
    items: Sequence[Item], bound: Any, add: Callable[[Any], Any], *, generator: Any = None, **options: Any
) -> list[DataMessage[Any, Any, Any]]:
    """Return the messages that a dataflow sends for the items."""
    sink = VecSink()
    build = windowed_flow(source_of(items), bound, add, sink, generator=generator)
    SingleThreadRuntime(build, **options).execute()
    return list(sink)


def restarted(build: Callable[[Any], Any], stop: int, workers: int = 1) -> None:
    """Run a dataflow to its end in two runs, from one snapshot to the next.

    Args:
        build: builds it.
        stop: how many ticks the first run has, on one worker; a snapshot follows each.
        workers: those of the second run.
    """
    store, program = Store(), compiled(build)
    run = store.restore(program, 1)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, workers))


def collected() -> Any:
    """Return an aggregator of all values in order of arrival."""
    return agg.fold(tuple, lambda values, value: (*values, value), merge=lambda one, other: one + other)


class Watch(StatelessLogic[Any, Any, Any, Any]):
    """Notes the timestamp of each record, and each epoch in a tuple."""

    def __init__(self) -> None:
        self._seen: list[Any] = []

    def on_data(self, msg: Any, output: Any) -> None:
        self._seen.append(msg.timestamp)

    def on_epoch(self, epoch: Any, output: Any) -> None:
        self._seen.append((epoch,))

    def assert_forward(self, *, at_epochs: bool = True) -> None:
        """Assert that epochs ascend, and that no record is behind one, or, if epochs make them, ahead of the next."""
        epochs = [(at, it[0]) for at, it in enumerate(self._seen) if isinstance(it, tuple)]
        assert all(later > earlier for (_, earlier), (_, later) in pairwise(epochs))
        for at, it in enumerate(self._seen):
            if not isinstance(it, tuple):
                before = [epoch for position, epoch in epochs if position < at]
                after = next(epoch for position, epoch in epochs if position > at)
                assert it <= after or not at_epochs
                assert after is MAX or not before or it > before[-1]
