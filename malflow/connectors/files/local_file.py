"""A local file that is appended to, and can be truncated to an earlier position."""

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

from malflow.connectors.files.paths import fingerprint
from malflow.connectors.lost_output import SinkFileError
from malflow.errors import FencedError
from malflow.names import written_as
from malflow.words import plural

if sys.platform != "win32":
    import fcntl
from malflow.store.filesystem import compression_of

__all__ = ["FileSinkPosition", "LocalFile", "SinkFileError", "check_can_go_back", "position_at", "reopened"]

_IN_MEMBERS = (None, "gzip", "bz2", "xz", "lzma", "lz4")
"""Compressions in which concatenated files form a valid file."""

_BLOCK = 1 << 20
"""The bytes to copy at once: a block of a megabyte amortises its system call. Double needs twice the memory for hardly
any speed."""

_IN_USE = "is being written by another run, or by another sink of this run"
_BEGIN_ANEW = (
    "restore the file, or pass restore=None to start over; to keep the state and start a new file, rename the sink's "
    "operator and pass allow_dropped_state=[its old name]"
)
_LOG = logging.getLogger("malflow")


@written_as("malflow.FileSinkPosition")
class FileSinkPosition(NamedTuple):
    """The write position of a file.

    Attributes:
        path: the file.
        length: its size on disk in bytes; for an object, the bytes of its records.
        digest: the digest of the start of the file and the bytes before its end; "" if it is empty.
    """

    path: str
    length: int
    digest: str = ""


class _Whole(io.FileIO):
    """An unbuffered file with complete writes. A fork copies no buffer.

    Attributes:
        path: the path, for errors.
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
    """A local file open for appending; meanwhile no other sink can open it.

    Args:
        path: the file; a missing directory is created.
        keep: the number of bytes to keep; None for all.
        fence: whether to take over the file from another writer.
        known: the position at its end, if known.

    Raises:
        SinkFileError: if another writer has it open.
    """

    def __init__(
        self, path: Path, *, keep: int | None = None, fence: bool = False, known: FileSinkPosition | None = None
    ) -> None:
        self._path = path
        self._compression = compression_of(path.name)
        self._member: Any = None
        self._position = None if known is None or not known.length else known._replace(path=str(path))
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
        """Whether it is a regular file (it can be truncated) rather than a pipe or device."""
        return S_ISREG(os.fstat(self._raw.fileno()).st_mode)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written to it, as far as can be known."""
        return self._member is None and (not self.is_regular or self._raw.tell() == 0)

    def write(self, data: bytes) -> None:
        """Append data.

        Raises:
            FencedError: in a forked child process.
        """
        if os.getpid() != self._process:
            raise FencedError(
                "this process was forked from the one that runs the job; only its parent may commit, or write to "
                f"'{self._path}'"
            )
        if self._member is None:
            self._member = self._raw if self._compression is None else compr[self._compression](self._raw, mode="wb")
        self._member.write(data)

    def flush(self) -> None:
        """Make the written data visible."""
        (self._member or self._raw).flush()

    def position(self) -> FileSinkPosition | None:
        """Return the position of the end, with everything before it on disk; None if the file cannot be truncated.

        Raises:
            SinkFileError: if another process has changed or moved the file, or its compression prevents truncation.
        """
        if not self.is_regular:
            return None
        _check_members(self._path)
        self._end_member()
        length = self._raw.tell()
        self._check_in_place(length)
        if self._position is None or self._position.length != length:
            self._check_unchanged()
            os.fsync(self._raw.fileno())
            if self._is_new:
                _sync_folder(self._path.parent)
                self._is_new = False
            self._position = FileSinkPosition(
                str(self._path), length, fingerprint(self._read, length) if length else ""
            )
        return self._position

    def close(self) -> None:
        """Finish the file; in a forked child process, leave it as it is."""
        if os.getpid() != self._process:
            self._opening.close()
            with suppress(OSError, ValueError):  # the file can no longer be written
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
            file.close()  # it was moved in the meantime

    def _end_torn_line(self, length: int) -> None:
        """Terminate a line torn by a crash. It must not merge with the next one."""
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
            raise SinkFileError(str(self._path), "was moved, deleted or replaced while it was being written")
        size = os.fstat(self._raw.fileno()).st_size
        if size != length:
            raise SinkFileError(
                str(self._path),
                f"was changed by another process while it was being written: it has {plural(size, 'byte')}, "
                f"expected {length}",
            )

    def _check_unchanged(self) -> None:
        """Check that the bytes before the last position are there; a write past an older copy's end leaves a hole."""
        known = self._position
        if known is not None and known.length and fingerprint(self._read, known.length) != known.digest:
            raise SinkFileError(
                str(self._path),
                f"was restored to an older state while it was being written: the {known.length} bytes of the last "
                "snapshot are missing",
            )

    def _read(self, start: int, end: int) -> bytes:
        self._raw.seek(start)
        data = self._raw.read(end - start)
        self._raw.seek(0, os.SEEK_END)
        return data


