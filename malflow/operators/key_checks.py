"""The check of keys whose states are not in a `KeyedState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from malflow.operators.contract import OperatorContext

__all__ = ["Admission", "admission_of"]

_KNOWN_KEYS = 1 << 20
"""Checked keys until the set is emptied: double takes twice the memory, half checks keys again more often."""


class Admission:
    """Checks the keys of new states, each only once unless there are too many."""

    def __init__(self, check: Callable[[Any], None]) -> None:
        self._check = check
        self._known: set[Any] = set()

    def __call__(self, key: Any) -> None:
        """Check a key, unless it was checked before."""
        if key not in self._known:
            self._check(key)
            if len(self._known) >= _KNOWN_KEYS:
                self._known.clear()
            self._known.add(key)


def admission_of(context: OperatorContext) -> Admission | None:
    """Return the check of an operator's keys; None if there is one worker, to which all keys belong."""
    return None if len(context.workers) == 1 else Admission(context.admit)
