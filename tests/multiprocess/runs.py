"""What tests in one process share: a listener, runs in worker processes, and marks that all processes see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from malflow import MultiProcessRuntime, StreamProvider
from malflow.events import Event
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.nights import NIGHTLY, at_night

__all__ = ["A_METHOD", "BOTH", "METHODS", "Heard", "add", "is_first", "processes", "run_map", "scripted", "summed"]

E = TypeVar("E")

BOTH = ["forkserver", "spawn"]
METHODS = pytest.mark.parametrize("method", at_night(BOTH, but=BOTH[:1]))
"""Marks tests that run with both start methods, with the second at night."""

A_METHOD = pytest.mark.parametrize("method", BOTH if NIGHTLY else BOTH[:1])
"""Marks tests that run with one start method, and with both at night."""


class Heard:
    """A listener that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event, /) -> None:
        """Handle an event."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


def is_first(mark: Path) -> bool:
    """Whether no process has asked for this mark before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def processes(build: Callable[[StreamProvider], object], *more: Any, **options: Any) -> MultiProcessRuntime:
    """Return a runtime of two worker processes, unless the options say otherwise."""
    return MultiProcessRuntime(build, *more, **{"processes": 2, "start_method": "forkserver", **options})


def run_map(mapper: Callable[[Any], Any], values: Iterable[Any] = (0,), **options: Any) -> list[Any]:
    """Apply a function to values in worker processes; return the results."""
    results: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("values", SingleIteratorSource(values)).map("map", mapper).sink("out", results)

    processes(build, **options).execute()
    return results.values


def add(_key: Any, value: int, total: int) -> tuple[int, int]:
    """Return the running total, and keep it."""
    return total + value, total + value


def scripted(numbers: Iterable[int]) -> ScriptedSource:
    """Return a source of one number a tick."""
    return ScriptedSource([item for number in numbers for item in (number, PAUSE)])


def summed(
    source: Any, hook: Callable[[Any, Any], object], sink: VecSink[Any, Any, Any]
) -> Callable[[StreamProvider], None]:
    """Return what builds running totals by remainder, with a hook that sees each record and its context."""

    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("numbers", source).key_distribute("key", lambda msg: msg.value % 3)
        keyed.inspect("hook", hook).stateful_map("sum", add, int).sink("out", sink)

    return build
