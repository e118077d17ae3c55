"""A file system that fails on purpose, at a place that a test names."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem

from malflow.errors import GraphError
from malflow.testing.crash import Crash

__all__ = ["KINDS", "Call", "Fault", "FaultyFileSystem", "Throttled"]

_EVERY = ("write", "read", "list", "delete")

KINDS: Mapping[str, Sequence[str]] = {
    "crash_before": _EVERY,
    "crash_after": _EVERY,
    "error_before": _EVERY,
    "error_after": _EVERY,
    "throttled": _EVERY,
    "torn": ("write",),
    "torn_error": ("write",),
    "late": ("write", "delete"),
    "bit_flip": ("write", "read"),
    "stale_listing": ("list",),
}
"""Every kind of fault, and the operations it can happen to."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, once.

    ================= ==================================================================================
    `crash_before`    `Crash` is raised; the operation is not done
    `crash_after`     the operation is done, then `Crash` is raised
    `error_before`    an `OSError`; the operation is not done
    `error_after`     the operation is done, but its answer is lost: an `OSError`
    `throttled`       an `OSError` as s3fs raises it for ``503 SlowDown``; the operation is not done
    `torn`            the first half is written, then `Crash` is raised
    `torn_error`      the first half is written, then comes an `OSError`
    `late`            a `TimeoutError`; the operation is done when `FaultyFileSystem.release` is called
    `bit_flip`        one bit of what is stored, or read, is another
    `stale_listing`   the listing lacks the key that was written last
    ================= ==================================================================================

    Args:
        kind: one of these.
        operation: ``"write"``, ``"read"``, ``"list"`` or ``"delete"``.
        path_contains: what the path must contain; the empty text is in every path.
        nth: how many such operations go well before.

    Raises:
        GraphError: if this kind can't happen to this operation, or there is no such.
    """

    kind: str
    operation: str
    path_contains: str = ""
    nth: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GraphError(f"there is no fault of kind {self.kind!r}; there are {', '.join(KINDS)}")
        if self.operation not in KINDS[self.kind]:
            at = " and ".join(KINDS[self.kind])
            raise GraphError(f"a fault of kind {self.kind!r} can't happen to a {self.operation!r}; it can to {at}")


class Call(NamedTuple):
    """One operation that was asked for, and the kind of fault that it met, if any."""

    operation: str
    path: str
    fault: str | None = None


class Throttled(Exception):
    """What botocore would have raised: the store asks to be asked less often."""

    response: Mapping[str, Mapping[str, Any]] = {
        "Error": {"Code": "SlowDown", "Message": "Please reduce your request rate."},
        "ResponseMetadata": {"HTTPStatusCode": 503},
    }


class FaultyFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """Pass everything on to another file system, but for the faults.

    A fault counts the operations that it is meant for by itself; where two are due at once the first of the list
    happens. Other operations than the four are passed on, but for `open`, which only reads.

    Args:
        inner: the file system behind.
        faults: what will go wrong. A test should assert that `fired` equals it.

    Attributes:
        fired: the faults that have happened, in their order.
        log: every operation that was asked for, in order.

    >>> from fsspec.implementations.memory import MemoryFileSystem
    >>> fs = FaultyFileSystem(MemoryFileSystem(), [Fault("error_after", "write", "manifest")])
    >>> fs.pipe_file("/faulty/data", b"1")
    >>> try:
    ...     fs.pipe_file("/faulty/manifest", b"2")
    ... except OSError as error:
    ...     print(error)
    [Errno 5] the answer was lost (injected): '/faulty/manifest'
    >>> fs.cat_file("/faulty/manifest"), fs.fired == fs.faults
    (b'2', True)
    >>> fs.rm("/faulty", recursive=True)
    """

    cachable = False

    def __init__(self, inner: Any, faults: Sequence[Fault] = ()) -> None:
        super().__init__()
        self.inner = inner
        self.faults = list(faults)
        self.fired: list[Fault] = []
        self.log: list[Call] = []
        self.protocol = inner.protocol
        self.root_marker = inner.root_marker
        self._strip_protocol = inner._strip_protocol  # noqa: SLF001 - fsspec's own callers do so, too
        self._met = [0] * len(self.faults)
        self._late: list[Callable[[], object]] = []
        self._written: list[str] = []
        self._lock = threading.RLock()

    def release(self) -> int:
        """Let the late operations arrive, and tell how many there were. One that loses to another write is dropped."""
        with self._lock:
            late, self._late = self._late, []
        for operation in late:
            try:
                operation()
            except (FileExistsError, FileNotFoundError):
                continue
        return len(late)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write an object."""

        def write(data: bytes) -> None:
            self.inner.pipe_file(path, data, mode=mode, **kwargs)
            with self._lock:
                self._written.append(_bare(path))

        def tear() -> None:
            write(value[: len(value) // 2])

        kind = self._meet("write", path)
        if kind == "bit_flip":
            write(_flipped(value))
        elif kind in ("torn", "torn_error"):
            self._happen("crash_after" if kind == "torn" else "error_after", path, tear)
        else:
            self._happen(kind, path, partial(write, value))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Read an object, or a piece of it."""
        kind = self._meet("read", path)
        data: bytes = self._happen(kind, path, partial(self.inner.cat_file, path, start=start, end=end, **kwargs))
        return _flipped(data) if kind == "bit_flip" else data

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """List all files below a folder."""
        kind = self._meet("list", path)
        listing = self._happen(kind, path, partial(self.inner.find, path, *args, **kwargs))
        return self._stale(listing) if kind == "stale_listing" else listing

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """List one folder."""
        kind = self._meet("list", path)
        listing = self._happen(kind, path, partial(self.inner.ls, path, detail=detail, **kwargs))
        return self._stale(listing) if kind == "stale_listing" else listing

    def rm_file(self, path: str) -> None:
        """Remove an object."""
        self._happen(self._meet("delete", path), path, partial(self.inner.rm_file, path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove objects and folders; no fault happens here."""
        self.inner.rm(path, recursive=recursive, maxdepth=maxdepth)

    def info(self, path: str, **kwargs: Any) -> Any:
        """Describe an object."""
        return self.inner.info(path, **kwargs)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, and those above it."""
        self.inner.makedirs(path, exist_ok=exist_ok)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a folder."""
        self.inner.mkdir(path, create_parents=create_parents, **kwargs)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget listings."""
        self.inner.invalidate_cache(path)

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> io.BytesIO:
        if mode != "rb":
            raise NotImplementedError(f"a faulty file system opens files to read them; got mode {mode!r}; pipe_file()")
        return io.BytesIO(self.cat_file(path))

    def _meet(self, operation: str, path: str) -> str | None:
        """Find the fault that is due, and note it."""
        with self._lock:
            due = None
            for at, fault in enumerate(self.faults):
                if fault.operation == operation and fault.path_contains in path:
                    self._met[at] += 1
                    if due is None and self._met[at] == fault.nth + 1:
                        due = fault
            if due is not None:
                self.fired.append(due)
            kind = None if due is None else due.kind
            self.log.append(Call(operation, path, kind))
            return kind

    def _happen(self, kind: str | None, path: str, operation: Callable[[], Any]) -> Any:
        """Do an operation, or not, and fail, or not."""
        match kind:
            case "crash_before":
                raise Crash(f"before {PurePosixPath(path).name}")
            case "error_before":
                raise OSError(errno.EIO, "it was not done (injected)", path)
            case "throttled":
                raise OSError(errno.EBUSY, "Please reduce your request rate. (injected)", path) from Throttled()
            case "late":
                with self._lock:
                    self._late.append(operation)
                raise TimeoutError(errno.ETIMEDOUT, "no answer came (injected)", path)
        answer = operation()
        match kind:
            case "crash_after":
                raise Crash(f"after {PurePosixPath(path).name}")
            case "error_after":
                raise OSError(errno.EIO, "the answer was lost (injected)", path)
        return answer

    def _stale(self, listing: Any) -> Any:
        """Leave out the object that was written last."""
        ages = {name: age for age, name in enumerate(self._written)}
        newest = max(map(_name, listing), key=lambda name: (ages.get(_bare(name), -1), name), default=None)
        if isinstance(listing, dict):
            return {name: entry for name, entry in listing.items() if name != newest}
        return [entry for entry in listing if _name(entry) != newest]


def _name(entry: Any) -> str:
    name: str = entry["name"] if isinstance(entry, dict) else entry
    return name


def _bare(path: str) -> str:
    return path.rpartition("://")[2].strip("/")


def _flipped(data: bytes) -> bytes:
    """Change the lowest bit of the byte in the middle; an empty object has none to change."""
    changed = bytearray(data)
    if changed:
        changed[len(changed) // 2] ^= 1
    return bytes(changed)
