"""The commit protocol: a run claims a job, and from then on only this run can commit snapshots.

A snapshot exists if its manifest does. Manifests are numbered, and each is created exclusively. A claim is a commit
too, so the next commit of an older run finds its number taken. Unknown outcomes are resolved by reading back. Before
anything is deleted, a boundary is raised below which commits are invalid: so an old run can't reuse a number that was
deleted. After the designs of Delta Lake, Apache Iceberg and SlateDB.

After the log-structured merge-tree of O'Neil et al., 1996. Each snapshot adds a small file of changes, and a restore
reads them all. Files belong to tiers by size, and each tier is eight times the one below. When a new file would be the
eighth in its tier at the end of the chain, counting lower tiers too, all eight are merged into one; this may in turn
fill the next tier. Only files at the end are merged, since later changes replace earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from itertools import takewhile

from malflow.errors import CommitUnknown, FencedError, SnapshotError, SnapshotIncomplete, StoreError
from malflow.snapshot.protocol.manifest import (
    BOUNDARIES,
    DATA,
    JOB,
    MANIFESTS,
    WRITER,
    DataName,
    FileEntry,
    Manifest,
    StateEntry,
    boundary_key,
    manifest_key,
    number_of,
)
from malflow.snapshot.protocol.manifest_log import LARGEST_MANIFEST, ManifestLog, read_data
from malflow.snapshot.protocol.retention import FEWEST_MANIFESTS, delete_unreferenced
from malflow.store.contract import FILE_LIMIT, KeyExists, KeyMissing, Store, Transient, UnknownOutcome
from malflow.store.failpoint import failpoint
from malflow.store.retry import Retry, SystemContext

__all__ = [
    "Claim",
    "Content",
    "DataWriter",
    "claim",
    "increments_to_merge",
    "open_or_create_job",
    "retained_numbers",
]

_RACES = 100
"""Attempts to claim a job while others commit. Fewer: a busy job fails; more: a hopeless attempt takes longer."""

_NOTHING = 0
"""The number before the first manifest."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a snapshot; the fields are as in `Manifest`. Its `operators` are the states."""

    tick: int
    parallelism: int
    codec: str
    states: tuple[StateEntry, ...]
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class DataWriter:
    """Writes the data files of one commit, and reads earlier ones; can be pickled, for use in another process.

    Attributes:
        store: the store.
        retry: how long to retry.
        seq, epoch, runner: the commit's.
    """

    store: Store
    retry: Retry
    seq: int
    epoch: int
    runner: str

    @property
    def file_limit(self) -> int:
        """The most bytes of frames in a data file: what the store takes well, or `FILE_LIMIT`."""
        return getattr(self.store, "file_limit", FILE_LIMIT)

    def write(self, data: bytes) -> str:
        """Write a data file under a unique name; return the name.

        Raises:
            StoreError: if it can't be written.
        """
        last: StoreError | None = None
        for _ in self.retry.attempts():
            name = DataName(self.seq, self.epoch, self.runner, self.retry.environment.token())
            try:
                self.store.put_new(name.key, data)
            except KeyExists:
                continue  # the request was duplicated on the way, and this is the second response
            except (Transient, UnknownOutcome) as error:
                last = error
                continue
            failpoint("data-written")
            return name.key
        raise last if last is not None else StoreError("the time for retries is zero")

    def read(self, entry: FileEntry) -> bytes:
        """Read a data file of an earlier commit.

        Raises:
            SnapshotCorrupt: if it is missing or damaged.
        """
        return read_data(self.store, self.retry, entry)


def open_or_create_job(
    manifest_log: ManifestLog, environment: SystemContext, check: Callable[[], object] = bool
) -> bool:
    """Open or create the job, and return whether the store creates objects exclusively.

    To find out, the job file is created a second time: that must fail, and is harmless if it does not.

    Args:
        manifest_log: the manifests and data files of the job.
        environment: draws the job's uuid.
        check: called before a job is created; raises if it must not be.

    Raises:
        SnapshotError: if the store can't be used, or the job is incomplete.
    """
    data = manifest_log.find()
    if data is None:
        check()
        _publish(manifest_log, JOB, manifest_log.job_file(environment.token() + environment.token()))
        failpoint("job-written")
        data = manifest_log.find()
        if data is None:
            raise SnapshotIncomplete(f"'{JOB}' was just written, but can't be found", name=JOB)
    try:
        manifest_log.retry.of(lambda: manifest_log.store.put_new(JOB, data))
    except KeyExists:
        return True
    return False


