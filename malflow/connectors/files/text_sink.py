"""A sink that writes a text file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from malflow.connectors.files.sink import LineSink, UnwritableValue
from malflow.connectors.lost_output import OnDataLoss
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery
from malflow.type_parameters import K, T, V

__all__ = ["TextFileSink"]


class TextFileSink(LineSink[K, V, T]):
    r"""Write each message as a line: its value by `str`, and ``\n``.

    A text with a line break is an error: a reader of the file would see two records.

    A single local file is visible as it grows, tick by tick. A single object appears when the run has ended,
    whether it succeeded or failed. A stream without records leaves an empty file. If a sink object is used for
    another run, it continues its file.

    With snapshots, delivery to a local file, plain or compressed with gzip, bz2, xz or lz4, is exactly once: its
    length is part of each snapshot, and a run that resumes truncates the file to it, since later records are written
    again. So the file belongs to the job: lines appended by other programs are removed too. Resuming fails if the file
    is missing, shorter or replaced; other compressions fail at the start. A sink with a new path starts a file there
    and leaves the old file alone. A single object cannot be resumed: a run that resumes needs a new path, or a folder.

    A path that ends with a slash is a folder, local or on an object store. For each interval between two snapshots that
    has records, the sink writes a file, ``part-<sink>-<run>-<number>-<random>.txt``. It becomes visible as a whole once
    the snapshot that covers its records is durable, and each record is in one file: delivery is exactly once, and needs
    snapshots. Records that are not visible yet are below ``.malflow``, or in an incomplete upload.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created. A path that ends
            with a slash is a folder.
        encoding: the text encoding.
        append: whether to append to an existing file (local files only). By default a run without a persistence
            replaces it, with a warning; a run that resumes continues it.
        formatter: returns the text to write for a message; by default ``str`` of its value.
        suffix: for a folder, the suffix of the files' names, such as ``".txt.gz"``; ``".txt"`` by default.
        delivery: for a folder, ``"exactly-once"`` by default, or ``"at-least-once"``: a file becomes visible at each
            snapshot and at the end of the run, and a run that resumes writes the records since the snapshot again.
        storage_options: options for the file system, such as credentials.
        retry_for: for a folder, how long the run waits for an unreachable object store; a minute by default.
        on_data_loss: for a folder, ``"fail"`` (the default) or ``"continue"`` if the ledger lacks a committed
            transaction, for example since the folder was restored from a backup or deleted.
        on_workers: for a folder, whether the workers write the files, on Spark; all machines must then reach it; True
            by default. If False, the driver does.

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

    _suffix = ".txt"

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str = "utf-8",
        append: bool = False,
        formatter: Formatter | None = None,
        suffix: str | None = None,
        delivery: Delivery | None = None,
        storage_options: Mapping[str, Any] | None = None,
        retry_for: Duration | None = None,
        on_data_loss: OnDataLoss | None = None,
        on_workers: bool | None = None,
    ) -> None:
        super().__init__(
            path,
            append=append,
            formatter=formatter,
            suffix=suffix,
            delivery=delivery,
            storage_options=storage_options,
            retry_for=retry_for,
            on_data_loss=on_data_loss,
            on_workers=on_workers,
        )
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
