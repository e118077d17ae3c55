"""The manifests and data files of a job, verified as they are read, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from malflow.errors import SnapshotCorrupt, SnapshotError, SnapshotIncomplete
from malflow.snapshot.compression import NONE, Compression
from malflow.snapshot.persistence import Wish
from malflow.snapshot.protocol.manifest import (
    BOUNDARIES,
    DATA,
    JOB,
    MANIFESTS,
    Authenticator,
    FileEntry,
    Manifest,
    decode_signed,
    encode_signed,
    highest,
    is_data_key,
    manifest_key,
    number_of,
)
from malflow.store.contract import KeyMissing, Store
from malflow.store.retry import Retry

__all__ = [
    "LARGEST_MANIFEST",
    "ManifestLog",
    "candidates",
    "read_data",
    "time_of",
    "with_time_taken",
]

LARGEST_MANIFEST = 64 << 20
"""Bytes; a longer file is not read whole, so that damage can't fill the memory. Less would limit the files of a job."""


class ManifestLog:
    """Reads the objects of one job and verifies each; writes nothing.

    Args:
        store: the store.
        name: the job's name.
        authenticator: signs, and verifies signatures.
        retry: how long to retry.
        compression: the compression of new files; older ones may have another.
    """

    def __init__(
        self, store: Store, name: str, authenticator: Authenticator, retry: Retry, compression: Compression = NONE
    ) -> None:
        self.compression = compression
        self.store = store
        self.name = name
        self.authenticator = authenticator
        self.retry = retry
        self.uuid = ""
        self._manifests: dict[int, tuple[Manifest, str]] = {}

    def find(self) -> bytes | None:
        """Read the job file and set `uuid`; return its bytes, or None if the job does not exist yet.

        Raises:
            SnapshotIncomplete: if the file is missing, but other files of the job exist.
            SnapshotCorrupt: if the file is damaged, or was copied from another job.
        """
        try:
            data = self.get(JOB, LARGEST_MANIFEST)
        except KeyMissing:
            keys = [key for folder in (MANIFESTS, DATA, BOUNDARIES) for key in self.list(folder)]
            if not keys:
                return None
            inner = next((key for key in keys if key.endswith(f"/{JOB}")), None)
            if inner is not None and not any(number_of(key) or is_data_key(key) for key in keys):
                raise SnapshotError(
                    f"job '{self.name}' can't be created: its folder contains another job, at "
                    f"'{inner.removesuffix(JOB)}'; jobs must not be nested: choose another job= or another "
                    "URL for one of them"
                ) from None
            data = self._job_begun()
        body = decode_signed(JOB, data, None)
        uuid, name = body.get("job"), body.get("name")
        if not isinstance(uuid, str) or set(body) != {"job", "name"}:
            raise SnapshotCorrupt(f"'{JOB}' is not a job file: {sorted(body)}", name=JOB)
        if name != self.name:
            raise SnapshotCorrupt(
                f"'{JOB}' belongs to job '{name}' and was copied into the folder of job '{self.name}'; jobs "
                f"can't share snapshots; rename the folder to '{name}', or choose another job=",
                name=JOB,
            )
        self.uuid = uuid
        return data

    def job_file(self, uuid: str) -> bytes:
        """Return the file of a new job. It is unsigned, as it outlives keys; signed manifests repeat its content."""
        return encode_signed({"job": uuid, "name": self.name}, None)

    def boundary(self) -> int:
        """Return the number below which manifests are no longer valid."""
        return highest(self.list(BOUNDARIES))

    def sequences(self, boundary: int) -> list[int]:
        """Return the sequence numbers of all manifests not below the boundary, in order."""
        numbers = (number_of(key) for key in self.list(MANIFESTS))
        return sorted(number for number in numbers if number is not None and number >= boundary)

    def manifest(self, seq: int) -> Manifest:
        """Read a manifest.

        Raises:
            SnapshotIncomplete: if it is missing.
            SnapshotCorrupt: if it is damaged.
            SnapshotError: if a newer malflow wrote it.
        """
        if seq not in self._manifests:
            self._manifests[seq] = self._read_manifest(seq)
        return self._manifests[seq][0]

    def digest(self, seq: int) -> str | None:
        """Return the digest of a manifest's file, or None if the manifest can't be read."""
        try:
            self.manifest(seq)
        except SnapshotError:
            return None
        return self._manifests[seq][1]

    def remember(self, manifest: Manifest, data: bytes) -> None:
        """Cache a manifest that was just written."""
        self._manifests[manifest.seq] = (manifest, sha256(data).hexdigest())

    def forget(self, boundary: int) -> None:
        """Drop manifests below the boundary from the cache."""
        for seq in [seq for seq in self._manifests if seq < boundary]:
            del self._manifests[seq]

    def manifests(self) -> Iterator[Manifest]:
        """Yield the retained manifests in order, except those that a run deletes meanwhile.

        Raises:
            SnapshotCorrupt: if one is damaged or missing.
        """
        before = None
        for seq in self.sequences(self.boundary()):
            if before is not None and seq != before + 1 and self.boundary() <= before + 1:
                name = manifest_key(before + 1)
                raise SnapshotIncomplete(f"'{name}' is missing, but earlier and later ones exist", name=name)
            before = seq
            try:
                manifest = self.manifest(seq)
            except SnapshotIncomplete:
                if self.boundary() <= seq:
                    raise
                continue
            yield manifest

    def read(self, entry: FileEntry) -> bytes:
        """Read a data file.

        Raises:
            SnapshotIncomplete: if it is missing.
            SnapshotCorrupt: if it is damaged.
        """
        return read_data(self.store, self.retry, entry)

    def get(self, key: str, limit: int) -> bytes:
        """Read an object, with retries."""
        return self.retry.of(lambda: self.store.get(key, limit))

    def list(self, prefix: str) -> list[str]:
        """List a folder, with retries."""
        return self.retry.of(lambda: self.store.list(prefix))

    def _job_begun(self) -> bytes:
        """Read the job file again: another run may have created it just now."""
        try:
            return self.get(JOB, LARGEST_MANIFEST)
        except KeyMissing:
            reason = f"'{JOB}' is missing, but the job has snapshots; restore it from a backup"
            raise SnapshotIncomplete(reason, name=JOB) from None

    def _read_manifest(self, seq: int) -> tuple[Manifest, str]:
        name = manifest_key(seq)
        try:
            data = self.get(name, LARGEST_MANIFEST)
        except KeyMissing:
            raise SnapshotIncomplete(f"'{name}' is missing", name=name) from None
        manifest = Manifest.from_bytes(name, data, self.authenticator)
        problem = _mismatch(manifest, seq, self.uuid, self.name)
        if problem:
            raise SnapshotCorrupt(f"'{name}' {problem}", name=name)
        return manifest, sha256(data).hexdigest()


