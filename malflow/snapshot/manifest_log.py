"""A job's objects in a store, read with suspicion."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from malflow.errors import SnapshotCorrupt, SnapshotError, SnapshotIncomplete
from malflow.snapshot.layout import BOUNDARIES, DATA, JOB, MANIFESTS, highest, is_data_key, manifest_key, number_of
from malflow.snapshot.manifest import FileEntry, Manifest, Seal, seal, unseal
from malflow.store.contract import KeyMissing, Store
from malflow.store.retry import Retry

__all__ = ["LARGEST_MANIFEST", "Archive"]

LARGEST_MANIFEST = 64 << 20


class Archive:
    """Everything that is kept of one job. Whatever is read is checked first; nothing is changed here.

    Args:
        store: where it lies.
        name: the job's name.
        seal: signs, and checks signatures.
        retry: how long to try.
    """

    def __init__(self, store: Store, name: str, seal_with: Seal, retry: Retry) -> None:
        self.store = store
        self.name = name
        self.seal = seal_with
        self.retry = retry
        self.uuid = ""
        self._manifests: dict[int, tuple[Manifest, str]] = {}

    def find(self) -> bytes | None:
        """Find out which job this is: give its file as it is, or None where there is no job yet.

        Raises:
            SnapshotIncomplete: if its file is missing while others are there.
            SnapshotCorrupt: if the file is damaged, or is that of another job, copied here.
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
                    f"job '{self.name}' can't begin: another job is in its folder, at '{inner.removesuffix(JOB)}'; two "
                    "jobs need folders side by side: choose another job= or another place for one of them"
                ) from None
            data = self._job_begun()
        body = unseal(JOB, data, None)
        uuid, name = body.get("job"), body.get("name")
        if not isinstance(uuid, str) or set(body) != {"job", "name"}:
            raise SnapshotCorrupt(f"'{JOB}' is not the file of a job: {sorted(body)}", name=JOB)
        if name != self.name:
            raise SnapshotCorrupt(
                f"'{JOB}' is that of job '{name}', copied into the folder of job '{self.name}'; two jobs can't share "
                f"snapshots; rename the folder to '{name}', or give job= a name of its own",
                name=JOB,
            )
        self.uuid = uuid
        return data

    def job_file(self, uuid: str) -> bytes:
        """Make the file of a new job. It is not signed, as it outlives keys; what is signed says both again."""
        return seal({"job": uuid, "name": self.name}, None)

    def boundary(self) -> int:
        """Give the number below which nothing counts any more."""
        return highest(self.list(BOUNDARIES))

    def sequences(self, boundary: int) -> list[int]:
        """Give the numbers of all manifests from the boundary on, in their order."""
        numbers = (number_of(key) for key in self.list(MANIFESTS))
        return sorted(number for number in numbers if number is not None and number >= boundary)

    def manifest(self, seq: int) -> Manifest:
        """Read a manifest.

        Raises:
            SnapshotIncomplete: if it is not there.
            SnapshotCorrupt: if it is not what was written.
            SnapshotError: if a newer malflow wrote it.
        """
        if seq not in self._manifests:
            self._manifests[seq] = self._read_manifest(seq)
        return self._manifests[seq][0]

    def digest(self, seq: int) -> str | None:
        """Give the digest of a manifest's file, or None where it can't be read."""
        try:
            self.manifest(seq)
        except SnapshotError:
            return None
        return self._manifests[seq][1]

    def remember(self, manifest: Manifest, data: bytes) -> None:
        """Keep a manifest at hand that was just written."""
        self._manifests[manifest.seq] = (manifest, sha256(data).hexdigest())

    def forget(self, boundary: int) -> None:
        """Let go of the manifests below the boundary."""
        for seq in [seq for seq in self._manifests if seq < boundary]:
            del self._manifests[seq]

    def manifests(self) -> Iterator[Manifest]:
        """Read all retained manifests, in their order; without those that a run deletes meanwhile.

        Raises:
            SnapshotCorrupt: if one is not what was written, or lacks.
        """
        before = None
        for seq in self.sequences(self.boundary()):
            if before is not None and seq != before + 1 and self.boundary() <= before + 1:
                name = manifest_key(before + 1)
                raise SnapshotIncomplete(f"'{name}' is missing, while earlier and later ones are there", name=name)
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
            SnapshotIncomplete: if it is not there.
            SnapshotCorrupt: if it is not what was written.
        """
        try:
            data = self.get(entry.name, entry.bytes)
        except KeyMissing:
            raise SnapshotIncomplete(
                f"'{entry.name}' is missing; it had {entry.bytes} bytes, SHA-256 {entry.sha256}", name=entry.name
            ) from None
        actual = sha256(data).hexdigest()
        if len(data) != entry.bytes or actual != entry.sha256:
            size = f"more than {entry.bytes}" if len(data) > entry.bytes else f"{len(data)}"
            raise SnapshotCorrupt(
                f"'{entry.name}' is damaged: it has {size} bytes with SHA-256 {actual}; written were {entry.bytes} "
                f"with SHA-256 {entry.sha256}",
                name=entry.name,
            )
        return data

    def get(self, key: str, limit: int) -> bytes:
        """Read an object, trying again while the store is not well."""
        return self.retry.of(lambda: self.store.get(key, limit))

    def list(self, prefix: str) -> list[str]:
        """List a folder, trying again while the store is not well."""
        return self.retry.of(lambda: self.store.list(prefix))

    def _job_begun(self) -> bytes:
        """Read the job's file, which another run may have written just now."""
        try:
            return self.get(JOB, LARGEST_MANIFEST)
        except KeyMissing:
            reason = f"'{JOB}' is missing, while snapshots of the job are there; put it back from a backup"
            raise SnapshotIncomplete(reason, name=JOB) from None

    def _read_manifest(self, seq: int) -> tuple[Manifest, str]:
        name = manifest_key(seq)
        try:
            data = self.get(name, LARGEST_MANIFEST)
        except KeyMissing:
            raise SnapshotIncomplete(f"'{name}' is missing", name=name) from None
        manifest = Manifest.from_bytes(name, data, self.seal)
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
    return next((f"has the {what} {found} inside; expected {due}" for what, found, due in facts if found != due), None)
