"""Find the files of a source (paths, URLs and globs, through fsspec), and detect changes by a digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from fsspec.implementations.local import LocalFileSystem

from malflow.errors import GraphError, MalflowError
from malflow.store import s3
from malflow.store.filesystem import filesystem_of, is_local, local_path
from malflow.store.redaction import redacted, secrets_in, shown_path

__all__ = [
    "NO_MATCH",
    "SPAN",
    "InputFileError",
    "MisplacedFileError",
    "MissingFileError",
    "Path",
    "ReplacedFileError",
    "digest",
    "expand",
    "fingerprint",
    "is_gone",
    "listed_files",
    "local_size",
    "one_name",
    "path_list",
    "spans",
]

Path: TypeAlias = str | os.PathLike[str]

NO_MATCH = "matches no files"
"""The problem of a glob or folder without files."""

_MAGIC = frozenset("*?[")
_STAGES = "/.malflow/"


class InputFileError(MalflowError, OSError):
    """A file of a source is missing, damaged or replaced.

    Attributes:
        path: the path, URL or glob.
        problem: the cause.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"source file '{shown_path(path)}' {problem}")
        self.path = path
        self.problem = problem


class MissingFileError(InputFileError):
    """A file no longer exists."""


class ReplacedFileError(InputFileError):
    """A file was replaced or changed since it was read."""

    def __str__(self) -> str:
        return (
            f"{super().__str__()}; put the file back, pass on_replaced='restart' to read the new file from the "
            "beginning, or restore=None to start without the snapshot"
        )


class MisplacedFileError(InputFileError):
    """A file is in a folder that does not fit the partitions of the source. Also while a run reads, this ends it."""

    is_permanent = True


def path_list(path: Path | Iterable[Path], asked_by: str) -> tuple[str, ...]:
    """Return one or several paths as a tuple of strings.

    Raises:
        GraphError: if there is no path, or one has another type.
    """
    paths = [path] if isinstance(path, str | os.PathLike) or not isinstance(path, Iterable) else list(path)
    for one in paths:
        if not isinstance(one, str | os.PathLike) or not os.fspath(one):
            raise GraphError(f"{asked_by} needs a path, a URL, a glob or a list of them; got {one!r}")
    if not paths:
        raise GraphError(f"{asked_by} needs at least one path; got an empty list")
    return tuple(_absolute(os.fspath(one)) for one in paths)


def _absolute(path: str) -> str:
    """Return an absolute path; a later change of directory has no effect."""
    if not is_local(path) or "://" in path or path.startswith(("~", os.sep)):
        return path
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - pathlib would drop a trailing slash


def expand(paths: Iterable[str], storage_options: Mapping[str, Any]) -> list[str]:
    """Return the files that paths, URLs and globs match: full paths, sorted, each once.

    A path that exists is taken literally, even if it contains glob characters. A chained URL (``zip://...::...``) is
    not expanded.

    Raises:
        InputFileError: if a path does not exist, or a glob matches no file.
    """
    return sorted({file for path in paths for file in _readable(path, storage_options)})


def listed_files(
    paths: Iterable[str],
    storage_options: Mapping[str, Any],
    *,
    in_order: bool,
    may_be_none: bool,
    in_partitions: bool = False,
    sizes: dict[str, int] | None = None,
) -> list[str]:
    """Return the files of a source: full paths, each once; sorted, or path by path.

    Args:
        paths: paths, URLs and globs.
        storage_options: options for the file system.
        in_order: whether the files stay in the order of the paths.
        may_be_none: whether a glob or folder may match no file yet.
        in_partitions: whether a folder also has the files of partitions below it, such as ``day=2024-05-01``.
        sizes: takes the bytes of the files that have a size in a listing.

    Raises:
        InputFileError: if a path does not exist; or a glob matches no file, and must.
    """
    found: list[str] = []
    for path in paths:
        try:
            found += sorted(_readable(path, storage_options, in_partitions, sizes))
        except InputFileError as error:
            if not may_be_none or error.problem != NO_MATCH:
                raise
    files = list(dict.fromkeys(found))
    return files if in_order else sorted(files)


def is_gone(path: str, storage_options: Mapping[str, Any]) -> bool:
    """Whether a file no longer exists."""
    filesystem, inner = filesystem_of(path, storage_options)
    return not filesystem.exists(inner)


def one_name(path: str, storage_options: Mapping[str, Any]) -> str:
    """Return the canonical name of a file.

    For a local file this is the absolute path without protocol, with links resolved; for other files, the store's path
    with the first of its protocols. Names that differ for a store stay distinct: ``//`` and ``..`` are parts of a key.
    """
    if _is_chained(path):
        return path
    filesystem, inner = filesystem_of(path, storage_options)
    return _part(filesystem, path, inner)


def _readable(
    path: str,
    storage_options: Mapping[str, Any],
    in_partitions: bool = False,
    sizes: dict[str, int] | None = None,
) -> list[str]:
    try:
        found = _matches(path, storage_options, in_partitions)
    except InputFileError:
        raise
    except OSError as error:
        hint = s3.hint_for(error)
        if hint is None and not isinstance(error, PermissionError):
            raise
        said = redacted(s3.reason_of(error), secrets_in(storage_options, path))
        problem = f"cannot be read: {said}; {hint or 'check the credentials in storage_options'}"
        raise InputFileError(path, problem) from None
    if sizes is not None:
        sizes.update({file: size for file, size in found.items() if size is not None})
    return [*found]


