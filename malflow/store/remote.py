"""A store on any fsspec file system, S3 above all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from malflow.errors import GraphError, StoreError
from malflow.store import s3
from malflow.store.contract import KeyExists, KeyMissing, Transient, UnknownOutcome, is_key, require_folder, require_key
from malflow.store.redaction import redacted, secrets_in

__all__ = ["FsspecStore", "protocols_of", "writes_whole"]

T = TypeVar("T")

_BASE = AbstractFileSystem

_LISTING = 50_000_000
"""Bytes of a long listing, from which its time limit is computed."""

_MEMORY = threading.RLock()
"""Serialises check-then-write on memory file systems, which share their files within a process."""


class FsspecStore:
    """Objects as files of an fsspec file system, each written by one `pipe_file`, never through a handle.

    A network file system is recreated from the options of the given one, without a listings cache, and again after a
    fork. S3 gets one request per operation; the outcome is read from the response, not from the exception's class.

    Args:
        filesystem: the file system.
        root: the folder in it.
        exclusive: whether `pipe_file(mode="create")` creates exclusively. If it does not, False makes `put_new` check
            before it writes. That is correct as long as one process writes at a time.
        secrets: texts that no message may show, besides the secrets in the file system's own options.

    Raises:
        GraphError: if the file system wraps another, or does not write files atomically.
    """

    def __init__(self, filesystem: Any, root: str, *, exclusive: bool = True, secrets: Sequence[str] = ()) -> None:
        self._given = filesystem
        self._root = root.rstrip("/")
        self._exclusive = exclusive
        self._secrets = [*secrets, *secrets_in(filesystem.storage_options)]
        self._protocol = protocols_of(filesystem)[0]
        self._is_s3 = "s3" in protocols_of(filesystem)
        self._guard: AbstractContextManager[object] = _MEMORY if self._protocol == "memory" else nullcontext()
        self._own: tuple[int, Any] | None = None
        _check_whole_writes(filesystem)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the file system that belongs to this process."""
        return {**vars(self), "_own": None}

    def __repr__(self) -> str:
        return f"FsspecStore({redacted(self._url(''), self._secrets)!r})"

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object with one request."""
        require_key(key)
        if not self._exclusive and self._is_there(key):
            raise KeyExists(f"'{self._url(key)}' already exists")
        mode = "create" if self._exclusive else "overwrite"
        # s3fs splits objects longer than two chunks into several requests
        options: dict[str, Any] = {"chunksize": len(data) + 1} if self._is_s3 else {}

        def create(filesystem: Any, path: str) -> None:
            with self._guard:
                answer = filesystem.pipe_file(path, data, mode=mode, **options, **self._limited(filesystem, len(data)))
            if self._is_s3 and answer is None:
                raise TimeoutError("the request was aborted")  # fsspec does not report that its loop was stopped

        self._ask(create, "written", key, s3.verdict_on_write if self._is_s3 else _verdict_on_write)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object with one request."""
        require_key(key)

        def read(filesystem: Any, path: str) -> bytes:
            try:
                return bytes(filesystem.cat_file(path, start=0, end=limit + 1, **self._limited(filesystem, limit)))
            except OSError as error:
                if self._is_s3 and s3.is_empty_range(error):
                    return b""
                raise

        return self._ask(read, "read", key, s3.verdict_on_read if self._is_s3 else _verdict_on_read)

    def list(self, prefix: str) -> list[str]:
        """List the objects."""
        require_folder(prefix)

        def find(filesystem: Any, path: str) -> list[str]:
            if self._is_s3:
                return list(filesystem.find(self._root, prefix=prefix, **self._limited(filesystem, _LISTING)))
            return list(_files(filesystem, path.rstrip("/")))

        found = self._ask(find, "listed", prefix, s3.verdict_on_read if self._is_s3 else _verdict_on_read)
        below = f"{self._root.strip('/')}/".removeprefix("/")
        keys = (name.lstrip("/").removeprefix(below) for name in found if name.lstrip("/").startswith(below + prefix))
        return sorted(filter(is_key, keys))

    def delete(self, key: str) -> None:
        """Delete an object."""
        require_key(key)

        def remove(filesystem: Any, path: str) -> None:
            with self._guard:
                filesystem.rm_file(path, **self._limited(filesystem, 0))

        try:
            self._ask(remove, "deleted", key, s3.verdict_on_read if self._is_s3 else _verdict_on_read)
        except KeyMissing:
            return

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Do nothing: an interrupted request leaves nothing behind."""
        require_folder(prefix)

    def _limited(self, filesystem: Any, size: int) -> dict[str, Any]:
        return {"timeout": s3.time_limit(filesystem, size)} if self._is_s3 else {}

    def _is_there(self, key: str) -> bool:
        try:
            self.get(key, 0)
        except KeyMissing:
            return False
        return True

    def _url(self, key: str) -> str:
        return f"{self._protocol}://{self._root.lstrip('/') if self._protocol == 'memory' else self._root}/{key}"

    def _ask(
        self, operation: Callable[[Any, str], T], done: str, key: str, verdict: Callable[[Exception], type[Exception]]
    ) -> T:
        try:
            return operation(self._filesystem(), f"{self._root}/{key}")
        except Exception as error:  # noqa: BLE001 - libraries raise anything; raised below, without secrets
            failure = error
        raise self._error(failure, done, key, verdict(failure))

    def _error(self, failure: Exception, done: str, key: str, kind: type[Exception]) -> Exception:
        """Return the error of the contract; called outside the handler. No secret is thus chained to it."""
        url = self._url(key)
        if kind is KeyExists:
            text = f"'{url}' already exists"
        elif kind is KeyMissing:
            text = f"'{url}' does not exist"
        else:
            verb = f"confirmed as {done}" if kind is UnknownOutcome else done
            text = s3.with_hint(f"'{url}' could not be {verb}: {s3.reason_of(failure)}", failure)
        error = kind(redacted(text, self._secrets))
        if not any(_shows_secret(link, self._secrets) for link in s3.chain(failure)):
            error.__cause__ = failure
        return error

    def _filesystem(self) -> Any:
        """Return the file system; one on the network belongs to this process alone."""
        if not isinstance(self._given, AsyncFileSystem):
            self._given.invalidate_cache()
            return self._given
        own = self._own
        if own is None or own[0] != os.getpid():
            own = self._own = os.getpid(), self._recreated()
        return own[1]

    def _recreated(self) -> Any:
        options: Mapping[str, Any] = self._given.storage_options
        if self._is_s3:
            options = s3.client_options(options)
        options = {name: value for name, value in options.items() if name not in ("loop", "asynchronous")}
        options |= {"use_listings_cache": False, "skip_instance_cache": True}
        filesystem = type(self._given)(*self._given.storage_args, **options)
        if self._is_s3:
            filesystem.retries = 1
        return filesystem


def protocols_of(filesystem: Any) -> tuple[str, ...]:
    """Return the names of a file system's protocol."""
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def writes_whole(filesystem: Any) -> bool:
    """Whether a file system writes a file as a whole, by one request."""
    kind = type(filesystem)
    base, method = (AsyncFileSystem, "_pipe_file") if isinstance(filesystem, AsyncFileSystem) else (_BASE, "pipe_file")
    return getattr(kind, method) is not getattr(base, method)


