"""A sink that writes a text file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from malflow.connectors.files.sink import FileSink, Formatter, UnwritableValue
from malflow.errors import GraphError

__all__ = ["TextFileSink"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class TextFileSink(FileSink[K, V, T]):
    r"""Write each message as a line: its value by `str`, and ``\n``.

    A text with a line break in it is refused: it would be two records to whoever reads the file.

    A local file is visible as it grows, tick by tick. On an object store the file appears when the run has
    ended, however it ended. A stream without records leaves an empty file. A sink object that is used for
    another run goes on in its file.

    With snapshots a local file, plain or of gzip, bz2, xz or lz4, is written exactly once: its length is part of each
    snapshot, and a run that resumes cuts the file back to it, since what was written later comes again. So the file
    belongs to the job: what others add to it is cut off too. A file that is gone, shorter or replaced by then is
    refused, and so is one of another compression at the start. A sink that has another path than before begins there,
    and leaves the old file as it is. An object can't be gone on with: a run that resumes needs a new path.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is made.
        encoding: how to encode the text.
        append: whether to add to a file that is there, which only local files allow. By default it is
            replaced by a run that begins with nothing; one that resumes goes on where it stood.
        formatter: gives the text to write for a message, where it is not the value.
        storage_options: options for the file system, such as credentials.

    Raises:
        GraphError: if an argument is not one of these.

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
            raise GraphError(f"{self!r} can't write lines in encoding {encoding!r}; write UTF-8")

    def _line(self, value: Any) -> bytes:
        text = str(value)
        if "\n" in text or "\r" in text:
            raise UnwritableValue(self._path, value, "it has a line break in it")
        try:
            return f"{text}\n".encode(self._encoding)
        except UnicodeEncodeError as error:
            raise UnwritableValue(self._path, value, f"{error.reason} in {self._encoding}") from error
