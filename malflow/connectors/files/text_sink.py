"""A sink that writes a text file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from malflow.connectors.files.sink import FileSink, UnwritableValue
from malflow.errors import GraphError
from malflow.sinks.formatting import Formatter
from malflow.type_parameters import K, T, V

__all__ = ["TextFileSink"]


class TextFileSink(FileSink[K, V, T]):
    r"""Write each message as a line: its value by `str`, and ``\n``.

    A text with a line break is an error: a reader of the file would see two records.

    A local file is visible as it grows, tick by tick. On an object store the file appears when the run has ended,
    whether it succeeded or failed. A stream without records leaves an empty file. A sink object that is used for
    another run continues its file.

    With snapshots, delivery to a local file, plain or compressed with gzip, bz2, xz or lz4, is exactly once: its
    length is part of each snapshot, and a run that resumes truncates the file to it, since later records are written
    again. So the file belongs to the job: lines that others append are removed too. Resuming fails if the file is
    missing, shorter or replaced; other compressions fail at the start. A sink with a new path starts a file there and
    leaves the old file alone. An object cannot be resumed: a run that resumes needs a new path.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created.
        encoding: the text encoding.
        append: whether to append to an existing file, which only local files support. By default a run
            without a persistence replaces it, with a warning; one that resumes continues it.
        formatter: returns the text to write for a message; by default ``str`` of its value.
        storage_options: options for the file system, such as credentials.

    Raises:
        GraphError: if an argument is invalid.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from malflow import DataMessage
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sink = TextFileSink(f"{directory}/out.txt", formatter=lambda msg: f"{msg.key} {msg.value}")
    ...     sink.sink(DataMessage("Ulm", 12, 0))
    ...     sink.close()
    ...     Path(directory, "out.txt").read_text()
    'Ulm 12\n'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str = "utf-8",
        append: bool = False,
        formatter: Formatter | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path, append=append, formatter=formatter, storage_options=storage_options)
        self._encoding = encoding
        try:
            plain = "\n".encode(encoding) == b"\n"
        except (LookupError, TypeError) as unknown:
            raise GraphError(f"{self!r} needs a text encoding; got {encoding!r}") from unknown
        if not plain:
            raise GraphError(f"{self!r} cannot write lines in encoding {encoding!r}; use UTF-8")

    def _line(self, value: Any) -> bytes:
        text = str(value)
        if "\n" in text or "\r" in text:
            raise UnwritableValue(self._path, value, "it contains a line break")
        try:
            return f"{text}\n".encode(self._encoding)
        except UnicodeEncodeError as error:
            raise UnwritableValue(self._path, value, f"{error.reason} in {self._encoding}") from error
