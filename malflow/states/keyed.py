"""The keyed state of one operator on one worker, and its changes."""

from __future__ import annotations

import copy
from collections.abc import (
    Callable,
    Container,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    ValuesView,
)
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple, SupportsIndex

from malflow.diagnostics import Fresh
from malflow.message import MAX, MIN, NoKey
from malflow.partitioners import check_key

__all__ = [
    "ATOMIC_TYPES",
    "SLACK",
    "Delta",
    "DeltaSum",
    "KeyedState",
    "StateDelta",
    "StatesView",
    "copied",
    "dirty_tail",
]

ATOMIC_TYPES = frozenset({int, str, float, bool, bytes, complex, type(None), type(MIN), type(MAX), type(NoKey)})
"""Types whose values are deeply immutable."""

SLACK = 1024
"""Allowance for small states: if more than three quarters of the keys plus this many changed, the delta is complete."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes of a keyed state since the previous delta.

    Attributes:
        changed: new states by key. In a complete delta it may be the live state itself.
        deleted: the deleted keys.
        appended: how many of the last keys in `changed` are at the end of the state, in this order.
        whole: whether `changed` is the complete state and replaces any earlier one.
    """

    changed: Mapping[Any, Any] = field(default_factory=dict)
    deleted: frozenset[Any] = frozenset()
    appended: int = 0
    whole: bool = False

    def __bool__(self) -> bool:
        return bool(self.whole or self.changed or self.deleted)


class StateDelta(NamedTuple):
    """The change of one state on one worker.

    Attributes:
        worker: the worker.
        name: the name of the state: see `malflow.engine.state_specs.states_of`.
        delta: the change; the states in it are live.
        keys: the current number of keys on this worker.
    """

    worker: int
    name: str
    delta: Delta
    keys: int


class DeltaSum:
    """Merges successive deltas into one with the same effect.

    >>> total = DeltaSum()
    >>> total.add(Delta({"a": 1, "b": 2}, appended=2))
    >>> total.add(Delta({"a": 3}, frozenset({"b"})))
    >>> total.delta()
    Delta(changed={'a': 3}, deleted=frozenset({'b'}), appended=1, whole=False)
    """

    def __init__(self) -> None:
        self._in_place: dict[Any, Any] = {}
        self._appended: dict[Any, Any] = {}
        self._deleted: set[Any] = set()
        self._whole = False

    def add(self, later: Delta) -> None:
        """Add a later delta."""
        if later.whole:
            self._in_place, self._appended, self._deleted = {}, dict(later.changed), set()
            self._whole = True
            return
        items = iter(later.changed.items())
        for key in later.deleted:
            self._drop(key)
            self._deleted.add(key)
        in_place = islice(items, len(later.changed) - later.appended)
        if not self._appended:
            self._in_place.update(in_place)
        for key, state in in_place:
            (self._appended if key in self._appended else self._in_place)[key] = state
        for key, state in items:
            self._drop(key)
            self._deleted.discard(key)
            self._appended[key] = state

    def delta(self) -> Delta:
        """Return the merged delta."""
        if self._whole:
            return Delta(self._appended, whole=True)
        return Delta(self._in_place | self._appended, frozenset(self._deleted), len(self._appended))

    def _drop(self, key: Any) -> None:
        self._in_place.pop(key, None)
        self._appended.pop(key, None)


def dirty_tail(states: dict[Any, Any], dirty: Container[Any]) -> list[Any]:
    """Return the longest run of dirty keys at the end of a state, in order; it contains all new keys."""
    tail = []
    for key in reversed(states):
        if key not in dirty:
            break
        tail.append(key)
    tail.reverse()
    return tail


