"""Places: folders, local ones here, in which a staged file becomes visible as a whole."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from malflow.connectors.lost_output import SinkFileError

__all__ = [
    "HIDDEN",
    "LOST",
    "LocalPlace",
    "Place",
    "Staged",
    "StagedFile",
]

HIDDEN = ".malflow"
"""The folder for staged files and ledgers, which other programs skip because of its dot."""

Staged: TypeAlias = tuple[str, ...]
"""The data with which any process can publish a file: its name and, on S3, the upload and the ETags of its parts."""

LOST = (
    "was prepared by an earlier run, and is gone: neither the staged file nor '%s' exists. If a reader has moved it, "
    "put it back; if it was deleted, start from restore=None, or pass recovery='previous', sinks='accept_duplicates'"
)
"""The problem of a staged file that is gone."""


class StagedFile(io.RawIOBase):
    """A file that is written but not yet visible."""

    def seal(self) -> Staged:
        """Make the file durable, and return the data with which to publish it."""
        raise NotImplementedError

    def discard(self) -> None:
        """Delete it."""
        raise NotImplementedError

    def writable(self) -> bool:
        """Whether it can be written to: always."""
        return True


class Place(ABC):
    """A folder in which files become visible as a whole."""

    @abstractmethod
    def create(self, name: str) -> StagedFile:
        """Create a file that will be published under a name."""

    @abstractmethod
    def publish(self, staged: Staged) -> None:
        """Make a file visible, unless it is visible already.

        Raises:
            SinkFileError: if it is gone.
        """

    @abstractmethod
    def sweep(self, prefix: str, keep: Iterable[Staged], is_obsolete: Callable[[str], bool]) -> None:
        """Delete the staged files whose names begin with a prefix and are obsolete, except those in `keep`."""


class LocalPlace(Place):
    """A local folder.

    Args:
        folder: the folder.
        sub: the folder for staged files of one sink, below `HIDDEN`.
    """

    def __init__(self, folder: Path, sub: str) -> None:
        self._folder = folder
        self._staged = folder / HIDDEN / sub

    def create(self, name: str) -> StagedFile:
        """Create a file that will be published under a name."""
        if not self._staged.is_dir():
            self._staged.mkdir(parents=True, exist_ok=True)
            for made in (self._staged, *self._staged.parents):
                _sync_folder(made)
                if made == self._folder:
                    break
        return _LocalFile(self._staged / f"{name}.part", name)

    def publish(self, staged: Staged) -> None:
        """Make a file visible, unless it is visible already.

        Raises:
            SinkFileError: if it is gone.
        """
        (name,) = staged
        source, final = self._staged / f"{name}.part", self._folder / name
        try:
            source.rename(final)
        except FileNotFoundError:
            if not final.exists():
                raise SinkFileError(str(source), LOST % final) from None
        _sync_folder(self._folder)
        _sync_folder(self._staged)

    def tidy(self) -> None:
        """Remove the folder for staged files if it is empty."""
        with suppress(OSError):
            self._staged.rmdir()
            self._staged.parent.rmdir()

    def sweep(self, prefix: str, keep: Iterable[Staged], is_obsolete: Callable[[str], bool]) -> None:
        """Delete the staged files whose names begin with a prefix and are obsolete, except those in `keep`."""
        kept = {f"{staged[0]}.part" for staged in keep}
        if self._staged.is_dir():
            for path in self._staged.iterdir():
                if path.name.startswith(prefix) and path.name not in kept and is_obsolete(path.name):
                    path.unlink(missing_ok=True)


class _LocalFile(StagedFile):
    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._raw = io.FileIO(path, "xb")

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[self._raw.write(left) or 0 :]
        return size

    def seal(self) -> Staged:
        os.fsync(self._raw.fileno())
        self._raw.close()
        _sync_folder(self._path.parent)
        return (self._name,)

    def discard(self) -> None:
        self._raw.close()
        self._path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
