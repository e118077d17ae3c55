"""A debugging check that the recorded deltas add up to the live state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from malflow.errors import SnapshotError
from malflow.snapshot.persistence import RestoredState
from malflow.states.keyed import Delta, KeyedState, StateDelta
from malflow.states.paned import OperatorState
from malflow.words import plural, short_repr

__all__ = ["Recount"]

_NONE: Any = object()


class Recount:
    """The keys that all deltas add up to, replayed as a restore would.

    Args:
        restored: the state before the first delta; None if it is empty.
    """

    def __init__(self, restored: RestoredState | None) -> None:
        self._keys: dict[tuple[int, str], KeyedState] = {}
        for name, by_worker in ({} if restored is None else restored.states).items():
            for worker, states in by_worker.items():
                self._add(worker, name, Delta(states, whole=True))

    def check(
        self,
        deltas: Iterable[StateDelta],
        states: Mapping[tuple[int, str], OperatorState],
        *,
        base: bool,
    ) -> None:
        """Apply deltas, and compare the keys with the live states.

        Args:
            deltas: the changes of one tick.
            states: the live states by worker and name.
            base: whether the deltas hold the full state.

        Raises:
            SnapshotError: naming the operator and the first key that differs.
        """
        if base:
            self._keys.clear()
        for worker, name, delta, _ in deltas:
            self._add(worker, name, delta)
        for (worker, name), live in states.items():
            kept: Mapping[Any, Any] = self._keys.get((worker, name), {})
            if live.arranged(kept) != list(live):
                raise _difference(worker, name, live.arranged(kept), live)

    def _add(self, worker: int, name: str, delta: Delta) -> None:
        keys = Delta(dict.fromkeys(delta.changed), delta.deleted, delta.appended, delta.whole)
        self._keys.setdefault((worker, name), KeyedState()).apply(keys)


def _difference(worker: int, name: str, kept: list[Any], live: OperatorState) -> SnapshotError:
    there, here = next(pair for pair in zip_longest(kept, live, fillvalue=_NONE) if pair[0] != pair[1])
    first, second = (("none" if key is _NONE else f"key {short_repr(key)}") for key in (there, here))
    return SnapshotError(
        f"operator '{name}' has {plural(len(live), 'key')} on worker {worker}, but its snapshots add up to "
        f"{len(kept)}: the first difference is {first} instead of {second}; keys and their hashes must not change"
    )