class KeyedState(dict[Any, Any]):
    """The state of every key, in the order in which keys were first seen.

    Reading an absent key checks that the key is usable and returns a new default state; it stores nothing.
    Pickled as a plain dict.

    Args:
        default: creates the state of a new key; without it that state is None.
        tracked: whether to track changes for `delta`. Untracked state costs nothing.
        admit: checks a new key, and raises if it cannot be used.
    """

    _default: Callable[[], Any] | None

    __slots__ = ("_admit", "_default", "_dirty", "_tracked")

    def __init__(
        self,
        default: Callable[[], Any] | None = None,
        *,
        tracked: bool = False,
        admit: Callable[[Any], object] = check_key,
    ) -> None:
        super().__init__()
        self._default = None if default is None else Fresh(default, "default=", self._trust)
        self._admit = admit
        self._tracked = tracked
        self._dirty: set[Hashable] | None = None  # None: the next delta is complete

    def admit(self, key: Any) -> None:
        """Check that a new key can be used."""
        self._admit(key)

    def _trust(self, default: Callable[[], Any]) -> None:
        """Call a factory without a check from now on."""
        self._default = default

    def __missing__(self, key: Any) -> Any:
        self._admit(key)
        return None if self._default is None else self._default()

    def touch(self, keys: Iterable[Any]) -> None:
        """Mark keys as dirty: their states may have been mutated, replaced or deleted."""
        dirty = self._dirty
        if dirty is not None:
            dirty.update(keys)
            if 4 * (len(dirty) - SLACK) > 3 * len(self):
                self._dirty = None

    def arranged(self, keys: Iterable[Any]) -> list[Any]:
        """Return the keys unchanged: they are in the order in which they were first seen."""
        return list(keys)

    def forget(self) -> None:
        """Make the next delta complete."""
        self._dirty = None

    def assign(self, states: Mapping[Any, Any]) -> None:
        """Set the states of some keys; None drops a key. A state equal to the current one does not count as changed."""
        for key, state in states.items():
            if self.get(key) == state:
                continue
            self.touch((key,))
            if state is None:
                del self[key]
            else:
                self[key] = state

    def delta(self) -> Delta:
        """Return the changes since the last call. Its states are the live objects: serialise them at once.

        The first delta is complete. An untracked state returns an empty one.
        """
        if not self._tracked:
            return Delta()
        dirty, self._dirty = self._dirty, set()
        if dirty is None:
            return Delta(self, whole=True)
        tail = dirty_tail(self, dirty)
        dirty.difference_update(tail)
        changed = {key: self[key] for key in dirty if key in self}
        deleted = frozenset(dirty.difference(changed) if len(changed) < len(dirty) else ())
        changed.update({key: self[key] for key in tail})
        return Delta(changed, deleted, len(tail))

    def apply(self, delta: Delta) -> None:
        """Apply a delta, reproducing the order of keys; it does not count as a change."""
        if delta.whole:
            self.clear()
            self.update(delta.changed)
            self._dirty = set() if self._tracked else None
            return
        gone = chain(delta.deleted, islice(delta.changed, len(delta.changed) - delta.appended, None))
        for key in gone:
            self.pop(key, None)
        self.update(delta.changed)

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())


class StatesView(MutableMapping[Any, Any]):
    """All states of one operator on one worker as a dict, key -> state; passed to `on_epoch` and `on_schedule`.

    Setting a state to None drops the key. Reading a state counts as a change, since it may be mutated in place; so
    `values` and `items` make the next delta complete; iterating over the keys has no such effect.
    """

    __slots__ = ("_states",)

    def __init__(self, states: KeyedState) -> None:
        self._states = states

    def __getitem__(self, key: Any) -> Any:
        if key not in self._states:
            raise KeyError(key)
        self._states.touch((key,))
        return self._states[key]

    def __setitem__(self, key: Any, state: Any) -> None:
        if state is None:
            self.pop(key, None)
            return
        if key not in self._states:
            self._states.admit(key)
        self._states.touch((key,))
        self._states[key] = state

    def __delitem__(self, key: Any) -> None:
        del self._states[key]
        self._states.touch((key,))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, key: object) -> bool:
        return key in self._states

    def items(self) -> ItemsView[Any, Any]:
        """Return all keys with their states; all of them count as changed."""
        self._states.forget()
        return self._states.items()

    def values(self) -> ValuesView[Any]:
        """Return all states; all of them count as changed."""
        self._states.forget()
        return self._states.values()

    def clear(self) -> None:
        """Drop every state."""
        self._states.forget()
        self._states.clear()

    def __repr__(self) -> str:
        return repr(dict(self._states))


def copied(value: Any) -> Any:
    """Return a deep copy, with fast paths for immutable contents."""
    kind = type(value)
    if kind in ATOMIC_TYPES or (isinstance(value, tuple) and ATOMIC_TYPES.issuperset(map(type, value))):
        return value
    if kind in (list, set) and ATOMIC_TYPES.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and ATOMIC_TYPES.issuperset(map(type, value.values())):
        return value.copy()
    return copy.deepcopy(value)
