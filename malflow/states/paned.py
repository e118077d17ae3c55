"""The state of an operator that keeps a state for each pane of time and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Any, SupportsIndex

from malflow.states.keyed import SLACK, Delta, KeyedState, dirty_tail

__all__ = ["OperatorState", "PanedState", "Slot"]

Slot = tuple[int, Any]
"""The number of a pane and a key, under which snapshots store a state."""


class PanedState(Mapping[Slot, Any]):
    """States by pane and key; within a pane, in the order in which the keys were first seen.

    As a mapping, its keys are `Slot`s, pane by pane. So a delta has only the slots that changed, and closing a pane
    takes one `drop`.

    Args:
        tracked: whether to track changes for `delta`. Untracked state costs nothing.

    Attributes:
        panes: the states by key, by the number of their pane. Only `pane` and `drop` may change it; other code may set
            the states in a pane, and must then call `touch`.
    """

    __slots__ = ("_dirty", "_dropped", "_fresh", "_tracked", "_whole", "panes")

    def __init__(self, *, tracked: bool = False) -> None:
        self.panes: dict[int, dict[Any, Any]] = {}
        self._tracked = tracked
        self._whole = True
        self._dirty: dict[int, set[Any] | None] = {}  # by pane; None: all of its keys
        self._fresh: set[int] = set()  # panes that are in no delta yet
        self._dropped: list[tuple[int, dict[Any, Any]]] = []

    def pane(self, number: int) -> dict[Any, Any]:
        """Return the states of a pane. The pane is created if it does not exist."""
        states = self.panes.get(number)
        if states is None:
            states = self.panes[number] = {}
            if self._tracked:
                self._dirty[number] = None
                self._fresh.add(number)
        return states

    def touch(self, number: int, keys: Iterable[Any]) -> None:
        """Mark keys of a pane as dirty: their states may have been mutated, replaced or set."""
        if self._tracked:
            dirty = self._dirty.setdefault(number, set())
            if dirty is not None:
                dirty.update(keys)

    def toucher(self, number: int) -> Callable[[Any], object] | None:
        """Return a function that marks a key of a pane as dirty, until the next delta; None if not needed."""
        if not self._tracked:
            return None
        dirty = self._dirty.setdefault(number, set())
        return None if dirty is None else dirty.add

    def drop(self, number: int) -> dict[Any, Any]:
        """Drop a pane; return its states."""
        states = self.panes.pop(number)
        if self._tracked:
            self._dirty.pop(number, None)
            if number in self._fresh:
                self._fresh.discard(number)
            else:
                self._dropped.append((number, states))
        return states

    def arranged(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return slots pane by pane, in order within each pane."""
        return sorted(slots, key=itemgetter(0))

    def forget(self) -> None:
        """Make the next delta complete."""
        self._whole = True

    def delta(self) -> Delta:
        """Return the changes since the last call, by slot. Its states are the live objects: serialise them at once.

        The first delta is complete. An untracked state returns an empty one.
        """
        if not self._tracked:
            return Delta()
        changes = Delta() if self._whole else self._changes()
        if 4 * (len(changes.changed) + len(changes.deleted) - SLACK) > 3 * len(self):
            self._whole = True
        if self._whole:
            changes = Delta(self._flat(), whole=True)
        self._whole = False
        self._clean()
        return changes

    def apply(self, delta: Delta) -> None:
        """Apply a delta, reproducing the order of keys in each pane; it does not count as a change."""
        panes = self.panes
        if delta.whole:
            panes.clear()
        else:
            gone = [*delta.deleted, *islice(delta.changed, len(delta.changed) - delta.appended, None)]
            for number, key in gone:
                if number in panes:
                    panes[number].pop(key, None)
        for (number, key), state in delta.changed.items():
            panes.setdefault(number, {})[key] = state
        for number in [number for number, states in panes.items() if not states]:
            del panes[number]
        self._clean()
        self._whole = self._whole and not delta.whole

    def _changes(self) -> Delta:
        in_place: dict[Slot, Any] = {}
        appended: dict[Slot, Any] = {}
        for number in sorted(self._dirty):
            states, dirty = self.panes[number], self._dirty[number]
            tail = list(states) if dirty is None else dirty_tail(states, dirty)
            if dirty is not None:
                in_place.update(((number, key), states[key]) for key in dirty.difference(tail))
            appended.update(((number, key), states[key]) for key in tail)
        deleted = {(number, key) for number, states in self._dropped for key in states}
        changed = in_place | appended
        return Delta(changed, frozenset(deleted.difference(changed)), len(appended))

    def _clean(self) -> None:
        self._dirty, self._fresh, self._dropped = {}, set(), []

    def _flat(self) -> dict[Slot, Any]:
        return {(number, key): state for number in sorted(self.panes) for key, state in self.panes[number].items()}

    def __getitem__(self, slot: Slot) -> Any:
        return self.panes[slot[0]][slot[1]]

    def __len__(self) -> int:
        return sum(map(len, self.panes.values()))

    def __iter__(self) -> Iterator[Slot]:
        for number in sorted(self.panes):
            for key in self.panes[number]:
                yield number, key

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (self._flat(),)

    def __repr__(self) -> str:
        return f"PanedState({self.panes!r})"


OperatorState = KeyedState | PanedState
"""The state of an operator on one worker, as a mapping by the keys that snapshots use."""
