"""A list that one process appends to, and that its worker processes read."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any

__all__ = ["SharedList"]

_HEAD = Struct("<I")


class SharedList(list[Any]):
    """A list whose copies in other processes have all that was appended, by a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._read_to = 0
        path.touch()

    def append(self, item: Any) -> None:
        """Append an item."""
        self.extend([item])

    def extend(self, items: Iterable[Any]) -> None:
        """Append items."""
        added = list(items)
        super().extend(added)
        with self._path.open("ab") as file:
            for item in added:
                data = pickle.dumps(item, 5)
                file.write(_HEAD.pack(len(data)) + data)

    def __reduce__(self) -> tuple[Any, ...]:
        return _ReadList, (self._path,)


class _ReadList:
    """The copy in another process, which reads what was added before each use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._items: list[Any] = []
        self._read_to = 0

    def _current(self) -> list[Any]:
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            data = file.read()
        at = 0
        while at < len(data):
            (size,) = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            self._items.append(pickle.loads(data[at : at + size]))
            at += size
        self._read_to += at
        return self._items

    def __len__(self) -> int:
        return len(self._current())

    def __getitem__(self, at: Any) -> Any:
        return self._current()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._current())