def _check_whole_writes(filesystem: Any) -> None:
    kind = type(filesystem)
    if isinstance(getattr(filesystem, "fs", None), AbstractFileSystem):
        raise GraphError(
            f"a store can't be in a {kind.__name__}, which wraps another file system; pass the wrapped one"
        )
    if not writes_whole(filesystem):
        raise GraphError(
            f"a store needs atomic writes, and {kind.__name__} writes files piece by piece; "
            "choose a local folder or an object store"
        )


def _verdict_on_write(error: Exception) -> type[Exception]:
    if isinstance(error, FileExistsError):
        return KeyExists
    return StoreError if isinstance(error, PermissionError) else UnknownOutcome


def _verdict_on_read(error: Exception) -> type[Exception]:
    if isinstance(error, FileNotFoundError):
        return KeyMissing
    return Transient if isinstance(error, ConnectionError | TimeoutError) else StoreError


def _shows_secret(error: BaseException, secrets: Sequence[str]) -> bool:
    """Whether an exception shows a secret, in its text or in the response that it carries."""
    shown = f"{str(error)!r} {error!r} {getattr(error, 'response', '')!r} {getattr(error, '__notes__', '')!r}"
    return redacted(shown, secrets) != shown


def _files(filesystem: Any, folder: str) -> Iterator[str]:
    """Yield the files below a folder; fsspec's own walk skips folders that it can't list."""
    try:
        entries = filesystem.ls(folder, detail=True)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry["type"] != "directory":
            yield entry["name"]
        elif entry["name"].rstrip("/") != folder:
            yield from _files(filesystem, entry["name"].rstrip("/"))
