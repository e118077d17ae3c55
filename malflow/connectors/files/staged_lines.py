"""A folder of files of lines; each file becomes visible with the snapshot that covers it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from fsspec.compression import compr

from malflow.connectors.files.headed import HeadedLines
from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.staging.places import Staged, StagedFile
from malflow.connectors.staging.sink import StagedFiles
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.sinks.distributed import Share
from malflow.sinks.transactional import Delivery
from malflow.store.filesystem import compression_of
from malflow.words import short_repr

__all__ = ["StagedLines"]

_SUFFIX = re.compile(r"(\.[A-Za-z0-9_-]+)+")


class StagedLines(StagedFiles[Any, Any, Any]):
    """The files of a sink that writes lines, compressed according to their suffix; a piece is some lines.

    Args:
        asked_by: the name of the sink's class, for errors.
        folder: a local folder, or a URL on an object store.
        suffix: the suffix of the files' names.
        delivery: as in `StagedFiles`.
        storage_options: options for the file system.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss, on_workers: as in `StagedFiles`.

    Raises:
        GraphError: if an argument is not valid, or the file system does not write files as a whole.
    """

    def __init__(
        self,
        asked_by: str,
        folder: str | os.PathLike[str],
        suffix: str,
        *,
        delivery: Delivery,
        storage_options: Mapping[str, Any] | None,
        retry_for: Duration,
        on_data_loss: OnDataLoss,
        on_workers: bool,
    ) -> None:
        if not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
            raise GraphError(f"{asked_by} suffix must be an extension such as '.jsonl.gz'; got {short_repr(suffix)}")
        super().__init__(
            asked_by,
            folder,
            suffix,
            delivery=delivery,
            storage_options=storage_options,
            retry_for=retry_for,
            on_data_loss=on_data_loss,
            on_workers=on_workers,
        )
        self._compression = compression_of(suffix)

    def write(self, data: bytes) -> None:
        """Append data to the file of the transaction."""
        if data:
            self.write_piece(data)

    def write_headed(self, piece: HeadedLines) -> None:
        """Append lines to the file of the transaction. The file has the header once."""
        self.write_piece(piece)

    def flush(self) -> None:
        """Do nothing: records become visible with a snapshot."""

    def encode(self, keys: Sequence[Any], values: Sequence[bytes], timestamps: Sequence[Any]) -> bytes:
        """Return lines as a piece."""
        return b"".join(values)

    def open_writer(self, share: Share) -> _LinesWriter:
        """Return the writer of the file of a share."""
        with self._named():
            return _LinesWriter(self._new_file(share), self._compression, self._named)


class _LinesWriter:
    """Writes lines to a file.

    Args:
        file: the file.
        compression: its compression, or None.
        named: names the folder in errors.
    """

    def __init__(
        self, file: StagedFile, compression: str | None, named: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._stream = compr[compression](file, mode="wb") if compression else file
        self._named = named
        self._header: bytes | None = None

    def write(self, piece: bytes | HeadedLines) -> None:
        data = piece if isinstance(piece, bytes) else self._below_header(piece)
        with self._named():
            self._stream.write(data)

    def _below_header(self, piece: HeadedLines) -> bytes:
        if self._header is None:
            self._header = piece.header
            return piece.header + piece.lines
        if piece.header != self._header:
            raise MalflowError(
                f"a file cannot have rows with the header {piece.header!r} below the header {self._header!r}; pass "
                "fields= to fix their order"
            )
        return piece.lines

    def seal(self) -> Staged:
        with self._named():
            if self._stream is not self._file:
                self._stream.close()
            return self._file.seal()

    def discard(self) -> None:
        with suppress(OSError, ValueError, MalflowError):  # the file is deleted anyway
            self._stream.close()
        self._file.discard()
