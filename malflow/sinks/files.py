"""What the file sinks share: one file over fsspec, written as it comes or, to an object store, at the end."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import get_protocol

from malflow.errors import GraphError, MalflowError
from malflow.filesystem import filesystem_of
from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSinkImpl

__all__ = ["FileSink", "Formatter", "UnwritableValue"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Formatter: TypeAlias = Callable[[DataMessage[Any, Any, Any]], Any]

_SHOWN = 80


class UnwritableValue(MalflowError, ValueError):
    """A value that can't be written as one record of a file.

    Attributes:
        path: the file.
        value: the value.
        reason: why it can't be written.
    """

    def __init__(self, path: str, value: object, reason: str) -> None:
        shown = repr(value)
        shown = f"{shown[:_SHOWN]}..." if len(shown) > _SHOWN else shown
        super().__init__(f"sink file '{path}' can't take {shown}: {reason}; pass formatter=lambda msg: ...")
        self.path = path
        self.value = value
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that the error travels between processes whole."""
        return type(self), (self.path, self.value, self.reason)


class FileSink(StatelessSinkImpl[K, V, T], ABC):
    """A sink that writes one record after the other into one file, compressed by its suffix.

    A local file is opened at the first record, its directory made where there is none, and what was taken
    is visible after each flush. An object store takes whole files only: records are kept in a temporary
    file, and the object appears when the sink is closed. In both cases a stream without records leaves an
    empty file, and a run that failed leaves what it had written until then.
    """

    on_driver = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        append: bool = False,
        formatter: Formatter | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise GraphError(f"{type(self).__name__} needs a path or URL; got {path!r}")
        self._path = os.fspath(path)
        self._local = get_protocol(self._path) in ("file", "local")
        self._append = append
        self._formatter = formatter
        self._storage_options = dict(storage_options or {})
        self._file: Any = None
        self._opened = ExitStack()
        self._closed = False
        if append and not self._local:
            raise GraphError(f"{self!r} can't append: an object store takes whole files; write to a new path")
        if formatter is not None and not callable(formatter):
            raise GraphError(f"{self!r} needs a function as formatter; got {formatter!r}")

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a run of records at once. If one can't be written, those before it are.

        Raises:
            UnwritableValue: if a value can't be written.
        """
        lines: list[bytes] = []
        try:
            self._write_down(lines, keys, values, timestamps)
        finally:  # what came before an exception is kept
            self._ready_file().write(b"".join(lines))

    def flush(self) -> None:
        """Make what was taken visible, where the file is local."""
        if self._local and self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file; put it where it belongs, if that is not a local path. A second call does nothing."""
        if self._closed:
            return
        self._ready_file()
        self._file = None
        self._closed = True
        self._opened.close()

    def _write_down(self, lines: list[bytes], keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Add the lines one by one, calling nothing of the user's through `map`: a StopIteration would end it."""
        add, line, formatter = lines.append, self._line, self._formatter
        if formatter is None:
            for value in values:
                add(line(value))
            return
        for message in map(DataMessage, keys, values, timestamps):
            add(line(formatter(message)))

    @abstractmethod
    def _line(self, value: Any) -> bytes:
        """Write one record down, line end included."""

    def _ready_file(self) -> Any:
        if self._file is None:
            with ExitStack() as opening:
                self._file = self._open(opening)
                self._opened = opening.pop_all()
            self._closed = False
        return self._file

    def _open(self, opening: ExitStack) -> Any:
        filesystem, inner = filesystem_of(self._path, self._storage_options)
        if self._local:
            raw: Any = opening.enter_context(_open_local(Path(inner), append=self._append or self._closed))
        elif self._closed:
            raise MalflowError(f"sink file '{self._path}' is closed, and an object store can't append to it")
        else:
            body = Path(opening.enter_context(tempfile.TemporaryDirectory(prefix="malflow-")), "body")
            opening.push(_put_after(body, filesystem, inner))
            raw = opening.enter_context(body.open("wb"))
        compression = get_compression(inner, "infer")
        if compression is None:
            return raw
        return opening.enter_context(compr[compression](raw, mode="wb"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r})"


def _open_local(path: Path, *, append: bool) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not append:
        return path.open("wb")
    file = path.open("a+b")
    if get_compression(path.name, "infer") is None and file.tell():
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.write(b"\n")  # a line cut short by a crash must not run into the next
    return file


def _put_after(body: Path, filesystem: Any, inner: str) -> Callable[..., None]:
    """Make an exit function that puts a file where it belongs, unless something failed before.

    A file opened for writing on the object store itself would be put there half written when something fails.
    """

    def put(kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            filesystem.put_file(str(body), inner)

    return put
