"""A file system with faults injected at chosen operations, and a simulated process crash."""

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

__all__ = [
    "KINDS",
    "Call",
    "Crash",
    "Fault",
    "FaultyFileSystem",
    "Throttled",
]


class Crash(BaseException):
    """A simulated process crash. It is not an `Exception`. ``except Exception`` thus does not swallow it."""


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
"""Every kind of fault, with the operations it applies to."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject once.

    ================= ==================================================================================
    `crash_before`    `Crash` is raised; the operation is not done
    `crash_after`     the operation is done, then `Crash` is raised
    `error_before`    an `OSError`; the operation is not done
    `error_after`     the operation is done, but its response is lost: an `OSError`
    `throttled`       an `OSError` as s3fs raises it for ``503 SlowDown``; the operation is not done
    `torn`            the first half is written, then `Crash` is raised
    `torn_error`      the first half is written, then an `OSError` is raised
    `late`            a `TimeoutError`; the operation is done when `FaultyFileSystem.release` is called
    `bit_flip`        one bit of the data written, or read, is flipped
    `stale_listing`   the listing lacks the most recently written key
    ================= ==================================================================================

    Args:
        kind: one of the kinds above.
        operation: ``"write"``, ``"read"``, ``"list"`` or ``"delete"``.
        path_contains: a substring of the path; the default matches every path.
        nth: the number of matching operations that succeed first.

    Raises:
        GraphError: if the kind is unknown, or does not apply to the operation.
    """

    kind: str
    operation: str
    path_contains: str = ""
    nth: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GraphError(f"unknown kind of fault {self.kind!r}; the kinds are {', '.join(KINDS)}")
        if self.operation not in KINDS[self.kind]:
            at = " and ".join(KINDS[self.kind])
            raise GraphError(f"a fault of kind {self.kind!r} does not apply to {self.operation!r}; it applies to {at}")


class Call(NamedTuple):
    """One requested operation, with the kind of fault injected into it, if any."""

    operation: str
    path: str
    fault: str | None = None


class Throttled(Exception):
    """A stand-in for botocore's ``SlowDown`` error: the store asks for a lower request rate."""

    response: Mapping[str, Mapping[str, Any]] = {
        "Error": {"Code": "SlowDown", "Message": "Please reduce your request rate."},
        "ResponseMetadata": {"HTTPStatusCode": 503},
    }


class FaultyFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """A wrapper of another file system that injects faults.

    Each fault counts the operations that match it. If two are due at once, the first in the list is injected. Other
    operations are passed through, except `open` (reading only).

    Args:
        inner: the wrapped file system.
        faults: the faults to inject. A test should assert that `fired` equals this list.

    Attributes:
        fired: the faults injected so far, in order.
        log: every requested operation, in order.

    >>> from fsspec.implementations.memory import MemoryFileSystem
    >>> fs = FaultyFileSystem(MemoryFileSystem(), [Fault("error_after", "write", "manifest")])
    >>> fs.pipe_file("/faulty/data", b"1")
    >>> try:
    ...     fs.pipe_file("/faulty/manifest", b"2")
    ... except OSError as error:
    ...     print(error)
    [Errno 5] response lost (injected): '/faulty/manifest'
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
        """Apply the delayed operations and return their number; drop a write if its object was written meanwhile."""
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
        """Read an object, or a range of it."""
        kind = self._meet("read", path)
        data: bytes = self._happen(kind, path, partial(self.inner.cat_file, path, start=start, end=end, **kwargs))
        return _flipped(data) if kind == "bit_flip" else data

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """List all files below a folder, recursively."""
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
        """Remove objects and folders, without faults."""
        self.inner.rm(path, recursive=recursive, maxdepth=maxdepth)

    def info(self, path: str, **kwargs: Any) -> Any:
        """Return the metadata of an object."""
        return self.inner.info(path, **kwargs)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a folder and its parents."""
        self.inner.makedirs(path, exist_ok=exist_ok)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Create a folder."""
        self.inner.mkdir(path, create_parents=create_parents, **kwargs)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Drop cached listings."""
        self.inner.invalidate_cache(path)

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> io.BytesIO:
        if mode != "rb":
            raise NotImplementedError(
                f"FaultyFileSystem.open supports mode 'rb' only; got {mode!r}; write with pipe_file()"
            )
        return io.BytesIO(self.cat_file(path))

    def _meet(self, operation: str, path: str) -> str | None:
        """Log an operation, and return the kind of fault that is due, if any."""
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
        """Perform an operation as the injected fault dictates."""
        match kind:
            case "crash_before":
                raise Crash(f"before {PurePosixPath(path).name}")
            case "error_before":
                raise OSError(errno.EIO, "operation not done (injected)", path)
            case "throttled":
                raise OSError(errno.EBUSY, "Please reduce your request rate. (injected)", path) from Throttled()
            case "late":
                with self._lock:
                    self._late.append(operation)
                raise TimeoutError(errno.ETIMEDOUT, "no response (injected)", path)
        answer = operation()
        match kind:
            case "crash_after":
                raise Crash(f"after {PurePosixPath(path).name}")
            case "error_after":
                raise OSError(errno.EIO, "response lost (injected)", path)
        return answer

    def _stale(self, listing: Any) -> Any:
        """Remove the most recently written object from a listing."""
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
    """Flip the lowest bit of the middle byte; empty data stays empty."""
    changed = bytearray(data)
    if changed:
        changed[len(changed) // 2] ^= 1
    return bytes(changed)
