"""The contract of places: folders in which a staged file becomes visible as a whole."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeAlias

__all__ = ["HIDDEN", "LOST", "Place", "Staged", "StagedFile"]

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
