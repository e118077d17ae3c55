"""Emitted values that must not change afterwards, though they hold a state that will.

A value that a function emits and the state that it keeps are two things to the engine, and may be one object to Python:
``return {"pages": pages}, pages``. The next record of the key appends to the list, and so to what was emitted before.
So a value is set apart where it is the state or holds it directly, and where it is or holds a part of a state that is
a tuple or a dataclass, or was read from an `ExpireMap`. What lies deeper is not looked for: ``debug=True`` finds it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from malflow.states.keyed import ATOMIC_TYPES, copied

__all__ = ["UNCHANGING", "apart"]

UNCHANGING = ATOMIC_TYPES - {type(None)}
"""The types of states that no later record can change in place; a state that is None is dropped."""

_NOTHING: Collection[Any] = ()


def apart(value: Any, state: Any, lent: Iterable[Any] = ()) -> Any:
    """Return a value, or a copy of it in which copies stand for the state and for what it shares with the state.

    Args:
        value: the value.
        state: the state.
        lent: parts of the state that the function that returned the value has seen.

    >>> pages = ["a"]
    >>> emitted = apart({"user": "ann", "pages": pages}, pages)
    >>> pages.append("b")
    >>> emitted
    {'user': 'ann', 'pages': ['a']}
    """
    if type(value) in ATOMIC_TYPES or type(state) in ATOMIC_TYPES:
        return value
    held = {id(state), *(id(part) for part in chain(_fields(state), lent) if type(part) not in ATOMIC_TYPES)}
    if id(value) in held:
        return copied(value)
    parts = _parts(value)
    if ATOMIC_TYPES.issuperset(map(type, parts)) or held.isdisjoint(map(id, parts)):
        return value
    others = (*parts, *value) if isinstance(value, dict) else parts
    return copy.deepcopy(value, {id(part): part for part in others if id(part) not in held})


def _parts(value: Any) -> Collection[Any]:
    """Return the parts that a value holds directly."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else _fields(value)


def _fields(value: Any) -> Collection[Any]:
    """Return the parts of a tuple, or of an object by its dataclass or attributes."""
    if isinstance(value, tuple):
        return value
    names = getattr(type(value), "__dataclass_fields__", None)
    if names is not None:
        return [getattr(value, name) for name in names if hasattr(value, name)]
    try:
        return list(vars(value).values())
    except TypeError:
        return _NOTHING
