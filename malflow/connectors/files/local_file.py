"""A local file that is written at its end, and can be cut back to where it was."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, NamedTuple

from fsspec.compression import compr
from fsspec.core import get_compression

from malflow.connectors.files.fingerprint import fingerprint
from malflow.errors import FencedError, MalflowError
from malflow.written import written_as

if sys.platform != "win32":
    import fcntl

__all__ = ["FileSinkPosition", "LocalFile", "SinkFileError", "check_can_go_back", "position_at", "reopened"]

_IN_MEMBERS = (None, "gzip", "bz2", "xz", "lzma", "lz4")
"""Compressions of which several files in a row are one."""

_BLOCK = 1 << 20
_IN_USE = "is being written by another run, or another sink of this one"
_BEGIN_ANEW = (
    "put it back as it was, or pass restore=None to start over; to keep the state and begin a new file, give the sink "
    "another operator name and pass allow_dropped_state=[its old one]"
)
_LOG = logging.getLogger("malflow")


@written_as("malflow.FileSinkPosition")
class FileSinkPosition(NamedTuple):
    """How far a file was written.

    Attributes:
        path: the file.
        length: its bytes, as they are on the disk; of an object, the bytes of its records.
        digest: of its beginning and of what is before its end; "" of nothing.
    """

    path: str
    length: int
    digest: str = ""


class SinkFileError(MalflowError, OSError):
    """The file of a sink can't be gone on with, since it is not what it was.

    Attributes:
        path: the file.
        problem: what is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"sink file '{path}' {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that the error travels between processes whole."""
        return type(self), (self.path, self.problem)


class _Whole(io.FileIO):
    """A file without a buffer, so that a fork copies none, whose writes are whole.

    Attributes:
        path: where it is, for errors.
    """

    path: Path | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                left = left[super().write(left) or 0 :]
        except OSError as error:
            error.filename = str(self.path)
            raise
        return size


