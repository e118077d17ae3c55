"""A store in a dict, by itself and with hooks around its operations."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from malflow.store.contract import KeyExists, KeyMissing, Store, require_folder, require_key

__all__ = ["HookedStore", "MemoryStore", "contents"]

Hook = Callable[[str, str], object]


class MemoryStore:
    """Objects in a dict; two stores that share the dict are two views of one place."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects
        self._lock = threading.Lock()

    @classmethod
    def copy_of(cls, store: Store) -> MemoryStore:
        """Copy what another store holds now."""
        return cls(dict(contents(store)))

    def clone(self) -> MemoryStore:
        """Copy it."""
        return MemoryStore(dict(self.objects))

    def put_new(self, key: str, data: bytes) -> None:
        """Put an object into the dict."""
        require_key(key)
        with self._lock:
            if key in self.objects:
                raise KeyExists(f"'{key}' exists already")
            self.objects[key] = bytes(data)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object."""
        require_key(key)
        with self._lock:
            if key not in self.objects:
                raise KeyMissing(f"'{key}' does not exist")
            return self.objects[key][: limit + 1]

    def list(self, prefix: str) -> list[str]:
        """List the keys."""
        require_folder(prefix)
        with self._lock:
            return sorted(key for key in self.objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Remove an object."""
        require_key(key)
        with self._lock:
            self.objects.pop(key, None)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Do nothing: nothing is ever left behind here."""
        require_folder(prefix)


class HookedStore(MemoryStore):
    """A store in a dict that calls hooks.

    Attributes:
        calls: every operation and its key, in order.
        before: called with each operation and key before it is done, and raises what goes wrong.
        after: the same, after an object was put.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.before: list[Hook] = []
        self.after: list[Hook] = []

    def put_new(self, key: str, data: bytes) -> None:
        """Put an object into the dict, between the hooks."""
        self._meet("put", key)
        super().put_new(key, data)
        for hook in tuple(self.after):
            hook("put", key)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object, after the hooks."""
        self._meet("get", key)
        return super().get(key, limit)

    def list(self, prefix: str) -> list[str]:
        """List the keys, after the hooks."""
        self._meet("list", prefix)
        return super().list(prefix)

    def delete(self, key: str) -> None:
        """Remove an object, after the hooks."""
        self._meet("delete", key)
        super().delete(key)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Do nothing, after the hooks."""
        self._meet("sweep", prefix)
        super().sweep(prefix, dead)

    def clear_calls(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()

    def counted(self) -> Counter[str]:
        """Count the calls by operation and folder."""
        return Counter(f"{operation} {key.partition('/')[0]}" for operation, key in self.calls)

    def _meet(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        for hook in tuple(self.before):
            hook(operation, key)


def contents(store: Store) -> Iterator[tuple[str, bytes]]:
    """Return all objects of a store."""
    if isinstance(store, MemoryStore):
        yield from store.objects.items()
        return
    for key in store.list(""):
        yield key, store.get(key, 1 << 30)