def _matches(path: str, storage_options: Mapping[str, Any], in_partitions: bool) -> dict[str, int | None]:
    """Return the files that a path, URL or glob matches, with their sizes; None for an unknown one."""
    if _is_chained(path):
        return {path: None}
    filesystem, inner = filesystem_of(path, storage_options)
    kind = _kind(filesystem, inner)
    if kind not in (None, "directory"):
        return {_part(filesystem, path, inner): local_size(path)}
    if kind == "directory" and path.endswith("/") and in_partitions:
        return _in_partitions(filesystem, path, inner)
    if kind == "directory" and path.endswith("/"):
        return _in_folder(filesystem, path, inner)
    if _MAGIC.isdisjoint(inner):
        problem = (
            "does not exist" if kind is None else "is a directory; end the path with a slash to read the files in it"
        )
        raise InputFileError(path, problem)
    found = filesystem.glob(inner, detail=True)
    visible = {
        _part(filesystem, path, file): info.get("size")
        for file, info in found.items()
        if info["type"] != "directory" and not _is_staged(file, inner)
    }
    return _some(visible, path)


def _in_folder(filesystem: Any, path: str, inner: str) -> dict[str, int | None]:
    """Return the files in a folder, without hidden ones and subfolders, with their sizes."""
    listed = filesystem.ls(inner, detail=True)
    found = {entry["name"]: entry.get("size") for entry in listed if entry["type"] != "directory"}
    visible = [file for file in found if not file.rpartition("/")[2].startswith((".", "_")) and file != f"{inner}/"]
    return _some({_part(filesystem, path, file): found[file] for file in visible}, path)


def _in_partitions(filesystem: Any, path: str, inner: str) -> dict[str, int | None]:
    """Return the files in a folder and in the partitions below it, without hidden ones, with their sizes."""
    above = len(inner.rstrip("/")) + 1
    found: dict[str, int | None] = {}
    for file, info in filesystem.find(inner, detail=True).items():
        *folders, name = file[above:].split("/")
        hidden = any(part.startswith((".", "_")) for part in (*folders, name))
        if info["type"] != "directory" and name and not hidden and all("=" in folder for folder in folders):
            found[_part(filesystem, path, file)] = info.get("size")
    return _some(found, path)


def _some(files: dict[str, int | None], path: str) -> dict[str, int | None]:
    if not files:
        raise InputFileError(path, NO_MATCH)
    return files


def _is_staged(file: str, pattern: str) -> bool:
    """Whether a file is staged by a sink, and not visible yet: `**` also matches hidden folders."""
    return _STAGES in file and _STAGES not in pattern


def _is_chained(path: str) -> bool:
    return "::" in path and not path.startswith(os.sep)


def _kind(filesystem: Any, inner: str) -> str | None:
    try:
        return str(filesystem.info(inner)["type"])
    except (FileNotFoundError, NotADirectoryError) as error:
        if s3.hint_for(error) is not None:  # the bucket is missing
            raise
        return None
    except OSError as error:
        if isinstance(filesystem, LocalFileSystem):
            raise InputFileError(inner, f"cannot be read: {error.strerror or error}") from error
        raise


def _part(filesystem: Any, given: str, inner: str) -> str:
    protocol, found, rest = given.partition("://")
    if isinstance(filesystem, LocalFileSystem):
        return str(os.path.realpath(inner))
    if not found or inner.startswith(f"{protocol}://"):
        return inner
    first = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
    name = f"{first}://{inner.lstrip('/')}"
    if filesystem._strip_protocol(name) == inner:  # noqa: SLF001 - fsspec has no public equivalent
        return name
    return f"{protocol}://{inner if rest.startswith('/') else inner.lstrip('/')}"


def local_size(path: str) -> int | None:
    """Return the size of a local file in bytes; None if it is remote or no longer exists."""
    if not is_local(path):
        return None
    try:
        return os.stat(local_path(path)).st_size  # noqa: PTH116 - of a path or URL
    except OSError:
        return None


SPAN = 4096
"""The number of bytes to hash at the start of the file, and before the position."""


def fingerprint(read: Callable[[int, int], bytes], length: int) -> str:
    r"""Return a digest of the start of a file and of the bytes before a position.

    It takes two small reads, however large the file is.

    Args:
        read: returns the bytes between two offsets.
        length: the position, in bytes.

    >>> text = b"one\ntwo\n"
    >>> fingerprint(lambda start, end: text[start:end], 4)
    '2b93bf7282cb10ba'
    """
    head, tail = spans(length)
    return digest(read(0, head), read(tail, length))


def spans(length: int) -> tuple[int, int]:
    """Return the end of the hashed start of the file, and the offset of the hashed bytes before a position."""
    head = min(SPAN, length)
    return head, max(head, length - SPAN)


def digest(head: bytes, tail: bytes = b"") -> str:
    """Return the digest of the start of a file, and of the bytes before a position."""
    return blake2b(head + tail, digest_size=8).hexdigest()
