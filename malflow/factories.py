"""Factories of states, each of whose states belongs to one key.

A factory that returns one object again and again, as ``lambda: EMPTY`` does, gives all keys one state, which shows only
once two keys have changed it. So the first two states of a factory are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from malflow.diagnostics import describe
from malflow.words import short_repr

__all__ = ["Fresh"]

_SHARED = (type, type(None), type(...), FunctionType, BuiltinFunctionType, ModuleType)
_NONE: Any = object()


class Fresh:
    """A factory that checks that its first two states are two objects, if they could change.

    Args:
        factory: the factory.
        what: the name of the argument that it was, such as ``default=``.
        done: called with the factory once it needs no further check.
    """

    __slots__ = ("_done", "_factory", "_first", "_what")

    def __init__(self, factory: Callable[[], Any], what: str, done: Callable[[Any], None] | None = None) -> None:
        self._factory, self._what, self._done = factory, what, done
        self._first = _NONE

    def __call__(self) -> Any:
        """Return a new state.

        Raises:
            ValueError: if it is the same object as the first.
        """
        made = self._factory()
        if made is self._first and not _cannot_change(made):
            raise ValueError(
                f"{self._what} returned one object twice, {short_repr(made)}, which all keys would share; return a new "
                f"one each time, as list or lambda: dict(EMPTY) do; it is {describe(self._factory)}"
            )
        if self._done is not None and self._first is not _NONE:
            self._done(self._factory)
        self._first = made
        return made


def _cannot_change(thing: Any) -> bool:
    """Whether a thing counts as immutable: it is hashed by its value, or is one that is never a state of its own."""
    kind: Any = type(thing)
    if kind.__hash__ is None or kind.__hash__ is object.__hash__:
        return type(thing) is object or isinstance(thing, _SHARED)
    try:
        hash(thing)
    except Exception:  # noqa: BLE001 - such as a tuple with a list in it
        return False
    return True
