"""Servers and forked children: a child that outlives its parent must hold neither the port nor the clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

__all__ = ["keep_in_children", "release_in_children"]

_held: Final[WeakKeyDictionary[object, Callable[[], Iterable[int]]]] = WeakKeyDictionary()


def release_in_children(owner: object, descriptors: Callable[[], Iterable[int]]) -> None:
    """In each child forked from now on, release the sockets of an object. They stay open in this process.

    Args:
        owner: the object; nothing is done once it is gone.
        descriptors: returns the file descriptors of its sockets.
    """
    _held[owner] = descriptors


def keep_in_children(owner: object) -> None:
    """Leave an object's sockets alone from now on. Call this before it closes them: their numbers will be reused."""
    _held.pop(owner, None)


def _release() -> None:
    """Replace the sockets with the null device. Their numbers stay taken, as objects of the child will close them."""
    for descriptors in [*_held.values()]:
        with suppress(OSError, RuntimeError):  # RuntimeError: the parent was adding one just then
            nothing = os.open(os.devnull, os.O_RDWR)
            for it in descriptors():
                if it >= 0:
                    os.dup2(nothing, it, inheritable=False)
            os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)
