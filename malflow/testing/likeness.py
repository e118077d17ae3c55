"""Compare values of two runs by their contents, without relying on ``__eq__``."""

from __future__ import annotations

from cmath import isnan
from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

from malflow.states.keyed import ATOMIC_TYPES

__all__ = ["likeness"]


def likeness(thing: Any) -> Hashable:
    """Return a hashable value that is equal for objects with equal contents, even if they define no ``__eq__``.

    Objects are alike if they pickle alike; dataclasses are compared by their comparison fields. Classes are compared
    by name. A class defined inside a function thus stays the same between calls. An object that cannot be inspected is
    like any other of its class.

    >>> likeness([1, {"a": {2}}]) == likeness([1, {"a": {2}}]), likeness([1]) == likeness((1,))
    (True, False)
    >>> likeness(float("nan")) == likeness(float("nan"))
    True
    """
    return _likeness(thing, ())


def _likeness(thing: Any, above: tuple[int, ...]) -> Hashable:
    kind = type(thing)
    if kind in ATOMIC_TYPES:
        return "NaN" if kind in (float, complex) and isnan(thing) else thing
    if isinstance(thing, type | FunctionType | BuiltinFunctionType):
        return ("name", thing.__module__, thing.__qualname__)
    if id(thing) in above:
        return ("again", len(above) - above.index(id(thing)))
    inside = (*above, id(thing))
    if isinstance(thing, list | tuple):
        return (_name(kind), *(_likeness(item, inside) for item in thing))
    if isinstance(thing, AbstractSet):
        return (_name(kind), frozenset(_likeness(item, inside) for item in thing))
    if isinstance(thing, Mapping):
        return (_name(kind), frozenset((_likeness(k, inside), _likeness(v, inside)) for k, v in thing.items()))
    if is_dataclass(thing):
        compared = (getattr(thing, field.name, None) for field in fields(thing) if field.compare)
        return (_name(kind), *(_likeness(value, inside) for value in compared))
    return (_name(kind), _pickled(thing, inside))


def _pickled(thing: Any, inside: tuple[int, ...]) -> Hashable:
    """Decompose an object as pickle does."""
    try:
        reduced = thing.__reduce_ex__(4)
        if isinstance(reduced, str):
            return reduced
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        parts = [arguments, state, list(items or ()), dict(pairs or ())]
    except Exception:  # noqa: BLE001 - classes that cannot be pickled raise any exception
        return "?"
    return (getattr(make, "__qualname__", "?"), *(_likeness(part, inside) for part in parts))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
