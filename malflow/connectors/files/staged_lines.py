"""A folder of files of lines; each file becomes visible with the snapshot that covers it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from fsspec.compression import compr
from fsspec.core import get_compression

from malflow.connectors.lost_output import OnDataLoss
from malflow.connectors.staging.places import Staged, StagedFile
from malflow.connectors.staging.sink import StagedFiles
from malflow.errors import GraphError, MalflowError, short_repr
from malflow.sinks.transactional import Delivery

__all__ = ["StagedLines"]

_SUFFIX = re.compile(r"(\.[A-Za-z0-9_-]+)+")


class StagedLines(StagedFiles):
    """The files of a sink that writes lines, compressed according to their suffix.

    Args:
        asked_by: the name of the sink's class, for errors.
        folder: a local folder, or a URL on an object store.
        suffix: the suffix of the files' names.
        delivery: as in `StagedFiles`.
        storage_options: options for the file system.
        retry_for: how long the run waits for an unreachable object store.
        on_data_loss: as in `StagedFiles`.

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
        retry_for: timedelta,
        on_data_loss: OnDataLoss,
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
        )
        self._compression = get_compression(suffix, "infer")
        self._file: StagedFile | None = None
        self._stream: Any = None

    def write(self, data: bytes) -> None:
        """Append data to the file of the transaction."""
        if not data:
            return
        with self._named():
            if self._stream is None:
                self._file = self._new_file()
                self._stream = compr[self._compression](self._file, mode="wb") if self._compression else self._file
            self._stream.write(data)

    def flush(self) -> None:
        """Do nothing: records become visible with a snapshot."""

    def _finished(self) -> Staged | None:
        file = self._file
        if file is None:
            return None
        with self._named():
            if self._stream is not file:
                self._stream.close()
            staged = file.seal()
        self._file = self._stream = None
        return staged

    def _drop(self) -> None:
        file, stream = self._file, self._stream
        self._file = self._stream = None
        if file is not None:
            with suppress(OSError, ValueError, MalflowError):  # the file is deleted anyway
                if stream is not None:
                    stream.close()
            file.discard()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the file that is open in this process."""
        return {**super().__getstate__(), "_file": None, "_stream": None}
