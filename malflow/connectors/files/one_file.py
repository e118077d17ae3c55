"""One file through fsspec, written as records arrive or, on an object store, at the end."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.compression import compr

from malflow.connectors.files.headed import HeadedLines
from malflow.connectors.files.local_file import (
    FileSinkPosition,
    LocalFile,
    check_can_go_back,
    position_at,
    reopened,
)
from malflow.connectors.lost_output import SinkFileError
from malflow.errors import GraphError, MalflowError
from malflow.store import s3
from malflow.store.filesystem import compression_of, filesystem_of, is_local, local_path
from malflow.store.redaction import redacted, secrets_in, shown_path
from malflow.words import short_repr

__all__ = ["OneFile"]

_ELSEWHERE = "write to a new path, or to a folder: a path that ends with a slash"
_LOG = logging.getLogger("malflow")


class OneFile:
    """One file, compressed according to its suffix.

    A local file is opened at the first record; a missing directory is created. Records are visible after each flush.
    An object store takes whole files only: records go to a temporary file, and the object appears when the sink is
    closed. In both cases a stream without records leaves an empty file, and a failed run leaves the records written
    until then.

    Delivery to a local file is exactly once: its length is part of each snapshot, and a run that resumes truncates it.
    Without a persistence, each run replaces the file, with a warning if it has content.

    Args:
        asked_by: the name of the sink's class, for errors.
        path: the path or URL.
        append: whether to append to an existing file.
        storage_options: options for the file system.

    Raises:
        GraphError: if `append` is set and the file is not local; or if the path is a folder.
    """

    def __init__(self, asked_by: str, path: str, *, append: bool, storage_options: Mapping[str, Any] | None) -> None:
        self._path = path
        self._local = is_local(path)
        self._target = local_path(path) if self._local else path
        self._append = append
        self._storage_options = dict(storage_options or {})
        self._file: LocalFile | _ObjectFile | None = None
        self._headed: LocalFile | _ObjectFile | None = None
        self._has_run = False
        self._closed = False
        shown = f"{asked_by}({shown_path(path)!r})"
        if append and not self._local:
            raise GraphError(f"{shown} cannot append: an object store takes whole files; {_ELSEWHERE}")
        if self._local and Path(self._target).is_dir():
            raise GraphError(f"{shown} names a folder; write {shown_path(path) + '/'!r} to write files into it")

    @property
    def target(self) -> str:
        """The canonical name of the file. It must be unique among the sinks of a dataflow."""
        return self._target

    def write(self, data: bytes) -> None:
        """Append data."""
        self._ready_file().write(data)

    def write_headed(self, piece: HeadedLines) -> None:
        """Append lines to a file that has the header once.

        Raises:
            SinkFileError: if the file has content with another header.
        """
        file = self._ready_file()
        if file is not self._headed:
            if file.is_empty:
                file.write(piece.header)
            else:
                _check_header(self._target, piece.header)
            self._headed = file
        file.write(piece.lines)

    def flush(self) -> None:
        """Make the written records visible, if the file is local."""
        self._has_run = True
        if self._file is not None:
            self._file.flush()

    def snapshot(self) -> FileSinkPosition | None:
        """Return the position at the end of the file, with everything before it on disk.

        Raises:
            SinkFileError: if another writer has the file open, has changed or moved it, or if the file cannot be
                truncated.
        """
        if self._file is not None:
            return self._file.position()
        path, kept = Path(self._target), None
        if self._local:
            if path.exists() and not path.is_file():
                return None
            check_can_go_back(path)
            kept = position_at(path) if self._append or self._closed else None
        return kept or FileSinkPosition(self._target, 0)

    def restore(self, position: FileSinkPosition | None) -> None:
        """Resume at a position, truncating the file to it.

        Raises:
            SinkFileError: if the file was replaced or changed, or has other content that would be lost.
        """
        if self._file is not None:
            self._file.close()
        self._file, self._has_run, self._closed = None, False, False
        if self._local:
            self._file = reopened(Path(self._target), position, append=self._append)
        else:
            with _naming(self._target, self._storage_options):
                _check_object(self._target, self._storage_options, position)

    def close(self) -> None:
        """Finish the file; upload it if its path is not local. A second call does nothing."""
        if self._file is None and (self._closed or not self._has_run):
            return  # a run that did not start leaves an existing file alone
        file, self._file = self._ready_file(), None
        self._closed = True
        file.close()

    def _ready_file(self) -> LocalFile | _ObjectFile:
        if self._file is None:
            if self._local:
                is_kept = self._append or self._closed
                if not is_kept:
                    _warn_of_local_file(Path(self._target))
                self._file = LocalFile(Path(self._target), keep=None if is_kept else 0)
            elif self._closed:
                raise MalflowError(
                    f"sink file '{shown_path(self._path)}' is closed, and an object store cannot append to it"
                )
            else:
                _warn_of_object(self._target, self._storage_options)
                self._file = _ObjectFile(self._target, self._storage_options)
            self._closed = False
        return self._file


def _check_header(path: str, header: bytes) -> None:
    with fsspec.open(path, "rb", compression="infer") as file:
        found = file.read(len(header))
    if found != header:
        raise SinkFileError(
            path, f"begins with {short_repr(found)}, and the rows have the header {header!r}; pass fields= to fix it"
        )


def _warn_of_local_file(path: Path) -> None:
    """Warn that this run replaces a file of an earlier one, as a run that resumes never does."""
    if path.is_file() and (size := path.stat().st_size):
        _LOG.warning(
            "sink file '%s' is overwritten: its %s bytes are replaced; pass append=True to append to it, or a "
            "persistence to the runtime to continue it",
            path,
            size,
        )


def _warn_of_object(url: str, storage_options: Mapping[str, Any]) -> None:
    filesystem, inner = filesystem_of(url, storage_options)
    size = None
    with suppress(OSError):  # a user who may write need not be allowed to read
        size = filesystem.size(inner) if filesystem.exists(inner) else None
    if size:
        _LOG.warning(
            "sink file '%s' is overwritten: its %s bytes are replaced at the end of the run; write to a new path to "
            "keep them",
            shown_path(url),
            size,
        )


class _ObjectFile:
    """A temporary file that becomes an object when it is closed."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self._url = url
        self._written = 0
        with ExitStack() as opening:
            _, inner = filesystem_of(url, storage_options)
            body = Path(opening.enter_context(tempfile.TemporaryDirectory(prefix="malflow-")), "body")
            opening.push(_put_after(body, url, storage_options))
            raw = opening.enter_context(body.open("wb"))
            compression = compression_of(inner)
            self._file = opening.enter_context(compr[compression](raw, mode="wb")) if compression else raw
            self._opened = opening.pop_all()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._written += len(data)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return self._written == 0

    def flush(self) -> None:
        """Do nothing: an object appears only when it is complete."""

    def position(self) -> FileSinkPosition:
        return FileSinkPosition(self._url, self._written)

    def close(self) -> None:
        self._opened.close()