def _mismatch(manifest: Manifest, seq: int, uuid: str, job: str) -> str | None:
    facts: list[tuple[str, Any, Any]] = [
        ("number", manifest.seq, seq),
        ("job", manifest.job, uuid),
        ("name", manifest.name, job),
    ]
    return next((f"contains the {what} {found}; expected {due}" for what, found, due in facts if found != due), None)


def read_data(store: Store, retry: Retry, entry: FileEntry) -> bytes:
    """Read a data file, with retries.

    Raises:
        SnapshotIncomplete: if it is missing.
        SnapshotCorrupt: if it is damaged.
    """
    try:
        data = retry.of(lambda: store.get(entry.name, entry.bytes))
    except KeyMissing:
        raise SnapshotIncomplete(
            f"'{entry.name}' is missing; it had {entry.bytes} bytes, SHA-256 {entry.sha256}", name=entry.name
        ) from None
    actual = sha256(data).hexdigest()
    if len(data) != entry.bytes or actual != entry.sha256:
        size = f"more than {entry.bytes}" if len(data) > entry.bytes else f"{len(data)}"
        raise SnapshotCorrupt(
            f"'{entry.name}' is damaged: it has {size} bytes and SHA-256 {actual}; expected {entry.bytes} "
            f"bytes and SHA-256 {entry.sha256}",
            name=entry.name,
        )
    return data


def time_of(manifest: Manifest) -> datetime:
    """Return when a manifest was written, in UTC."""
    return datetime.fromisoformat(manifest.time).astimezone(UTC)


def with_time_taken(manifest_log: ManifestLog, manifest: Manifest) -> Manifest:
    """Return a manifest with the time at which its snapshot was taken; a claim repeats a snapshot at a later time.

    If the manifest of the snapshot itself has been deleted, the time stays that of the claim.
    """
    if manifest.snapshot in (0, manifest.seq) or manifest_log.digest(manifest.snapshot) is None:
        return manifest
    return replace(manifest, time=manifest_log.manifest(manifest.snapshot).time)


def candidates(manifest_log: ManifestLog, wish: Wish, numbers: list[int]) -> list[int]:
    """Return the candidate manifests: first the wanted one, then earlier ones, newest first.

    Args:
        manifest_log: the manifests of the job.
        wish: the snapshot wanted.
        numbers: the numbers of those retained, in order; at least one.

    Raises:
        SnapshotError: if there is no such snapshot.
    """
    if isinstance(wish, datetime):
        return _at(manifest_log, wish, numbers)
    if not isinstance(wish, int):
        return numbers[::-1]
    contents = {seq: manifest_log.manifest(seq).snapshot if manifest_log.digest(seq) else seq for seq in numbers}
    if not wish or wish not in contents.values():
        known = sorted(set(contents.values()) - {0})
        raise SnapshotError(f"job '{manifest_log.name}' has no snapshot with the id {wish}; it has {known}")
    before = [seq for seq in numbers if contents[seq] <= wish]
    return sorted(before, key=lambda seq: (contents[seq], manifest_log.digest(seq) is not None, seq), reverse=True)


def _at(manifest_log: ManifestLog, at: datetime, numbers: list[int]) -> list[int]:
    """Return the manifests from the one that was the newest at a point in time.

    A damaged one directly after that may have been it, so it comes first: a strict reader then raises.
    """
    first = len(numbers)
    time = None
    for index in range(len(numbers) - 1, -1, -1):
        if manifest_log.digest(numbers[index]) is None:
            continue
        manifest = manifest_log.manifest(numbers[index])
        time = time_of(manifest)
        if time <= at and not manifest.snapshot:
            break
        if time <= at:
            return numbers[:first][::-1]
        first = index
    known = "an unknown time" if time is None else time.isoformat()
    raise SnapshotError(
        f"job '{manifest_log.name}' has no snapshot at or before {at.isoformat()}; "
        + (f"it began with empty state at {known}" if time and time <= at else f"the oldest one retained is of {known}")
    )