def claim(
    manifest_log: ManifestLog, choose: Callable[[list[int]], Manifest | None], environment: SystemContext
) -> Claim:
    """Claim the job, resuming from the manifest that `choose` picks from the retained numbers.

    Raises:
        SnapshotError: if all manifests are missing, or the store can't be written; or any error of `choose`.
    """
    refused = _NOTHING
    for _ in range(_RACES):
        before = manifest_log.boundary()
        numbers = retained_numbers(manifest_log, before)
        if numbers is None:
            continue
        try:
            head = _first(manifest_log, choose(numbers), numbers[-1] if numbers else _NOTHING, environment)
        except StoreError:
            raise
        except SnapshotError:
            if manifest_log.boundary() == before:
                raise
            continue  # the missing object was deleted meanwhile
        data = head.to_bytes(manifest_log.authenticator)
        if not _publish(manifest_log, manifest_key(head.seq), data):
            refused = head.seq
            continue
        failpoint("claimed")
        if manifest_log.boundary() >= head.seq:
            continue  # other runs have already claimed and deleted this number
        manifest_log.remember(head, data)
        return Claim(manifest_log, head, environment)
    if refused and manifest_log.boundary() < refused and manifest_key(refused) not in manifest_log.list(MANIFESTS):
        raise SnapshotError(
            f"job '{manifest_log.name}' could not be claimed: '{manifest_key(refused)}' exists, but the store does not "
            "list it; check the spelling of the URL, and whether this user may list objects"
        )
    raise SnapshotError(
        f"job '{manifest_log.name}' could not be claimed: other runs committed to it during each of {_RACES} attempts"
    )


def retained_numbers(manifest_log: ManifestLog, boundary: int) -> list[int] | None:
    """Return the numbers of the retained manifests, in order; None if another run has just created the job.

    Args:
        manifest_log: the manifests of the job.
        boundary: the number below which manifests are not valid.

    Raises:
        SnapshotIncomplete: if all manifests are missing, but the job has other files.
    """
    numbers = manifest_log.sequences(boundary)
    if numbers or not any(manifest_log.list(folder) for folder in (DATA, BOUNDARIES)):
        return numbers
    if manifest_log.sequences(_NOTHING):
        return None
    raise SnapshotIncomplete(
        f"all manifests of job '{manifest_log.name}' are missing, but other files of it exist; restore them "
        "from a backup, or choose another job= to start from empty state",
        name=MANIFESTS,
    )