@contextmanager
def _naming(url: str, storage_options: Mapping[str, Any]) -> Iterator[None]:
    """Name the object and the remedy in errors that say only that access is denied, or something is missing."""
    try:
        yield
    except OSError as error:
        hint = s3.hint_for(error)
        if hint is None and not isinstance(error, FileNotFoundError | PermissionError):
            raise
        said = redacted(s3.reason_of(error), secrets_in(storage_options, url))
        problem = f"could not be written: {said}; {hint or 'check that the bucket exists, and the storage_options'}"
    else:
        return
    raise SinkFileError(url, problem)


def _check_object(url: str, storage_options: Mapping[str, Any], position: FileSinkPosition | None) -> None:
    """Check that a run that resumes may write a new object.

    Raises:
        SinkFileError: if that would lose records written before.
    """
    hint = (
        "write to a new path, to a folder (a path that ends with a slash) or a local file, which can be resumed, or "
        "pass restore=None to start over"
    )
    written = 0 if position is None else position.length
    if position is not None and position.path == url and written:
        raise SinkFileError(url, f"cannot be resumed: an object store takes whole files; {hint}")
    filesystem, inner = filesystem_of(url, storage_options)
    is_new = position is None or position.path != url
    with _naming(url, storage_options):
        is_taken = is_new and filesystem.exists(inner) and filesystem.size(inner)
    if is_taken:
        raise SinkFileError(
            url, f"already exists, and cannot be appended to: an object store takes whole files; {hint}"
        )
    if position is not None and written:
        before, inner = filesystem_of(position.path, storage_options)
        if not before.exists(inner):
            raise SinkFileError(
                position.path,
                f"was never uploaded: the {written} bytes recorded in the snapshot were lost with the run that wrote "
                "them; pass restore=None to start over, and write to a folder (a path that ends with a slash) or a "
                "local file, which can be resumed",
            )


def _put_after(body: Path, url: str, storage_options: Mapping[str, Any]) -> Callable[..., None]:
    """Return an exit callback that uploads a file, unless an exception was raised.

    A file opened for writing on the object store itself would be uploaded incomplete after a failure.
    """
    filesystem, inner = filesystem_of(url, storage_options)

    def put(kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with _naming(url, storage_options):
                filesystem.put_file(str(body), inner)

    return put
