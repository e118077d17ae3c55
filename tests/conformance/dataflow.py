"""The shortest way to run one stream and see its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from malflow import DataMessage, MalflowError, Stream, StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource
from malflow.testing import ScriptedSource
from tests.kit.log import Log

SECONDS = 120


def sis(items: Iterable[Any]) -> StatelessSource[Any, Any, int]:
    """Read from an iterable."""
    return StatelessSource(SingleIteratorSource(items))


def messages_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]]
) -> list[DataMessage[Any, Any, Any]]:
    """Stream items through what `build` makes of them, and return the messages."""
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("source", sis(items))).sink("sink", StatelessSink(collected))

    runtime(build_dataflow).execute()
    return list(collected)


def values_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]]
) -> list[Any]:
    """Stream items through what `build` makes of them, and return the values."""
    return [message.value for message in messages_of(runtime, items, build)]


def epochs_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]], log: Log
) -> list[Any]:
    """Stream items through what `build` makes of them, and return the epochs that come out, by way of a log."""
    before = len(log)
    values_of(runtime, items, lambda s: build(s).inspect_frontier("epochs", lambda epoch, _: log.append(epoch)))
    return list(log[before:])


def counting(source: Any, sink: Any = None) -> Callable[[StreamProvider], None]:
    """Build a dataflow that counts equal values."""

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("items", source).key_distribute("item", lambda msg: msg.value)
        keyed.stateful_map("count", count, int).sink("out", VecSink() if sink is None else sink)

    return build_dataflow


def count(_key: Any, _value: Any, so_far: int) -> tuple[int, int]:
    """Count a record."""
    return so_far + 1, so_far + 1


def counts_of(runtime: Callable[..., Any], items: Sequence[Any], store: Any, **options: Any) -> list[tuple[Any, int]]:
    """Count equal items in one run of a job; return the counts emitted, sorted."""
    sink: VecSink[Any, int, Any] = VecSink()
    runtime(counting(ScriptedSource(items), sink), store, **options).execute()
    return sorted((msg.key, msg.value) for msg in sink)


class Started:
    """A run in a thread of its own, which is stopped at the end of the `with` block, if it has not ended.

    Attributes:
        run: what can be asked for `snapshot`, `rescale`, `stop` and `progress`.
    """

    def __init__(self, runtime: Any) -> None:
        self.run = runtime.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.stop()
        with suppress(MalflowError):
            self.run.await_termination(SECONDS)

    def finish(self) -> None:
        """Wait for the end of the run, and raise its error."""
        assert self.run.await_termination(SECONDS)
