"""The base of sinks that write lines: to one file, or to files in a folder."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from malflow.checks import check_flag, check_mapping
from malflow.connectors.files.one_file import OneFile
from malflow.connectors.files.staged_lines import StagedLines
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

__all__ = ["LineSink", "UnwritableValue"]


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
