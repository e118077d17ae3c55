"""The keyed state of one operator on one worker, and what changed in it."""

from __future__ import annotations

import copy
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    ValuesView,
)
from dataclasses import dataclass, field
from typing import Any

from malflow.message import MAX, MIN, NoKey
from malflow.partitioners import check_key

__all__ = ["ATOMIC_TYPES", "Delta", "KeyedState", "StatesView", "copied"]

ATOMIC_TYPES = frozenset({int, str, float, bool, bytes, complex, type(None), type(MIN), type(MAX), type(NoKey)})
"""Types whose values can't be changed in place, nor anything in them."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed in a keyed state since the delta before: new states by key, and the keys that are gone."""

    changed: Mapping[Any, Any] = field(default_factory=dict)
    deleted: frozenset[Any] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.changed or self.deleted)


class KeyedState(dict[Any, Any]):
    """The state of every key, in the order in which keys were first seen.

    Reading a key that is absent gives a new default state, and checks that the key is usable; it stores nothing.

    Args:
        default: makes the state of a key that has none; without it that state is None.
        tracked: whether changes are noted for `delta`. Nothing is noted, and nothing paid, where none is asked for.
        admit: checks a key that is new, and raises if it can't be taken.
    """

    __slots__ = ("_admit", "_default", "_dirty")

    def __init__(
        self,
        default: Callable[[], Any] | None = None,
        *,
        tracked: bool = False,
        admit: Callable[[Any], object] = check_key,
    ) -> None:
        super().__init__()
        self._default = default
        self._admit = admit
        self._dirty: set[Hashable] | None = set() if tracked else None

    def admit(self, key: Any) -> None:
        """Check that a new key can be taken."""
        self._admit(key)

    def __missing__(self, key: Any) -> Any:
        self._admit(key)
        return None if self._default is None else self._default()

    def touch(self, keys: Iterable[Any]) -> None:
        """Note that the states of these keys may have changed, in place or by being replaced or deleted."""
        if self._dirty is not None:
            self._dirty.update(keys)

    def delta(self) -> Delta:
        """Give what changed since the last call. The states in it are the live ones: serialise them at once."""
        dirty, self._dirty = self._dirty or (), None if self._dirty is None else set()
        changed = {key: self[key] for key in dirty if key in self}
        return Delta(changed, frozenset(key for key in dirty if key not in self))

    def apply(self, delta: Delta) -> None:
        """Bring the state to where `delta` left it."""
        self.update(delta.changed)
        for key in delta.deleted:
            self.pop(key, None)


class StatesView(MutableMapping[Any, Any]):
    """All states of one operator on one worker, as `on_epoch` and `on_schedule` see them: a dict, key -> state.

    Setting a state to None drops the key. A state that is read through it counts as changed, since it may be mutated in
    place; so `values` and `items` touch every key, while iterating over the keys touches none.
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
        """Give all keys with their states; all of them count as changed."""
        self._states.touch(self._states)
        return self._states.items()

    def values(self) -> ValuesView[Any]:
        """Give all states; all of them count as changed."""
        self._states.touch(self._states)
        return self._states.values()

    def clear(self) -> None:
        """Drop every state."""
        self._states.touch(self._states)
        self._states.clear()

    def __repr__(self) -> str:
        return repr(dict(self._states))


def copied(value: Any) -> Any:
    """Copy a value so deep that no later change of it shows in the copy."""
    kind = type(value)
    if kind in ATOMIC_TYPES or (isinstance(value, tuple) and ATOMIC_TYPES.issuperset(map(type, value))):
        return value
    if kind in (list, set) and ATOMIC_TYPES.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and ATOMIC_TYPES.issuperset(map(type, value.values())):
        return value.copy()
    return copy.deepcopy(value)
