"""Windows of several streams, with one list of records per stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.frontiers import INPUTS, Frontiers
from malflow.operators.windows.session import SessionAggregate
from malflow.operators.windows.sliding import SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.operators.windows.window_operator import WindowOperator
from malflow.records.batch import Batch
from malflow.states.kinds import Arrangement

__all__ = ["SessionCogroup", "SlidingCogroup", "WindowCogroup", "arranged_groups", "migrated_groups"]

_Groups = list[list[Any]]
"""The values of each stream."""


class _Collect(Aggregator[Any, _Groups, tuple[list[Any], ...]]):
    """An aggregator that collects the values of several streams; each operator has its own.

    Attributes:
        streams: the number of streams.
        stream: the stream of the records added next.
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
    """Collect the records of several streams by window and key, controlled by the merged epoch.

    With late records, each stream has an output for records that are too late, after the output of results.

    Args:
        context: the operator's context.
        windows: the windows.
        streams: the number of streams.
        late: for each edge after the streams' own, the number of the stream with the late records that it carries.
        options: the options of the windows.
    """

    takes_pieces = False

    def __init__(
        self, context: OperatorContext, windows: Any, streams: int, *, late: Sequence[int] = (), **options: Any
    ) -> None:
        self._collect = _Collect(streams)
        self._streams = (*range(streams), *late)
        options = {**options, "late": True} if late else options
        super().__init__(context, windows, aggregators=(self._collect,), **options)  # type: ignore[call-arg] # of the other base
        self.inputs = Frontiers(context, len(self._streams), ends_at_once=True)
        self.hidden = {**self.hidden, INPUTS: self.inputs}

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which streams are idle."""
        super().set_idle_inputs(edges)
        self.inputs.set_idle(edges)

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the active streams."""
        return self.inputs.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Add the records of all streams, and emit the results of the windows that the epochs close."""
        for edge, batch in self.inputs.merge_by_edge(edges):
            stream = self._collect.stream = self._streams[edge]
            outputs = self.process(batch)
            yield self._by_stream(stream, *outputs) if self.allows_late else outputs

    def _by_stream(self, stream: int, results: Batch, _revised: Batch, too_late: Batch) -> Sequence[Batch]:
        """Return the results, and for each stream the records that were too late."""
        passed = Batch([], [], [], [(0, epoch) for _, epoch in results.epochs])
        return results, *[too_late if it == stream else passed for it in range(self._collect.streams)]


class WindowCogroup(_Cogroup, WindowAggregate):
    """Collect records in time windows."""


class SlidingCogroup(_Cogroup, SlidingAggregate):
    """Collect records in overlapping time windows; a window has its values pane by pane."""


class SessionCogroup(_Cogroup, SessionAggregate):
    """Collect records in sessions over the records of all streams."""


def migrated_groups(groups: _Groups, version: int, *, migrate: Callable[[Any, int], Any]) -> _Groups:
    """Return the migrated values of each stream."""
    return [[migrate(value, version) for value in group] for group in groups]


def arranged_groups(groups: _Groups, arrangement: Arrangement) -> _Groups:
    """Return the values of each stream with their items in other places."""
    return [[tuple(arrangement(value, number)) for value in group] for number, group in enumerate(groups)]
