"""The five storage operations that snapshots are built on, and their possible outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from malflow.errors import GraphError, StoreError, check_arguments, check_methods, offers
from malflow.words import short_repr

__all__ = [
    "FILE_LIMIT",
    "KeyExists",
    "KeyMissing",
    "Store",
    "Transient",
    "UnknownOutcome",
    "check_is_store",
    "is_key",
    "require_folder",
    "require_key",
]


FILE_LIMIT = 32 << 20
"""Bytes of frames in a data file. Less: more requests; more: more memory for a file while it is written and read."""


class KeyExists(Exception):
    """An object with this key already exists; this call wrote nothing.

    Over a network it may be the caller's own object, from an earlier attempt with a lost response. Read it to know.
    """


class KeyMissing(Exception):
    """No object has this key."""


class Transient(StoreError):
    """The operation was not carried out; a retry may succeed."""


class UnknownOutcome(StoreError):
    """The store did not confirm whether the object was written; it may also appear later."""


class Store(Protocol):
    """A place for immutable objects.

    Keys are relative paths of ASCII letters, digits, ``-`` and ``.``. Their components don't begin with a dot. They
    never contain user text, and no key is the folder of another one. An invalid key raises a StoreError before anything
    is touched.

    A store attempts each operation once. The caller retries after `Transient` and, where that is safe, after
    `UnknownOutcome`. KeyboardInterrupt and other BaseExceptions pass through. They never leave a partial object, but
    the outcome of an interrupted `put_new` is unknown, as after `UnknownOutcome`.

    A store is thread-safe. Runtimes with several processes pickle it for those that write data files, where it must
    reach the same place: leave connections out with ``__getstate__``, and open them when they are first used. An
    exception that is not named below ends the run.

    A store may have an attribute ``file_limit``: the bytes of states in a data file, if it takes 32 MiB badly.

    `malflow.testing.assert_store` checks all of this.
    """

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object atomically; never replace one. It is durable on return.

        Raises:
            KeyExists: if the key already exists.
            Transient: if it was not and will not be written, but a retry may succeed.
            UnknownOutcome: if it may have been written, or may still be.
            StoreError: if it was not and will not be written.
        """

    def get(self, key: str, limit: int) -> bytes:
        """Read an object, never from a cache; of one longer than `limit`, return the first ``limit + 1`` bytes.

        Raises:
            KeyMissing: if the store states that there is none; never inferred from another error.
            Transient: if it can't be read at the moment.
            StoreError: if it can't be read.
        """

    def list(self, prefix: str) -> list[str]:
        """Return the keys below a folder such as ``"m/"``, or all keys for ``""``, up to date and sorted.

        Foreign objects with valid keys as names are listed too.

        Raises:
            Transient: if they can't be listed at the moment.
            StoreError: if they can't be listed; a failure is never reported as an empty list.
        """

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is not an error.

        Raises:
            Transient: if it may not have been deleted, and a retry may succeed.
            StoreError: if it can't be deleted.
        """

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete the remains of interrupted writes below `prefix` of the keys for which `dead` is true.

        Raises:
            StoreError: if something can't be deleted.
        """


_METHODS = {
    "put_new": ("key", "data"),
    "get": ("key", "limit"),
    "list": ("prefix",),
    "delete": ("key",),
    "sweep": ("prefix", "dead"),
}
_CONTRACT = "malflow.store.Store says what each method does"

_COMPONENT = r"[A-Za-z0-9-][A-Za-z0-9.-]*"
_KEY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")


def is_key(text: str) -> bool:
    """Whether a text is a valid key.

    >>> [is_key(text) for text in ("m/00017.json", "job.json", "../job.json", "/m/1", "m//1", "m/.tmp-1", "m/")]
    [True, True, False, False, False, False, False]
    """
    return _KEY.fullmatch(text) is not None


def require_key(key: str) -> None:
    """Check that a text is a valid key.

    Raises:
        StoreError: if it is not.
    """
    if not is_key(key):
        raise StoreError(f"{key[:80]!r} is not a valid key of a store; nothing was touched")


def check_is_store(store: object, asked_by: str) -> None:
    """Check that an object has the methods of a store."""
    lacking = [f"{name}({', '.join(_METHODS[name])})" for name in _METHODS if not offers(store, name)]
    if lacking and not isinstance(store, type):
        raise GraphError(f"{asked_by} needs a store; {short_repr(store)} has no {', '.join(lacking)}; {_CONTRACT}")
    check_methods(store, asked_by, _METHODS)
    for name, arguments in _METHODS.items():
        check_arguments(getattr(store, name), asked_by, arguments, _CONTRACT)


def require_folder(prefix: str) -> None:
    """Check that a prefix is a folder of keys, with a trailing slash, or empty.

    Raises:
        StoreError: if it is neither.
    """
    if prefix and not (prefix.endswith("/") and is_key(prefix[:-1])):
        raise StoreError(f"{prefix[:80]!r} is not a valid folder of a store; nothing was touched")
