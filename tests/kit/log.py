"""A log that user code writes to for a test, from any process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Log"]


class Log(Sequence[Any]):
    """A list to append to, kept in a file: all its copies, in all processes, are one.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def append(self, item: Any) -> None:
        """Add an item."""
        self.extend([item])

    def extend(self, items: Iterable[Any]) -> None:
        """Add items, with nothing in between."""
        self._write(b"".join(pickle.dumps(item) for item in items))

    def _write(self, data: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            assert os.write(file, data) == len(data)  # one write, which no other divides
        finally:
            os.close(file)

    def _items(self) -> list[Any]:
        items = []
        with self._path.open("rb") as file:
            while file.peek(1):
                items.append(pickle.load(file))
        return items

    def __len__(self) -> int:
        return len(self._items())

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def __iter__(self) -> Any:
        return iter(self._items())

    def __eq__(self, other: object) -> bool:
        return self._items() == list(other) if isinstance(other, (list, Log)) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"Log({self._items()!r})"