# Invariant: a number belongs to the run that created its manifest, and each run creates the next number only. So two
# runs can't both commit after the same manifest.
#
# Example: run A is alive but unreachable, and run B takes its place.
#   A claims           creates manifest 7; its epoch is 7
#   A commits          creates 8, then 9
#   B claims           resumes from 9, and creates 10; its epoch is 10
#   A commits again    tries to create 10, finds B's manifest, and stops with `FencedError`
class Claim:
    """A run's exclusive right to commit to a job, until another run claims it: a fencing token.

    Attributes:
        head: the latest manifest committed under the claim; `head.epoch` is the token's number.
    """

    def __init__(self, manifest_log: ManifestLog, head: Manifest, environment: SystemContext) -> None:
        self.head = head
        self._manifest_log = manifest_log
        self._environment = environment
        self._process = environment.process()
        self._lost: SnapshotError | None = None

    def writer(self) -> DataWriter:
        """Return a writer of data files for the next commit."""
        self._check_process()
        return _writer(self._manifest_log, replace(self.head, seq=self.head.seq + 1))

    def commit(self, content: Content) -> Manifest:
        """Commit a snapshot with this content.

        Raises:
            FencedError: if another run has claimed the job.
            SnapshotIncomplete: if the store has lost this run's last snapshot; nothing was committed.
            CommitUnknown: if the outcome is unknown; nothing more can be committed under this claim.
            StoreError: if it was not committed; the commit may be retried.
        """
        self._check_process()
        if self._lost is not None:
            raise self._lost
        seq = self.head.seq + 1
        manifest = replace(
            self.head,
            seq=seq,
            snapshot=seq,
            parent=self._manifest_log.digest(self.head.seq),
            attempt=self._environment.token(),
            time=self._environment.now().isoformat(),
            writer=WRITER,
            tick=content.tick,
            parallelism=content.parallelism,
            codec=content.codec,
            operators=content.states,
            files=content.files,
        )
        data = manifest.to_bytes(self._manifest_log.authenticator)
        failpoint("before-manifest")
        try:
            self._check_head()
            if not _publish(self._manifest_log, manifest_key(seq), data):
                raise self._fenced(manifest_key(seq))
            failpoint("manifest-written")
            self._check_boundary(seq)
        except (FencedError, SnapshotIncomplete, CommitUnknown) as error:
            self._lost = error
            raise
        self._manifest_log.remember(manifest, data)
        self.head = manifest
        return manifest

    def check(self) -> None:
        """Check that no other run has claimed the job, and that the store still has this run's last snapshot.

        Raises:
            FencedError: if another run has.
            SnapshotIncomplete: if the store has lost it.
        """
        self._check_process()
        if self._lost is None:
            numbers = self._manifest_log.sequences(_NOTHING)
            if numbers and numbers[-1] > self.head.seq:
                self._lost = self._fenced(manifest_key(next(seq for seq in numbers if seq > self.head.seq)))
            elif self.head.seq not in numbers:
                self._lost = self._without_head()
        if self._lost is not None:
            raise self._lost

    def delete_unreferenced(self, retain: int | timedelta) -> None:
        """Delete the snapshots that are not retained, and the files that no retained one refers to.

        Raises:
            StoreError: if something could not be deleted; the next call retries it.
        """
        self._check_process()
        delete_unreferenced(self._manifest_log, self.head.seq, retain)

    def _check_head(self) -> None:
        """Check that the store still has the last manifest of this run: it may have been put back to an older copy.

        Files of a later snapshot would refer to lost data, and nothing could be restored from it.
        """
        key = manifest_key(self.head.seq)
        try:
            found = self._manifest_log.get(key, LARGEST_MANIFEST)
        except KeyMissing:
            raise self._without_head() from None
        if sha256(found).hexdigest() == self._manifest_log.digest(self.head.seq):
            return
        try:
            other = Manifest.from_bytes(key, found, self._manifest_log.authenticator)
        except SnapshotError:
            return  # damaged, which harms nobody: the next manifest lists all files itself
        if other.attempt != self.head.attempt:
            raise self._fenced(key, other)

    def _without_head(self) -> SnapshotError:
        """Return the error of a store that no longer has the last manifest of this run."""
        key, boundary = manifest_key(self.head.seq), self._manifest_log.boundary()
        if boundary > self.head.seq:
            return self._fenced(boundary_key(boundary))
        return SnapshotIncomplete(
            f"the store of job '{self._manifest_log.name}' has lost '{key}', this run's last; it was put back to an "
            "older copy, or files were deleted; this run writes nothing further, and the next start continues from the "
            "newest snapshot that is left",
            name=key,
        )

    def _check_boundary(self, seq: int) -> None:
        try:
            boundary = self._manifest_log.boundary()
        except StoreError as error:
            raise CommitUnknown(
                f"snapshot {seq} was written, but whether it is valid could not be determined: {error}"
            ) from error
        if boundary >= seq:
            raise self._fenced(boundary_key(boundary))

    def _check_process(self) -> None:
        if self._environment.process() != self._process:
            raise FencedError("this process was forked from the one that runs the job; only its parent may commit")

    def _fenced(self, key: str, other: Manifest | None = None) -> FencedError:
        reason = f"job '{self._manifest_log.name}' was claimed by another run"
        with suppress(SnapshotError, KeyMissing):
            other = other or self._manifest_log.manifest(number_of(key) or _NOTHING)
            reason += f", {other.runner} at {other.time}"
        return FencedError(
            f"{reason}, which wrote '{key}'; this run stops, and its work since its last snapshot is discarded"
        )


