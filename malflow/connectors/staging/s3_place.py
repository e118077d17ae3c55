"""A folder on S3, where a staged file is an uncompleted multipart upload of the final object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from malflow.connectors.lost_output import SinkFileError
from malflow.connectors.staging.places import LOST, Place, Staged, StagedFile
from malflow.store import s3
from malflow.store.contract import Transient
from malflow.store.redaction import redacted
from malflow.store.retry import Retry
from malflow.words import error_line

__all__ = ["S3Place", "Upload"]

_PART = 8 << 20
"""The size of a part of an upload in bytes; S3 allows 10,000 parts."""


class S3Place(Place):
    """A folder on S3.

    Args:
        filesystem: the file system, of s3fs.
        inner: the bucket, and the folder in it.
        secrets: texts that no message may show.
        retry: how long to retry while S3 can't be reached.
    """

    def __init__(self, filesystem: Any, inner: str, secrets: list[str], retry: Retry) -> None:
        self._filesystem = filesystem
        self._retry = retry
        self._bucket, _, path = inner.strip("/").partition("/")
        self._path = f"{path}/" if path else ""
        self._secrets = secrets

    def create(self, name: str) -> StagedFile:
        """Create a file that will be published under a name."""
        return Upload(self, name)

    def publish(self, staged: Staged) -> None:
        """Make a file visible, unless it is visible already.

        Raises:
            SinkFileError: if it is gone.
        """
        name, upload, *etags = staged
        if self._exists(name):
            return
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        try:
            self.ask("complete_multipart_upload", name, UploadId=upload, MultipartUpload={"Parts": parts})
        except FileNotFoundError:
            if not self._exists(name):
                raise SinkFileError(f"{name} (upload {upload})", LOST % name) from None

    def sweep(self, prefix: str, keep: Iterable[Staged], is_obsolete: Callable[[str], bool]) -> None:
        """Delete the staged files whose names begin with a prefix and are obsolete, except those in `keep`."""
        kept = {staged[1] for staged in keep}
        for name, upload in self._uploads(prefix):
            if upload not in kept and is_obsolete(name):
                self.drop(name, upload)

    def ask(self, method: str, name: str, **arguments: Any) -> Any:
        """Send an idempotent request about an object, and retry while the server can't be reached.

        Raises:
            FileNotFoundError: if the upload or object does not exist.
            SinkFileError: if the request fails.
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
            said = redacted(error_line(error), self._secrets)
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


class Upload(StagedFile):
    """A multipart upload; each part is sent when it is full."""

    def __init__(self, place: S3Place, name: str) -> None:
        self._place = place
        self._name = name
        self._upload: str = place.ask("create_multipart_upload", name)["UploadId"]
        self._etags: list[str] = []
        self._buffer = bytearray()

    def write(self, data: Any) -> int:
        """Append data."""
        size = memoryview(data).nbytes
        self._buffer += data
        while len(self._buffer) >= _PART:
            self._send(bytes(self._buffer[:_PART]))
            del self._buffer[:_PART]
        return size

    def seal(self) -> Staged:
        """Make the file durable, and return the data with which to publish it."""
        self._send(bytes(self._buffer))
        self._buffer.clear()
        return (self._name, self._upload, *self._etags)

    def discard(self) -> None:
        """Delete it."""
        self._buffer.clear()
        self._place.drop(self._name, self._upload)

    def _send(self, body: bytes) -> None:
        number = len(self._etags) + 1
        answer = self._place.ask("upload_part", self._name, UploadId=self._upload, PartNumber=number, Body=body)
        self._etags.append(answer["ETag"])
