"""A store in a local folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from malflow.errors import StoreError
from malflow.store.contract import KeyExists, KeyMissing, UnknownOutcome, is_key, require_folder, require_key

__all__ = ["LocalStore"]

_TEMP = ".tmp-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_REFUSALS = frozenset({*_NO_LINKS, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.ENOENT})
_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EACCES: "give this user read and write permission",
    errno.EPERM: "give this user read and write permission",
    errno.EROFS: "choose a writable folder",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the limit on open files",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOTDIR: "replace the file or symbolic link by a folder",
    errno.ELOOP: "replace the symbolic link by its target",
    errno.EIO: "check the disk",
}


class LocalStore:
    """Objects as files: folders have mode 0700, files 0600; symbolic links below the root are not followed.

    A file is written under a temporary name in the same folder, synced, and hard-linked to its final name. So it
    appears atomically, and the link fails if the name is taken. Then the folder is synced. If that sync fails, the
    content of the disk is unknown, and a read would only show the page cache: this instance refuses to read the
    object.

    Args:
        root: the folder; the first write creates it and its parents.
        durable: whether writes must survive a power cut; otherwise nothing is synced.
        private: whether to refuse folders and files that users other than this one and root may change.
    """

    def __init__(self, root: Path, *, durable: bool = True, private: bool = False) -> None:
        self._root = Path(os.path.realpath(root))
        self._syncs = durable
        self._private = private
        self._durable: set[Path] = set()
        self._doubtful: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    def put_new(self, key: str, data: bytes) -> None:
        """Create a file."""
        require_key(key)
        self._check_known_outcome(key)
        folder, _, name = key.rpartition("/")
        temp = f"{_TEMP}{name}-{token_hex(8)}"
        with self._explained("written", key), self._opened(folder, create=True) as directory:
            try:
                _write(temp, directory, data, self._sync)
                self._link(temp, key, directory)
            finally:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=directory)

    def get(self, key: str, limit: int) -> bytes:
        """Read a file."""
        require_key(key)
        self._check_known_outcome(key)
        folder, _, name = key.rpartition("/")
        with self._explained("read", key):
            try:
                with self._opened(folder) as directory:
                    return self._read(name, directory, limit)
            except FileNotFoundError:
                raise KeyMissing(f"'{self._root / key}' does not exist") from None

    def list(self, prefix: str) -> list[str]:
        """List the files in a folder and those below it."""
        require_folder(prefix)
        with self._explained("listed", prefix):
            return sorted(key for key, name in self._files(prefix) if is_key(name))

    def delete(self, key: str) -> None:
        """Delete a file."""
        require_key(key)
        folder, _, name = key.rpartition("/")
        with self._explained("deleted", key), suppress(FileNotFoundError), self._opened(folder) as directory:
            os.unlink(name, dir_fd=directory)
            # not synced: a file that reappears after a power cut is found and deleted again

    def delete_together(self, keys: Iterable[str]) -> None:
        """Delete many files, and open each of their folders once; those that can't be deleted remain."""
        by_folder: dict[str, list[str]] = {}
        for key in keys:
            require_key(key)
            folder, _, name = key.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            with suppress(OSError, StoreError), self._opened(folder) as directory:
                for name in names:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete temporary files."""
        require_folder(prefix)
        with self._explained("swept", prefix):
            for key, name in tuple(self._files(prefix)):
                folder = key[: len(key) - len(name)]
                target = folder + name.removeprefix(_TEMP).rpartition("-")[0]
                if name.startswith(_TEMP) and is_key(target) and dead(target):
                    with suppress(FileNotFoundError), self._opened(folder.rstrip("/")) as directory:
                        os.unlink(name, dir_fd=directory)
            # not synced: a file that reappears after a power cut is found and deleted again

    def _sync(self, file: int) -> None:
        if self._syncs:
            os.fsync(file)

    def _link(self, temp: str, key: str, directory: int) -> None:
        """Link a synced file to its final name, and make that name durable."""
        path = self._root / key
        try:
            os.link(temp, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            raise KeyExists(f"'{path}' already exists") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreError(
                    f"'{path}' could not be written: the file system of '{self._root}' has no hard links "
                    f"({error.strerror}); choose a folder on another file system"
                ) from error
            if error.errno in _REFUSALS:
                raise
            raise self._unknown(key, error) from error
        try:
            self._sync(directory)
        except OSError as error:
            raise self._unknown(key, error) from error

    def _unknown(self, key: str, error: OSError) -> UnknownOutcome:
        self._doubtful.add(key)
        return UnknownOutcome(_text("confirmed as written", self._root / key, error))

    def _check_known_outcome(self, key: str) -> None:
        if key in self._doubtful:
            raise UnknownOutcome(
                f"it is unknown whether '{self._root / key}' is on disk: its folder could not be synced"
            )

    @contextmanager
    def _explained(self, done: str, key: str) -> Iterator[None]:
        """Raise an OSError as a StoreError that names the file."""
        try:
            yield
        except OSError as error:
            raise StoreError(_text(done, self._root / key, error)) from error

    @contextmanager
    def _opened(self, folder: str, *, create: bool = False) -> Iterator[int]:
        directory = self._open(folder, create=create)
        try:
            yield directory
        finally:
            os.close(directory)

    def _open(self, folder: str, *, create: bool = False) -> int:
        """Open a folder component by component. No symbolic link thus leads out of the root."""
        if create:
            self._make_root()
        here = self._root
        directory = self._checked(os.open(here, _FOLDER), here)
        for name in folder.split("/") if folder else ():
            here /= name
            outer = directory
            try:
                directory = self._checked(self._enter(name, outer, here, create=create), here)
            finally:
                os.close(outer)
        return directory

    def _checked(self, opened: int, path: Path) -> int:
        """Return an open file, or close it and raise if other users may change it."""
        exposed = _exposed(os.fstat(opened)) if self._private else None
        if exposed is None:
            return opened
        os.close(opened)
        raise StoreError(
            f"'{path}' {exposed}, and loading a pickle can execute code; fix the permissions (chown, chmod o-w), "
            "choose another folder, set signing_key=, use codec='msgpack', or pass allow_unsigned_pickle=True"
        )

    def _read(self, name: str, directory: int, limit: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = self._checked(os.open(name, flags, dir_fd=directory), self._root / name)
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            with os.fdopen(opened, "rb", closefd=False) as file:
                return file.read(min(limit, found.st_size) + 1)
        finally:
            os.close(opened)

    def _enter(self, name: str, parent: int, path: Path, *, create: bool) -> int:
        if create and path not in self._durable:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
            self._sync(parent)  # also if another process created it: it may have died before its sync
        folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        if create:
            self._durable.add(path)
        return folder

    def _make_root(self) -> None:
        if self._root in self._durable:
            return
        for folder in (*reversed(self._root.parents), self._root):
            with suppress(FileExistsError):
                if not folder.is_dir():
                    folder.mkdir(0o700)
                    _sync_folder(folder.parent)
        self._durable.add(self._root)

    def _files(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield key and name of each file below a folder, at any depth."""
        folders = [prefix]
        while folders:
            folder = folders.pop()
            for name, is_folder in self._scan(folder.rstrip("/")):
                if not is_folder:
                    yield folder + name, name
                elif is_key(name):
                    folders.append(f"{folder}{name}/")

    def _scan(self, folder: str) -> Sequence[tuple[str, bool]]:
        try:
            directory = self._open(folder)
        except FileNotFoundError:
            return []
        try:
            with os.scandir(directory) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(directory)


def _write(name: str, directory: int, data: bytes, sync: Callable[[int], object]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        sync(file)
    finally:
        os.close(file)


def _exposed(found: os.stat_result) -> str | None:
    """Return how users other than this one and root may change a file; None if they can't."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {found.st_uid})"
    if found.st_mode & stat.S_IWOTH:
        return f"may be changed by every user (mode {stat.S_IMODE(found.st_mode):o})"
    return None


def _sync_folder(path: Path) -> None:
    directory = os.open(path, _FOLDER)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _text(done: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0)
    return f"'{path}' could not be {done}: {reason}" + (f"; {hint}" if hint else "")
