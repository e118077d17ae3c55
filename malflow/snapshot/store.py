"""The five operations through which every snapshot goes, and how they may end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from malflow.errors import StoreError

__all__ = ["KeyExists", "KeyMissing", "Store", "UnknownOutcome"]


class KeyExists(Exception):
    """An object with this key exists already; nothing was written."""


class KeyMissing(Exception):
    """There is no object with this key."""


class UnknownOutcome(StoreError):
    """The store did not tell whether the object was written; it may appear later, too."""


class Store(Protocol):
    """A place for immutable objects. Keys are relative, of ASCII letters, digits and ``- . /``; never user text."""

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object that is there as a whole or not at all, never over another, and durable on return.

        Raises:
            KeyExists: if there is one already.
            UnknownOutcome: if it may or may not have been written, or may be later.
            StoreError: if it was not and will not be written.
        """

    def get(self, key: str, limit: int) -> bytes:
        """Read an object as it is now, never from a cache: whole, or its first ``limit + 1`` bytes where it is longer.

        Raises:
            KeyMissing: if there is none.
            StoreError: if it can't be read.
        """

    def list(self, prefix: str) -> list[str]:
        """List the keys below a folder such as ``"m/"``: all that are there now, sorted.

        Raises:
            StoreError: if they can't be listed; that is never told as an empty list.
        """

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error.

        Raises:
            StoreError: if it can't be removed.
        """

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Remove what interrupted writes of keys below `prefix` left behind, where `dead` says so of the key."""
