"""The epochs of an operator's inputs, merged: the one it has reached, and the floors of former workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from malflow.diagnostics import operator_error
from malflow.message import MAX, MIN
from malflow.operators.contract import OperatorContext
from malflow.partitioners import PLACEMENT, Partitioner, former_select, rendezvous_select
from malflow.records.batch import Batch, concat
from malflow.states.keyed import Delta, KeyedState
from malflow.words import error_text, short_repr

__all__ = [
    "INPUTS",
    "KEPT",
    "REACHED",
    "UNTIL",
    "Floors",
    "Frontiers",
    "Past",
    "ReachedEpoch",
]

INPUTS = "inputs"
"""The role of the hidden state, for operators with a state of their own."""


def _kind_of(epoch: Any) -> str:
    """Return words for the type of an epoch."""
    if isinstance(epoch, datetime):
        return f"a {type(epoch).__name__} {'without' if epoch.tzinfo is None else 'with'} a zone"
    return f"of type {type(epoch).__name__}"


class Frontiers:
    """The latest epoch of each edge of an operator, and the least of them, issued when it grows.

    An edge without an epoch holds the merged one back, except for an idle edge, on which nothing arrives. Records are
    taken from the edge with the lowest epoch.

    Args:
        context: the operator's context.
        edges: the number of edges.
        ends_at_once: whether `MAX` counts only after all edges have received it. Otherwise an edge that ends no longer
            holds back the others, and their epochs are issued before `MAX`.

    Attributes:
        state: the epochs, in the form that `Movement.FRONTIER` moves.
        merged: the merged epoch; `MIN` before the first one.
    """

    def __init__(self, context: OperatorContext, edges: int, *, ends_at_once: bool = False) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self.merged: Any = MIN
        self._operator_name = context.operator_name
        self._ends_at_once = ends_at_once
        self._epochs: list[Any] = [MIN] * edges
        self._idle: Sequence[int] = (0,) * edges
        self._busy: Sequence[int] = range(edges)

    def set_idle(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        self._idle = edges
        self._busy = [edge for edge, idle in enumerate(edges) if not idle] if any(edges) else range(len(edges))

    def merge_by_edge(self, edges: Sequence[Sequence[Batch]]) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of a tick, each with its edge and the merged epochs.

        Raises:
            OperatorError: if the epochs of two edges can't be compared.
        """
        try:
            yield from ((0, batch) for batch in self.catch_up())
            alone = self.only_edge(edges)
            if alone is not None:
                yield from ((alone, batch) for batch in self.pass_unchanged(alone, edges[alone]))
            elif any(batch.epochs for batches in edges for batch in batches):
                for edge, pieces in groupby(self.by_frontier(edges), itemgetter(0)):
                    yield edge, concat([batch for _, batch in pieces])
            else:
                yield from ((edge, batch) for edge, batches in enumerate(edges) for batch in batches)
        except Exception as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> Exception:
        """Return the error for epochs of two edges that can't be compared."""
        known = {
            _kind_of(epoch): f"input {edge + 1} has the epoch {short_repr(epoch)}, {_kind_of(epoch)}"
            for edge, epoch in enumerate(self._epochs)
            if epoch is not MIN and epoch is not MAX
        }
        reason = error_text(error)
        if len(known) > 1:
            reason = (
                f"{', '.join(known.values())}; set timestamps of one type on all inputs, by .assign_timestamps() "
                "before .generate_epochs()"
            )
        return operator_error(self._operator_name, f"epochs of its inputs can't be compared: {reason}", None, None)

    def catch_up(self) -> Iterator[Batch]:
        """Yield the merged epoch if it has grown."""
        lowest = min((self._epochs[edge] for edge in self._busy), default=MIN)
        if lowest > self.merged and not (self._ends_at_once and self._is_ending(lowest)):
            self.merged = lowest
            yield Batch(None, (), (), ((0, lowest),))

    def _is_ending(self, lowest: Any) -> bool:
        """Whether some, but not all, of the edges have ended."""
        return lowest is not MAX and any(self._epochs[edge] is MAX for edge in self._busy)

    def only_edge(self, edges: Sequence[Sequence[Batch]]) -> int | None:
        """Return the only active edge (its batches pass unchanged); None if there are several."""
        if len(self._busy) != 1 or any(batches for edge, batches in enumerate(edges) if edge != self._busy[0]):
            return None
        (alone,) = self._busy
        first = next((batch.epochs[0][1] for batch in edges[alone] if batch.epochs), MAX)
        return alone if first > self.merged else None

    def pass_unchanged(self, alone: int, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the batches of the only active edge."""
        for batch in batches:
            if batch.epochs:
                self._epochs[alone] = self.merged = batch.epochs[-1][1]
        return batches

    def reached(self) -> dict[int, Any]:
        """Return the epochs of the active edges, None for an edge without."""
        return {edge: None if self._epochs[edge] is MIN else self._epochs[edge] for edge in self._busy}

    def sync_state(self) -> None:
        """Write the epochs and the idle edges to the state."""
        known = {edge: None if epoch is MIN else epoch for edge, epoch in enumerate(self._epochs)}
        merged = None if self.merged is MIN else self.merged
        self.state.assign(known | {"merged": merged, "idle": tuple(map(int, self._idle)) if any(self._idle) else None})

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Restore the epochs of the edges."""
        self.state.apply(delta)
        self._epochs = [self.state.get(edge, MIN) for edge in range(len(self._epochs))]
        self.merged = self.state.get("merged", MIN)

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()

    def by_frontier(self, edges: Sequence[Sequence[Batch]]) -> Iterator[tuple[int, Batch]]:
        """Yield pieces of the batches with their edge, always from the edge with the lowest epoch."""
        for edge, number, start, stop, epoch in self.runs(edges):
            if stop > start:
                yield edge, edges[edge][number].part(start, stop)
            if epoch is not None:
                yield edge, Batch(None, (), (), ((0, epoch),))

    def runs(self, edges: Sequence[Sequence[Batch]]) -> Iterator[tuple[int, int, int, int, Any]]:
        """Yield runs of records in order, always from the edge with the lowest epoch.

        A run is the edge, the number of its batch, the first of its records and the one after the last, and the merged
        epoch that follows them, or None.
        """
        waiting = {
            edge: ((number, *run) for number, batch in enumerate(batches) for run in _runs_of(batch))
            for edge, batches in enumerate(edges)
            if batches
        }
        while waiting:
            edge = min(waiting, key=self._epochs.__getitem__)
            run = next(waiting[edge], None)
            if run is None:
                del waiting[edge]
                continue
            number, start, stop, epoch = run
            merged = None
            if epoch is not None:
                self._epochs[edge] = max(self._epochs[edge], epoch)
                merged = next((batch.epochs[0][1] for batch in self.catch_up()), None)
            yield edge, number, start, stop, merged


def _runs_of(batch: Batch) -> Iterator[tuple[int, int, Any]]:
    """Yield the bounds of each run of records, with the epoch that ends it; None if the batch ends it."""
    start = 0
    for position, epoch in batch.epochs:
        yield start, position, epoch
        start = position
    if start < len(batch.values):
        yield start, len(batch.values), None


Past = Sequence[tuple[Any, ...]]
"""Former numbers of workers, and the epochs of those workers that were ahead of the least epoch.

Where the keys were placed differently then, a third item says how: the name of the former placement or, for keys that
are parts, the worker of each part.
"""

_CACHED_FLOORS = 1 << 20
"""Entries until the cache is emptied: double takes twice the memory, half recomputes more often."""


class Floors(dict[Any, Any]):
    """For each key, the greatest epoch that its former workers issued; `MIN` if they issued none.

    Args:
        placement: the partitioner of the keys.
        past: the former numbers of workers, and the epochs of these workers.
    """

    def __init__(self, placement: Partitioner, past: Past) -> None:
        super().__init__()
        self.past = past
        self._placement = placement

    @property
    def epochs(self) -> list[Any]:
        """The epochs of the former workers."""
        return [epoch for _, epochs, *_ in self.past for epoch in epochs.values()]

    def are_passed(self, epoch: Any) -> bool:
        """Whether no key's floor is above an epoch; the floors are then no longer needed."""
        return epoch is not None and all(epoch >= reached for reached in self.epochs)

    def __missing__(self, key: Any) -> Any:
        if len(self) >= _CACHED_FLOORS:
            self.clear()
        self[key] = floor = max(self._reached(key, *entry) for entry in self.past)
        return floor

    def _reached(self, key: Any, workers: int, epochs: Mapping[int, Any], placed: Any = None) -> Any:
        """Return the epoch that a key's worker had issued, at one of the former numbers of workers."""
        if isinstance(placed, Mapping):
            worker = placed[key] if key in placed else rendezvous_select(key, range(workers))  # a key that is no part
        else:
            worker = _select(placed, self._placement)(key, range(workers))
        return epochs.get(worker, MIN)


def _select(placed: str | None, placement: Partitioner) -> Partitioner:
    if placed is None:
        return placement
    return rendezvous_select if placed == PLACEMENT else former_select


REACHED = "epoch"
"""The role of the hidden state."""

UNTIL = "until"
"""The key, in the state, of the span that closed windows are kept: see `operators.windows.kept_windows`."""

KEPT = "kept"
"""The key, in the state, of shorter former spans."""


class ReachedEpoch:
    """The last epoch that has passed an operator, restored with it.

    Attributes:
        state: the epoch, in the form that `Movement.EPOCHS` moves.
        epoch: the epoch; None before the first one.
        like: a timestamp of the records' type; None before the first record.
        idle: the idleness of the operator's input: see `malflow.engine.worker_time.Idle`.
        on_apply: called after another epoch was applied, to drop data derived from the previous one.
        floors: after a rescale, the epochs of old workers that were ahead of this one, by key, or None.
    """

    def __init__(self, context: OperatorContext) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self.epoch: Any = None
        self.like: Any = None
        self.idle = 0
        self.on_apply: Callable[[], None] | None = None
        self.floors: Floors | None = None
        self._placement = context.placement

    def advance(self, epoch: Any) -> None:
        """Set the epoch."""
        self.epoch = epoch
        if self.floors is not None and self.floors.are_passed(epoch):
            self.floors = None

    def sync_state(self) -> None:
        """Write the epoch to the state."""
        past = None if self.floors is None else self.floors.past
        self.state.assign({"epoch": self.epoch, "idle": int(self.idle) or None, "past": past, "like": self.like})
        self.state.assign(self.spans())

    def spans(self) -> Mapping[str, Any]:
        """Return the spans in the state unchanged; only `KeptWindows` adds its own."""
        until, kept = self.state.get(UNTIL), self.state.get(KEPT)
        if until is not None and self.epoch is not None:
            kept = (*(kept or ()), (until, self.epoch))
        return {UNTIL: None, KEPT: kept}

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Restore an epoch."""
        self.state.apply(delta)
        self.epoch, self.like = self.state.get("epoch"), self.state.get("like")
        past = self.state.get("past")
        self.floors = None if past is None or self._placement is None else Floors(self._placement, past)
        if self.on_apply is not None:
            self.on_apply()

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()
