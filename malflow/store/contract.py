"""The five operations through which every snapshot goes, and how they may end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from malflow.errors import StoreError

__all__ = ["KeyExists", "KeyMissing", "Store", "Transient", "UnknownOutcome", "is_key", "require_folder", "require_key"]


class KeyExists(Exception):
    """An object with this key exists already; nothing was written now.

    Where a network lies between, it may be one's own: an earlier try whose answer was lost. Read it to know.
    """


class KeyMissing(Exception):
    """There is no object with this key."""


class Transient(StoreError):
    """It was not done, and may be if it is tried again."""


class UnknownOutcome(StoreError):
    """The store did not tell whether the object was written; it may appear later, too."""


class Store(Protocol):
    """A place for immutable objects.

    Keys are relative paths of ASCII letters, digits, ``-`` and ``.``, whose components don't begin with a dot; never
    user text. What is no such key is refused as a StoreError before anything is touched.

    A store tries each operation once. The caller tries again what ended as `Transient`, and, where that is right, as
    `UnknownOutcome`. A KeyboardInterrupt or another BaseException passes through; it leaves no part of an object, but
    whether a `put_new` that it interrupted was or will be done is as unknown as after an `UnknownOutcome`.

    A store may be used by several threads at once.
    """

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object that is there as a whole or not at all, never over another, and durable on return.

        Raises:
            KeyExists: if there is one already.
            Transient: if it was not and will not be written, but may be when tried again.
            UnknownOutcome: if it may or may not have been written, or may be later.
            StoreError: if it was not and will not be written.
        """

    def get(self, key: str, limit: int) -> bytes:
        """Read an object as it is now, never from a cache: whole, or its first ``limit + 1`` bytes where it is longer.

        Raises:
            KeyMissing: if there is none; the store says so, it is not concluded from an error.
            Transient: if it can't be read now.
            StoreError: if it can't be read.
        """

    def list(self, prefix: str) -> list[str]:
        """List the keys below a folder such as ``"m/"``, or all of them for ``""``: what is there now, sorted.

        Whatever else lies there under a name that could be a key is listed, too.

        Raises:
            Transient: if they can't be listed now.
            StoreError: if they can't be listed; that is never told as an empty list.
        """

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error.

        Raises:
            Transient: if it was perhaps not removed, and may be when tried again.
            StoreError: if it can't be removed.
        """

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Remove what interrupted writes of keys below `prefix` left behind, where `dead` says so of the key.

        Raises:
            StoreError: if something can't be removed.
        """


_COMPONENT = r"[A-Za-z0-9-][A-Za-z0-9.-]*"
_KEY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")


def is_key(text: str) -> bool:
    """Tell whether a text may be a key.

    >>> [is_key(text) for text in ("m/00017.json", "job.json", "../job.json", "/m/1", "m//1", "m/.tmp-1", "m/")]
    [True, True, False, False, False, False, False]
    """
    return _KEY.fullmatch(text) is not None


def require_key(key: str) -> None:
    """Refuse what can't be a key.

    Raises:
        StoreError: if it can't.
    """
    if not is_key(key):
        raise StoreError(f"{key[:80]!r} can't be a key of a store; nothing was touched")


def require_folder(prefix: str) -> None:
    """Refuse what is neither a folder of keys, with a slash at its end, nor empty.

    Raises:
        StoreError: if it is neither.
    """
    if prefix and not (prefix.endswith("/") and is_key(prefix[:-1])):
        raise StoreError(f"{prefix[:80]!r} can't be a folder of a store; nothing was touched")
