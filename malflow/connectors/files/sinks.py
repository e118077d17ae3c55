"""Sinks that write lines of text or JSON: to one file, or to files in a folder."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from malflow.checks import check_flag, check_mapping
from malflow.connectors.files.one_file import OneFile
from malflow.connectors.files.staged_lines import StagedLines
from malflow.connectors.json_names import check_names
from malflow.connectors.lost_output import OnDataLoss
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSinkImpl
from malflow.sinks.formatting import Formatter, checked_formatter
from malflow.sinks.transactional import Delivery
from malflow.store.redaction import shown_path
from malflow.type_parameters import K, T, V
from malflow.words import cut

__all__ = [
    "JsonLinesSink",
    "LineSink",
    "TextFileSink",
    "UnwritableValue",
]


_SHOWN = 80
"""The most characters of a refused value in a message: about a line of a terminal. Fewer hide the fault, more hide the
reason."""

_CONTRACTS = (
    *("snapshot", "restore", "target", "delivery", "fence", "prepare", "commit", "abort"),
    *("open_writer", "on_workers", "share_bytes"),
)
"""The methods of sinks that return to a position, or that commit transactions, perhaps on workers."""


class UnwritableValue(MalflowError, ValueError):
    """A value that cannot be written as one record of a file.

    Attributes:
        path: the file.
        value: the value.
        reason: the cause.
    """

    refuses_records = True

    def __init__(self, path: str, value: object, reason: str) -> None:
        shown = cut(repr(value), _SHOWN)
        super().__init__(
            f"sink file '{shown_path(path)}' cannot store {shown}: {reason}; pass formatter=lambda msg: ..."
        )
        self.path = path
        self.value = value
        self.reason = reason


class LineSink(StatelessSinkImpl[K, V, T], ABC):
    """A sink that writes records as lines to one file or, if its path ends with a slash, to files in a folder.

    A file can return to a position (`OneFile`), a folder has transactions (`StagedLines`): the sink has the methods of
    one of these contracts.
    """

    on_driver = True
    snapshot: Callable[[], Any]
    restore: Callable[[Any], None]
    _suffix: ClassVar[str]

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        path: str | os.PathLike[str],
        *,
        append: bool = False,
        formatter: Formatter | None = None,
        suffix: str | None = None,
        delivery: Delivery | None = None,
        storage_options: Mapping[str, Any] | None = None,
        retry_for: Duration | None = None,
        on_data_loss: OnDataLoss | None = None,
        on_workers: bool | None = None,
    ) -> None:
        me = type(self).__name__
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise GraphError(f"{me} needs a path or URL; got {path!r}")
        check_flag(me, "append", append)
        check_mapping(me, "storage_options", storage_options, "options of the file system")
        self._path = os.fspath(path)
        self._output: OneFile | StagedLines
        if self._path.endswith(("/", os.sep)):
            if append:
                raise GraphError(f"{self!r} cannot append: each file in the folder is new; leave out append=True")
            self._output = StagedLines(
                me,
                self._path,
                self._suffix if suffix is None else suffix,
                delivery="exactly-once" if delivery is None else delivery,
                storage_options=storage_options,
                retry_for=timedelta(minutes=1) if retry_for is None else retry_for,
                on_data_loss="fail" if on_data_loss is None else on_data_loss,
                on_workers=True if on_workers is None else on_workers,
            )
        else:
            self._refuse(
                suffix=suffix,
                delivery=delivery,
                retry_for=retry_for,
                on_data_loss=on_data_loss,
                on_workers=on_workers,
            )
            self._output = OneFile(me, self._path, append=append, storage_options=storage_options)
        self._formatter = checked_formatter(me, formatter)
        for name in _CONTRACTS:
            if hasattr(self._output, name):
                setattr(self, name, getattr(self._output, name))

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records. If one cannot be written, the records before it are still written.

        Raises:
            UnwritableValue: if a value cannot be written.
        """
        lines: list[bytes] = []
        try:
            self._write_down(lines, keys, values, timestamps)
        finally:  # also write the records before an exception
            self._output.write(b"".join(lines))

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> bytes:
        """Return the lines of a batch of records.

        Raises:
            UnwritableValue: if a value cannot be written.
        """
        lines: list[bytes] = []
        self._write_down(lines, keys, values, timestamps)
        return b"".join(lines)

    def flush(self) -> None:
        """Make the written records visible, if they go to one local file."""
        self._output.flush()

    def close(self) -> None:
        """Finish the file; upload it if its path is not local. A second call does nothing."""
        self._output.close()

    def _write_down(self, lines: list[bytes], keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Append the lines one by one: a StopIteration in user code would silently end a `map`."""
        add, line, formatter = lines.append, self._line, self._formatter
        if formatter is None:
            for value in values:
                add(line(value))
            return
        for message in map(DataMessage, keys, values, timestamps):
            add(line(formatter(message)))

    @abstractmethod
    def _line(self, value: Any) -> bytes:
        """Return the bytes of one record, including the line end."""

    def _refuse(self, **options: object) -> None:
        """Refuse options that only apply to a folder."""
        for option, value in options.items():
            if value is not None:
                raise GraphError(
                    f"{self!r} writes one file, and {option}= is an option of a folder; write "
                    f"{shown_path(self._path) + '/'!r} to write files into a folder, or leave out {option}="
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_path(self._path)!r})"


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


_encoded = json.JSONEncoder(allow_nan=False).encode


class JsonLinesSink(LineSink[K, V, T]):
    r"""Write the value of each message as a line of JSON, as `json.dumps` does.

    JSON has no NaN or infinities. They are an error, and so are two names that are one as text, 1 and ``"1"``. Folders,
    visibility, failed runs and resumed runs are as in `TextFileSink`.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created. A path that ends
            with a slash is a folder.
        append: whether to append to an existing file (local files only). By default a run without a persistence
            replaces it, with a warning; a run that resumes continues it.
        formatter: returns the object to write as JSON for a message; by default its value.
        suffix: for a folder, the suffix of the files' names, such as ``".jsonl.gz"``; ``".jsonl"`` by default.
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
    ...     sink = JsonLinesSink(f"{directory}/out.jsonl", formatter=lambda msg: [msg.key, msg.value])
    ...     sink.sink(DataMessage("Ulm", 12, 0))
    ...     sink.close()
    ...     Path(directory, "out.jsonl").read_text()
    '["Ulm", 12]\n'
    """

    _suffix = ".jsonl"

    def _line(self, value: Any) -> bytes:
        try:
            line = f"{_encoded(value)}\n".encode("ascii")
            check_names((value,))
        except (TypeError, ValueError, RecursionError) as error:
            raise UnwritableValue(self._path, value, f"it is not JSON ({error})") from error
        return line
