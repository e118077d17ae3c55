"""Saves positions of parts that have changed."""

from __future__ import annotations

import pickle
from hashlib import blake2b
from typing import Any

from malflow.states.keyed import ATOMIC_TYPES, Delta, KeyedState

__all__ = ["Positions"]

_COMPARED = ATOMIC_TYPES - {float, complex}
_DIGEST = 16
"""Bytes of a fingerprint: 128 bits make equal digests of different positions impossible in practice."""


class Positions:
    """Keeps the positions of parts in a state; an unchanged position is not part of its delta.

    A part may mutate its position object. The object always equals itself, so digests of pickles are compared. If these
    are inconclusive, the position counts as changed.

    Args:
        state: holds the positions.
    """

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._known: dict[Any, object] = {}

    def note(self, part: Any, position: Any) -> None:
        """Save the position of a part."""
        fingerprint = _fingerprint(position)
        if part in self._known and self._known[part] == fingerprint:
            return
        self._known[part] = fingerprint
        self._state.touch((part,))
        self._state[part] = position

    def apply(self, delta: Delta) -> None:
        """Remember the positions loaded into the state, before a part can change them."""
        if delta.whole:
            self._known.clear()
        for part in delta.deleted:
            self._known.pop(part, None)
        self._known.update((part, _fingerprint(position)) for part, position in delta.changed.items())


def _fingerprint(position: Any) -> object:
    """Return a fingerprint, equal only for indistinguishable positions."""
    kind = type(position)
    if kind in _COMPARED:
        return kind, position
    try:
        return blake2b(pickle.dumps(position, 5), digest_size=_DIGEST).digest()
    except Exception:  # noqa: BLE001 - classes of the user may raise any; the writer of the position reports it
        return object()
