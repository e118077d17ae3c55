"""Windows of several streams: the records of each are collected in a list of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.batch import Batch
from malflow.operators.contract import OperatorContext
from malflow.operators.frontiers import INPUTS, Frontiers
from malflow.operators.session import SessionAggregate
from malflow.operators.sliding import SlidingAggregate
from malflow.operators.window import WindowAggregate, WindowOperator

__all__ = ["SessionCogroup", "SlidingCogroup", "WindowCogroup", "migrated_groups"]

_Groups = list[list[Any]]
"""The values of each stream."""


class _Collect(Aggregator[Any, _Groups, tuple[list[Any], ...]]):
    """Collects the values of several streams; an operator has one of its own.

    Attributes:
        streams: the number of streams.
        stream: the one whose records are added next.
    """

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.stream = 0

    def create(self) -> _Groups:
        """Return a list for each stream."""
        return [[] for _ in range(self.streams)]

    def add(self, acc: _Groups, value: Any, timestamp: Any) -> _Groups:
        """Append a value to the list of its stream."""
        acc[self.stream].append(value)
        return acc

    def merge(self, one: _Groups, other: _Groups) -> _Groups:
        """Concatenate the lists of each stream."""
        return [[*first, *second] for first, second in zip(one, other, strict=True)]

    def result(self, acc: _Groups) -> tuple[list[Any], ...]:
        """Return copies of the lists."""
        return tuple(map(list, acc))


class _Cogroup(WindowOperator):
    """Collect the records of several streams by window and key, driven by the merged epoch of the streams.

    Args:
        context: what every operator gets.
        windows: the windows.
        streams: the number of streams.
        options: those of the windows.
    """

    takes_pieces = False

    def __init__(self, context: OperatorContext, windows: Any, streams: int, **options: Any) -> None:
        self._collect = _Collect(streams)
        super().__init__(context, windows, aggregators=(self._collect,), **options)  # type: ignore[call-arg] # of the other base
        self.inputs = Frontiers(context, streams, ends_at_once=True)
        self.hidden = {**self.hidden, INPUTS: self.inputs}

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which streams count for the epoch."""
        super().set_idle_inputs(edges)
        self.inputs.set_idle(edges)

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Add the records of all streams, and emit the results of the windows that the epochs close."""
        for edge, batch in self.inputs.merge_by_edge(edges):
            self._collect.stream = edge
            yield self.process(batch)


class WindowCogroup(_Cogroup, WindowAggregate):
    """Collect records in windows of time."""


class SlidingCogroup(_Cogroup, SlidingAggregate):
    """Collect records in windows of time that overlap; each has the values pane by pane."""


class SessionCogroup(_Cogroup, SessionAggregate):
    """Collect records in sessions, to which the records of all streams belong alike."""


def migrated_groups(groups: _Groups, version: int, *, migrate: Callable[[Any, int], Any]) -> _Groups:
    """Return the values of each stream, migrated."""
    return [[migrate(value, version) for value in group] for group in groups]