def check_can_go_back(path: Path) -> None:
    """Check that a sink can open a file for writing and truncate it later.

    Raises:
        SinkFileError: if another writer has it open, or its compression prevents truncation.
    """
    _check_members(path)
    if path.is_file():
        with io.FileIO(path) as file:
            if not _locked(file):
                raise SinkFileError(str(path), _IN_USE)


def position_at(path: Path, length: int | None = None) -> FileSinkPosition | None:
    """Return the position at a length of a closed file, or at its end; None if it is shorter or not a file."""
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
    """Open a file to resume at a position, truncating records that will be written again.

    Args:
        path: the file.
        position: the position in it, or in another file that the sink wrote to before; None if unknown.
        append: whether to append if the position is unknown.

    Raises:
        SinkFileError: if it is not the file that was written, or has content although the position is unknown.
    """
    if path.exists() and not path.is_file():
        return LocalFile(path)
    if position is not None and (position.path == str(path) or _was_moved(path, position)):
        if position.length and not _fits(path, position):
            raise SinkFileError(str(path), f"{_fault(path, position.length)}; {_BEGIN_ANEW}")
        return _cut_back(path, position)
    size = path.stat().st_size if path.exists() else 0
    if size and not append:
        raise SinkFileError(
            str(path),
            f"already has {plural(size, 'byte')}, and the snapshot that the run resumes from has no position in it; "
            "pass append=True to append to it, or restore=None to start over and replace it",
        )
    if position is not None:
        _LOG.warning("writing '%s' instead of '%s', which may have the last records too", path, position.path)
    return LocalFile(path)


def _was_moved(path: Path, position: FileSinkPosition) -> bool:
    """Whether a file was written under another path; a copy counts only if it need not be truncated."""
    if not _fits(path, position):
        return False
    old = Path(position.path)
    return not old.exists() or old.samefile(path) or path.stat().st_size == position.length


def _fits(path: Path, position: FileSinkPosition) -> bool:
    """Whether a file starts with the data that was written, whatever its path was."""
    found = position_at(path, position.length) if position.length else None
    return found is not None and found.digest == position.digest


def _check_members(path: Path) -> None:
    compression = compression_of(path.name)
    if compression not in _IN_MEMBERS:
        raise SinkFileError(
            str(path), f"is compressed with {compression}, which cannot be truncated; use gzip, bz2, xz or lz4"
        )


def _cut_back(path: Path, position: FileSinkPosition) -> LocalFile:
    _check_members(path)
    length = position.length
    size = path.stat().st_size if path.exists() else 0
    if size > length:
        _LOG.info(
            "sink file '%s' is truncated from %d to %d bytes; the records after that are written again",
            path,
            size,
            length,
        )
    return LocalFile(path, keep=length, fence=True, known=position)


def _fault(path: Path, length: int) -> str:
    if not path.exists():
        return "no longer exists"
    size = path.stat().st_size
    if size < length:
        return f"has {plural(size, 'byte')}, fewer than the {length} that were written to it"
    return f"was replaced: its first {length} bytes differ from those written to it"


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
    """Replace a file by a copy. An older run that still writes to it then writes to a deleted file."""
    _LOG.info("an older run still writes to sink file '%s'; replacing the file by a copy", path)
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
