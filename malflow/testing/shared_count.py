"""A number that a test sets, and that its worker processes read."""

from __future__ import annotations

import os
import tempfile
from struct import Struct

__all__ = ["Count", "SharedCount"]

_NUMBER = Struct("<q")


class Count:
    """A number in this process.

    Attributes:
        value: the number.
    """

    def __init__(self) -> None:
        self.value = 0

    def close(self) -> None:
        """Release its resources."""


class SharedCount(Count):
    """A number in a file. All processes with a copy of this object read it."""

    def __init__(self) -> None:
        self._file, self._path = tempfile.mkstemp(prefix="malflow-count-")
        self.value = 0

    @property
    def value(self) -> int:
        """The number."""
        number: int
        (number,) = _NUMBER.unpack(os.pread(self._file, _NUMBER.size, 0))
        return number

    @value.setter
    def value(self, number: int) -> None:
        os.pwrite(self._file, _NUMBER.pack(number), 0)

    def close(self) -> None:
        """Remove the file."""
        os.close(self._file)
        os.unlink(self._path)  # noqa: PTH108 - as it was made

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._file, self._path = os.open(path, os.O_RDONLY), path
