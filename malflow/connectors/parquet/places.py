"""Where a sink stages files, and how they become visible: a local folder, or S3."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from malflow.connectors.files.local_file import SinkFileError
from malflow.errors import GraphError
from malflow.filesystem import filesystem_of, is_local, local_path
from malflow.store import s3
from malflow.store.contract import Transient
from malflow.store.redaction import redacted, secrets_in
from malflow.store.remote import protocols_of
from malflow.store.retry import Retry

__all__ = ["HIDDEN", "Place", "Staged", "open_place"]

HIDDEN = ".malflow"
"""The folder for staged files and ledgers, which other programs skip because of its dot."""

Staged: TypeAlias = tuple[str, ...]
"""What another process needs to make a file visible: its name and, on S3, the upload and the ETags of its parts."""

_PART = 8 << 20
"""Bytes of a part of an upload, of which S3 allows 10,000."""

_LOST = (
    "was prepared by an earlier run, and is gone: neither the staged file nor '%s' is there. If a reader has moved it, "
    "put it back; if it was deleted, start from restore=None, or pass recovery='previous', sinks='accept_duplicates'"
)


class StagedFile(io.RawIOBase):
    """A file that is written but not visible."""

    def seal(self) -> Staged:
        """Make it durable, and return what is needed to publish it."""
        raise NotImplementedError

    def discard(self) -> None:
        """Delete it."""
        raise NotImplementedError

    def writable(self) -> bool:
        """Whether it can be written to: always."""
        return True


class Place(ABC):
    """A folder in which files become visible as a whole."""

    @abstractmethod
    def create(self, name: str) -> StagedFile:
        """Begin a file that will be visible under a name."""

    @abstractmethod
    def publish(self, staged: Staged) -> None:
        """Make a file visible; if it is already, do nothing.

        Raises:
            SinkFileError: if it is gone.
        """

    @abstractmethod
    def sweep(self, prefix: str, keep: Iterable[Staged]) -> None:
        """Delete the staged files whose names begin with a prefix, except for some."""


def open_place(folder: str, storage_options: Mapping[str, Any], sub: str, retry: Retry) -> Place:
    """Return the place that is a local folder, or a folder on S3.

    Args:
        folder: the path or URL.
        storage_options: options for the file system.
        sub: the folder for staged files of one sink, below `HIDDEN`.
        retry: how long S3 is asked again while it can't be reached.

    Raises:
        GraphError: if it is on another file system.
    """
    if is_local(folder):
        return _LocalPlace(Path(local_path(folder)), sub)
    filesystem, inner = filesystem_of(folder, storage_options)
    if "s3" not in protocols_of(filesystem):
        shown = redacted(folder, secrets_in(storage_options, folder))
        raise GraphError(f"'{shown}' is neither a local folder nor on S3, where files become visible as a whole")
    return _S3Place(filesystem, inner, secrets_in(storage_options, folder), retry)


class _LocalPlace(Place):
    """A local folder; files are renamed into it."""

    def __init__(self, folder: Path, sub: str) -> None:
        self._folder = folder
        self._staged = folder / HIDDEN / sub

    def create(self, name: str) -> StagedFile:
        if not self._staged.is_dir():
            self._staged.mkdir(parents=True, exist_ok=True)
            for made in (self._staged, *self._staged.parents):
                _sync_folder(made)
                if made == self._folder:
                    break
        return _LocalFile(self._staged / f"{name}.part", name)

    def publish(self, staged: Staged) -> None:
        (name,) = staged
        source, final = self._staged / f"{name}.part", self._folder / name
        try:
            source.rename(final)
        except FileNotFoundError:
            if not final.exists():
                raise SinkFileError(str(source), _LOST % final) from None
        _sync_folder(self._folder)
        _sync_folder(self._staged)

    def sweep(self, prefix: str, keep: Iterable[Staged]) -> None:
        kept = {f"{staged[0]}.part" for staged in keep}
        if self._staged.is_dir():
            for path in self._staged.iterdir():
                if path.name.startswith(prefix) and path.name not in kept:
                    path.unlink(missing_ok=True)


class _LocalFile(StagedFile):
    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._raw = io.FileIO(path, "xb")

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[self._raw.write(left) or 0 :]
        return size

    def seal(self) -> Staged:
        os.fsync(self._raw.fileno())
        self._raw.close()
        _sync_folder(self._path.parent)
        return (self._name,)

    def discard(self) -> None:
        self._raw.close()
        self._path.unlink(missing_ok=True)


class _S3Place(Place):
    """A folder on S3: a staged file is an uncompleted multipart upload of the final object."""

    def __init__(self, filesystem: Any, inner: str, secrets: list[str], retry: Retry) -> None:
        self._filesystem = filesystem
        self._retry = retry
        self._bucket, _, path = inner.strip("/").partition("/")
        self._path = f"{path}/" if path else ""
        self._secrets = secrets

    def create(self, name: str) -> StagedFile:
        return _Upload(self, name)

    def publish(self, staged: Staged) -> None:
        name, upload, *etags = staged
        if self._exists(name):
            return
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        try:
            self.ask("complete_multipart_upload", name, UploadId=upload, MultipartUpload={"Parts": parts})
        except FileNotFoundError:
            if not self._exists(name):
                raise SinkFileError(f"{name} (upload {upload})", _LOST % name) from None

    def sweep(self, prefix: str, keep: Iterable[Staged]) -> None:
        kept = {staged[1] for staged in keep}
        for name, upload in self._uploads(prefix):
            if upload not in kept:
                self.drop(name, upload)

    def ask(self, method: str, name: str, **arguments: Any) -> Any:
        """Send a request about an object, again while the server can't be reached: all of them may be repeated.

        Raises:
            FileNotFoundError: if the server knows no such upload or object.
            SinkFileError: if it fails.
        """
        return self._call(method, name, Key=f"{self._path}{name}", **arguments)

    def drop(self, name: str, upload: str) -> None:
        """Abort an upload."""
        with suppress(FileNotFoundError):
            self.ask("abort_multipart_upload", name, UploadId=upload)

    def _call(self, method: str, name: str, **arguments: Any) -> Any:
        try:
            return self._retry.of(partial(self._call_once, method, name, **arguments))
        except Transient as error:
            problem = str(error)
        raise self._error(name, problem)

    def _call_once(self, method: str, name: str, **arguments: Any) -> Any:
        filesystem = self._filesystem
        try:
            return filesystem.call_s3(method, filesystem.s3_additional_kwargs, Bucket=self._bucket, **arguments)
        except FileNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries raise anything; raised below, without secrets
            said = redacted(f"{type(error).__name__}: {error}", self._secrets)
            problem = s3.with_hint(f"could not be written ({method}: {said})", error)
            passing = s3.verdict_on_read(error) is Transient
        raise Transient(problem) if passing else self._error(name, problem)

    def _error(self, name: str, problem: str) -> SinkFileError:
        return SinkFileError(f"s3://{self._bucket}/{self._path}{name}", problem)

    def _exists(self, name: str) -> bool:
        try:
            self.ask("head_object", name)
        except FileNotFoundError:
            return False
        return True

    def _uploads(self, prefix: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        marker: dict[str, str] = {}
        while True:
            answer = self._call("list_multipart_uploads", prefix, Prefix=f"{self._path}{prefix}", **marker)
            uploads = (
                (upload["Key"].removeprefix(self._path), upload["UploadId"]) for upload in answer.get("Uploads", ())
            )
            found.extend((name, upload) for name, upload in uploads if name.startswith(prefix))
            if not answer.get("IsTruncated"):
                return found
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}


class _Upload(StagedFile):
    def __init__(self, place: _S3Place, name: str) -> None:
        self._place = place
        self._name = name
        self._upload: str = place.ask("create_multipart_upload", name)["UploadId"]
        self._etags: list[str] = []
        self._buffer = bytearray()

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._buffer += data
        while len(self._buffer) >= _PART:
            self._send(bytes(self._buffer[:_PART]))
            del self._buffer[:_PART]
        return size

    def seal(self) -> Staged:
        self._send(bytes(self._buffer))
        self._buffer.clear()
        return (self._name, self._upload, *self._etags)

    def discard(self) -> None:
        self._buffer.clear()
        self._place.drop(self._name, self._upload)

    def _send(self, body: bytes) -> None:
        number = len(self._etags) + 1
        answer = self._place.ask("upload_part", self._name, UploadId=self._upload, PartNumber=number, Body=body)
        self._etags.append(answer["ETag"])


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