def _first(manifest_log: ManifestLog, chosen: Manifest | None, newest: int, environment: SystemContext) -> Manifest:
    """Return the manifest of a claim; its number becomes the epoch."""
    seq = newest + 1
    facts = {
        "seq": seq,
        "epoch": seq,
        "runner": environment.token(),
        "attempt": environment.token(),
        "parent": manifest_log.digest(newest) if newest else None,
        "time": environment.now().isoformat(),
        "writer": WRITER,
    }
    if chosen is not None:
        head = replace(chosen, **facts)  # type: ignore[arg-type] # values have their fields' types
        # A run that is still deleting may delete older files, if only old manifests refer to them.
        return head if chosen.seq > newest - FEWEST_MANIFESTS else _with_copies(manifest_log, head)
    empty = {"snapshot": _NOTHING, "tick": 0, "parallelism": 0, "codec": "", "operators": (), "files": ()}
    return Manifest(job=manifest_log.uuid, name=manifest_log.name, **facts, **empty)  # type: ignore[arg-type] # values have their fields' types


def _with_copies(manifest_log: ManifestLog, head: Manifest) -> Manifest:
    """Return the manifest with copies of its files. The copies belong to this claim."""
    writer = _writer(manifest_log, head)
    copies = [writer.write(manifest_log.read(entry)) for entry in head.files]
    files = tuple(replace(entry, name=name) for entry, name in zip(head.files, copies, strict=True))
    return replace(head, files=files)


def _writer(manifest_log: ManifestLog, manifest: Manifest) -> DataWriter:
    return DataWriter(manifest_log.store, manifest_log.retry, manifest.seq, manifest.epoch, manifest.runner)


def _publish(manifest_log: ManifestLog, key: str, data: bytes) -> bool:
    """Create an object for which runs may race; return whether this run's object is there now.

    Raises:
        CommitUnknown: if the outcome is unknown.
        StoreError: if it was not and will not be written.
    """
    doubt: StoreError | None = None
    for _ in manifest_log.retry.attempts():
        try:
            manifest_log.store.put_new(key, data)
        except KeyExists:
            with suppress(KeyMissing):  # deleted in between
                return _is_ours(manifest_log, key, data)
            continue
        except Transient:
            continue
        except UnknownOutcome as error:
            doubt = error
            with suppress(KeyMissing):
                return _is_ours(manifest_log, key, data)
            continue
        except StoreError as error:
            if doubt is None:
                raise
            raise _unknown(key, error) from error
        return True
    if doubt is None:
        raise StoreError(f"'{key}' could not be written after {manifest_log.retry.seconds:g} seconds of retries")
    raise _unknown(key, doubt) from doubt


def _is_ours(manifest_log: ManifestLog, key: str, data: bytes) -> bool:
    """Whether the object holds these bytes. They contain the id of the attempt."""
    try:
        return manifest_log.get(key, LARGEST_MANIFEST) == data
    except StoreError as error:
        raise _unknown(key, error) from error


def _unknown(key: str, error: StoreError) -> CommitUnknown:
    return CommitUnknown(
        f"the store did not confirm whether '{key}' was written: {error}; the run stops, and the next one will know"
    )


_TIER = 8
"""The growth of tiers. Half: fewer files to restore, more rewriting; double: more files, less rewriting."""

_SMALLEST_TIER = 4096
"""Bytes of the lowest tier: smaller files cost as much as it does. The value only shifts the tiers."""

_LARGEST_COMPACTED = 8 << 20
"""Bytes from which an increment is not rewritten. Less: more files; more: longer snapshots."""


def increments_to_merge(files: Sequence[FileEntry], size: int) -> Sequence[FileEntry]:
    """Return the files at the end of a snapshot to be merged into the next one.

    Each tier holds files `_TIER` times as large as the tier below, and retains fewer than `_TIER` of them. So a byte is
    rewritten at most once per tier.

    Args:
        files: the files of the latest snapshot.
        size: the size of the next file, in bytes.
    """
    chain = files
    while True:
        run = _last_of_tier(chain, _tier(size))
        if len(run) < _TIER - 1:
            break
        chain = chain[: -len(run)]
        size += sum(entry.bytes for entry in run)
    return files[len(chain) :]


def _last_of_tier(chain: Sequence[FileEntry], tier: int) -> list[FileEntry]:
    """Return the increments at the end of the chain with this tier at most."""
    return list(
        takewhile(
            lambda entry: not entry.base and entry.bytes < _LARGEST_COMPACTED and _tier(entry.bytes) <= tier,
            reversed(chain),
        )
    )


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST_TIER:
        size //= _TIER
        tier += 1
    return tier
