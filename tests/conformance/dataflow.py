"""The shortest way to run one stream and to see what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from malflow import DataMessage, Stream, StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource
from tests.kit.log import Log


def sis(items: Iterable[Any]) -> StatelessSource[Any, Any, int]:
    """Read from an iterable."""
    return StatelessSource(SingleIteratorSource(items))


def messages_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]]
) -> list[DataMessage[Any, Any, Any]]:
    """Stream items through what `build` makes of them, and give the messages."""
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("source", sis(items))).sink("sink", StatelessSink(collected))

    runtime(build_dataflow).execute()
    return list(collected)


def values_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]]
) -> list[Any]:
    """Stream items through what `build` makes of them, and give the values."""
    return [message.value for message in messages_of(runtime, items, build)]


def epochs_of(
    runtime: Callable[..., Any], items: Iterable[Any], build: Callable[[Any], Stream[Any, Any, Any]], log: Log
) -> list[Any]:
    """Stream items through what `build` makes of them, and give the epochs that come out, by way of a log."""
    before = len(log)
    values_of(runtime, items, lambda s: build(s).inspect_frontier("epochs", lambda epoch, _: log.append(epoch)))
    return list(log[before:])