class LocalFile:
    """A local file open for writing at its end; while it is, no other sink can open it.

    Args:
        path: the file; its directory is made where there is none.
        keep: how many of its bytes stay; None for all.
        fence: whether to take the file from whoever writes to it.

    Raises:
        SinkFileError: if somebody writes to it.
    """

    def __init__(self, path: Path, *, keep: int | None = None, fence: bool = False) -> None:
        self._path = path
        self._compression = get_compression(path.name, "infer")
        self._member: Any = None
        self._position: FileSinkPosition | None = None
        self._process = os.getpid()
        self._is_new = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opening:
            self._raw = opening.enter_context(self._opened(keep, fence=fence))
            self._raw.path = path
            if self.is_regular:
                self._raw.truncate(self._raw.seek(0, os.SEEK_END) if keep is None else keep)
                self._end_torn_line(self._raw.seek(0, os.SEEK_END))
            self._opening = opening.pop_all()

    @property
    def is_regular(self) -> bool:
        """Whether it is a file that can be cut, and no pipe or device."""
        return S_ISREG(os.fstat(self._raw.fileno()).st_mode)

    def write(self, data: bytes) -> None:
        """Write at the end.

        Raises:
            FencedError: in the child of a fork.
        """
        if os.getpid() != self._process:
            raise FencedError(
                "this process was forked from the one that runs the job; only that one may commit, or write to "
                f"'{self._path}'"
            )
        if self._member is None:
            self._member = self._raw if self._compression is None else compr[self._compression](self._raw, mode="wb")
        self._member.write(data)

    def flush(self) -> None:
        """Make what was written visible."""
        (self._member or self._raw).flush()

    def position(self) -> FileSinkPosition | None:
        """Return where the end is, with all before it on the disk; None where there is no going back.

        Raises:
            SinkFileError: if somebody else has changed or moved the file, or it is of no kind that can be cut back.
        """
        if not self.is_regular:
            return None
        _check_members(self._path)
        self._end_member()
        length = self._raw.tell()
        if self._position is None or self._position.length != length:
            self._check_in_place(length)
            os.fsync(self._raw.fileno())
            if self._is_new:
                _sync_folder(self._path.parent)
                self._is_new = False
            self._position = FileSinkPosition(
                str(self._path), length, fingerprint(self._read, length) if length else ""
            )
        return self._position

    def close(self) -> None:
        """Finish the file; in the child of a fork, leave it as it is."""
        if os.getpid() != self._process:
            self._opening.close()
            with suppress(OSError, ValueError):  # it can't write any more
                self._end_member()
            return
        with self._opening:
            if self._compression is not None and self._member is None and self._raw.tell() == 0:
                self.write(b"")
            self._end_member()

    def _opened(self, keep: int | None, *, fence: bool) -> _Whole:
        if self._path.exists() and not self._path.is_file():
            return _Whole(self._path, "wb")
        while True:
            file = _Whole(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            if not _locked(file):
                file.close()
                if not fence or keep is None:
                    raise SinkFileError(str(self._path), _IN_USE)
                return _taken_over(self._path, keep)
            if _is_at(file, self._path):
                return file
            file.close()  # it was moved away meanwhile

    def _end_torn_line(self, length: int) -> None:
        """End a line that a crash has cut short, so that it does not run into the next."""
        if self._compression is None and length:
            self._raw.seek(-1, os.SEEK_END)
            if self._raw.read(1) != b"\n":
                self._raw.write(b"\n")

    def _end_member(self) -> None:
        if self._member is not None and self._member is not self._raw:
            self._member.close()
        self._member = None

    def _check_in_place(self, length: int) -> None:
        if not _is_at(self._raw, self._path):
            raise SinkFileError(str(self._path), "was moved, deleted or replaced while it was written")
        size = os.fstat(self._raw.fileno()).st_size
        if size != length:
            raise SinkFileError(
                str(self._path), f"was changed by somebody else while it was written: it has {size} bytes of {length}"
            )

    def _read(self, start: int, end: int) -> bytes:
        self._raw.seek(start)
        data = self._raw.read(end - start)
        self._raw.seek(0, os.SEEK_END)
        return data


def check_can_go_back(path: Path) -> None:
    """Check that a sink may write to a file, and can be cut back there, before it opens it.

    Raises:
        SinkFileError: if somebody else writes to it, or it is of no kind that can be cut back.
    """
    _check_members(path)
    if path.is_file():
        with io.FileIO(path) as file:
            if not _locked(file):
                raise SinkFileError(str(path), _IN_USE)


def position_at(path: Path, length: int | None = None) -> FileSinkPosition | None:
    """Return the position at a length of a closed file, or at its end; None if it is shorter, missing, or no file."""
    try:
        file = path.open("rb") if path.is_file() else None
    except FileNotFoundError:
        file = None
    if file is None:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        length = size if length is None else length
        if length > size:
            return None
        return FileSinkPosition(str(path), length, fingerprint(_reader(file), length) if length else "")


def reopened(path: Path, position: FileSinkPosition | None, *, append: bool) -> LocalFile:
    """Open a file to go on with where it stood, and cut off what comes again.

    Args:
        path: the file.
        position: where it stood, or another file did, if the sink wrote to another; None if that is not known.
        append: whether to add to a file of which it is not known.

    Raises:
        SinkFileError: if it is not the file that was written, or not known to be while there is something in it.
    """
    if path.exists() and not path.is_file():
        return LocalFile(path)
    if position is not None and (position.path == str(path) or _was_moved(path, position)):
        if position.length and not _fits(path, position):
            raise SinkFileError(str(path), f"{_fault(path, position.length)}; {_BEGIN_ANEW}")
        return _cut(path, position.length)
    size = path.stat().st_size if path.exists() else 0
    if size and not append:
        raise SinkFileError(
            str(path),
            f"has {size} bytes already, and the snapshot that the run goes on from does not say where in it the sink "
            "stood; pass append=True to add to it, or restore=None to start over and replace it",
        )
    if position is not None:
        _LOG.warning("'%s' is written in place of '%s', where the last records may stand too", path, position.path)
    return LocalFile(path)


def _was_moved(path: Path, position: FileSinkPosition) -> bool:
    """Whether a file is the one that was written elsewhere; a copy is only where nothing would be cut off it."""
    if not _fits(path, position):
        return False
    old = Path(position.path)
    return not old.exists() or old.samefile(path) or path.stat().st_size == position.length


def _fits(path: Path, position: FileSinkPosition) -> bool:
    """Whether a file begins with what was written, wherever that was."""
    found = position_at(path, position.length) if position.length else None
    return found is not None and found.digest == position.digest


def _check_members(path: Path) -> None:
    compression = get_compression(path.name, "infer")
    if compression not in _IN_MEMBERS:
        raise SinkFileError(
            str(path), f"is compressed by {compression}, which can't be cut back; use gzip, bz2, xz or lz4"
        )


def _cut(path: Path, length: int) -> LocalFile:
    _check_members(path)
    size = path.stat().st_size if path.exists() else 0
    if size > length:
        _LOG.info("sink file '%s' is cut back from %d to %d bytes; what stood there comes again", path, size, length)
    return LocalFile(path, keep=length, fence=True)


def _fault(path: Path, length: int) -> str:
    if not path.exists():
        return "does not exist any more"
    size = path.stat().st_size
    if size < length:
        return f"has {size} bytes, fewer than the {length} that were written to it"
    return f"was replaced: its first {length} bytes are not those that were written to it"


def _locked(file: io.FileIO) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # the file system has no locks
            return True
    return True


def _taken_over(path: Path, keep: int) -> _Whole:
    """Put a copy in the place of a file that an older run still writes to, which it goes on doing where none reads."""
    _LOG.info("an older run still writes to sink file '%s'; a copy takes its place", path)
    with ExitStack() as copying:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        copying.callback(_unless_gone, name)
        copy = copying.enter_context(_Whole(descriptor, "r+b"))
        _locked(copy)
        with path.open("rb") as file:
            left = keep
            while left and (data := file.read(min(left, _BLOCK))):
                copy.write(data)
                left -= len(data)
        os.fsync(copy.fileno())
        shutil.copymode(path, name)
        Path(name).replace(path)
        _sync_folder(path.parent)
        copying.pop_all()
        return copy


def _unless_gone(name: str) -> None:
    with suppress(FileNotFoundError):
        Path(name).unlink()


def _is_at(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _reader(file: BinaryIO) -> Callable[[int, int], bytes]:
    def read(start: int, end: int) -> bytes:
        file.seek(start)
        return file.read(end - start)

    return read


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
