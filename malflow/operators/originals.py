"""Values as they were before a function of the user was called, for records that fail.

A function may change its record before it fails: take a field out, or append to a list. The dead letter, the next
attempt and the replay have the record as it came, so a value that can change is copied before the call. Flat dicts,
lists and sets are copied as they are, other values by pickle, the fastest deep copy there is.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from typing import Any

from malflow.states.keyed import ATOMIC_TYPES

__all__ = ["are_atomic", "has_changed", "original_of", "spare_of"]


class _Pickled(bytes):
    """A value as a pickle."""


def are_atomic(values: Iterable[Any]) -> bool:
    """Whether no function can change the values."""
    return ATOMIC_TYPES.issuperset(map(type, values))


def spare_of(value: Any) -> Any:
    """Return a spare of a value as it is now, for `original_of`: the value itself if it can't change or be copied.

    >>> value = {"amount": -1}
    >>> spare = spare_of(value)
    >>> value.pop("amount"), original_of(spare)
    (-1, {'amount': -1})
    """
    kind = type(value)
    if kind is dict:
        if ATOMIC_TYPES.issuperset(map(type, value.values())):
            return value.copy()
    elif kind in ATOMIC_TYPES:
        return value
    elif kind is list or kind is set:
        if are_atomic(value):
            return value.copy()
    elif kind is tuple and are_atomic(value):
        return value
    try:
        return _Pickled(pickle.dumps(value, 5))
    except Exception:  # noqa: BLE001 - of the user's class, which may be copied in another way
        return _deeply(value)


def _deeply(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a value that can't be copied, such as one with a lock, stays as it is
        return value


def original_of(spare: Any) -> Any:
    """Return a new copy of the value of which `spare_of` made a spare."""
    if type(spare) is _Pickled:
        return pickle.loads(spare)  # noqa: S301 - just written
    return spare if type(spare) in ATOMIC_TYPES else _deeply(spare)


def has_changed(value: Any, spare: Any) -> bool:
    """Whether a value differs from its spare; False if it can't be told."""
    try:
        if type(spare) is not _Pickled:
            return bool(value != spare)
        return pickle.dumps(original_of(spare_of(value)), 5) != pickle.dumps(original_of(spare), 5)
    except Exception:  # noqa: BLE001 - of the user's class
        return False
