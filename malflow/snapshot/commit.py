"""The commit protocol: a run claims a job, and then commits snapshots that no other run can.

A snapshot exists when its manifest does; manifests are numbered, and each is created where none is. A claim is a commit
too, so the next commit of an older run finds its number taken. Unknown outcomes are read back, never guessed. Before
anything is deleted a boundary is raised, and a commit below it does not count: so an old run can't use a number again
that was collected. After the designs of Delta Lake, Apache Iceberg and SlateDB.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from malflow.errors import CommitUnknown, FencedError, SnapshotError, SnapshotIncomplete, StoreError
from malflow.snapshot.layout import (
    BOUNDARIES,
    DATA,
    JOB,
    MANIFESTS,
    DataName,
    boundary_key,
    highest,
    manifest_key,
    number_of,
    sequence_of_target,
)
from malflow.snapshot.manifest import WRITER, FileEntry, Manifest, OperatorEntry
from malflow.snapshot.manifest_log import LARGEST_MANIFEST, Archive
from malflow.store.contract import KeyExists, KeyMissing, Store, Transient, UnknownOutcome
from malflow.store.failpoint import failpoint
from malflow.store.retry import Environment, Retry

__all__ = ["Claim", "Content", "DataWriter", "claim", "establish"]

_FEWEST_MANIFESTS = 3
_MOST_CLAIMS = 64
"""So many claims without a snapshot between them (a crash loop) may pass before they push out old snapshots."""

_RACES = 100
_NOTHING = 0


@dataclass(frozen=True, slots=True)
class Content:
    """What a snapshot holds; the fields are those of `Manifest`."""

    tick: int
    parallelism: int
    codec: str
    operators: tuple[OperatorEntry, ...]
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class DataWriter:
    """Writes data files of one commit, in whatever process; a pickle of it has what the store needs to be opened.

    Attributes:
        store: where to.
        retry: how often.
        seq, epoch, runner: those of the commit.
    """

    store: Store
    retry: Retry
    seq: int
    epoch: int
    runner: str

    def write(self, data: bytes) -> str:
        """Write a data file under a name that was never used; give the name.

        Raises:
            StoreError: if it can't be written.
        """
        last: StoreError | None = None
        for _ in self.retry.attempts():
            name = DataName(self.seq, self.epoch, self.runner, self.retry.environment.token())
            try:
                self.store.put_new(name.key, data)
            except KeyExists:
                continue  # it was sent twice by something in between, and the second answer came
            except (Transient, UnknownOutcome) as error:
                last = error
                continue
            failpoint("data-written")
            return name.key
        raise last if last is not None else StoreError("there was no time to write")


def establish(archive: Archive, environment: Environment, check: Callable[[], object] = bool) -> bool:
    """Find the job, or begin it, and tell whether the store keeps two runs from creating the same object.

    That is found out by creating the job's file once more, which must fail and would change nothing if it did not.

    Args:
        archive: the job's place.
        environment: makes the job's uuid.
        check: raises if no job may begin there; only called if there is none.

    Raises:
        SnapshotError: if the store can't be used, or what lies there is not whole.
    """
    data = archive.find()
    if data is None:
        check()
        _publish(archive, JOB, archive.job_file(environment.token() + environment.token()))
        failpoint("job-written")
        data = archive.find()
        if data is None:
            raise SnapshotIncomplete(f"'{JOB}' was just written and is not there", name=JOB)
    try:
        archive.retry.of(lambda: archive.store.put_new(JOB, data))
    except KeyExists:
        return True
    return False


def claim(archive: Archive, choose: Callable[[list[int]], Manifest | None], environment: Environment) -> Claim:
    """Claim the job, going on from the snapshot that `choose` picks from the numbers of what is retained.

    Raises:
        SnapshotError: if there are snapshots but no manifest, or the store can't be written; or what `choose` raises.
    """
    refused = _NOTHING
    for _ in range(_RACES):
        before = archive.boundary()
        numbers = archive.sequences(before)
        if not numbers and any(archive.list(folder) for folder in (DATA, BOUNDARIES)):
            if archive.sequences(_NOTHING):
                continue  # another run has begun the job in between
            raise SnapshotIncomplete(
                f"all manifests of job '{archive.name}' are missing, while other files of it are there; put them back "
                "from a backup, or give the job another name to start from nothing",
                name=MANIFESTS,
            )
        try:
            head = _first(archive, choose(numbers), numbers[-1] if numbers else _NOTHING, environment)
        except StoreError:
            raise
        except SnapshotError:
            if archive.boundary() == before:
                raise
            continue  # what was not found was collected meanwhile
        data = head.to_bytes(archive.seal)
        if not _publish(archive, manifest_key(head.seq), data):
            refused = head.seq
            continue
        failpoint("claimed")
        if archive.boundary() >= head.seq:
            continue  # other runs have claimed and collected this number already
        archive.remember(head, data)
        return Claim(archive, head, environment)
    if refused and archive.boundary() < refused and manifest_key(refused) not in archive.list(MANIFESTS):
        raise SnapshotError(
            f"job '{archive.name}' could not be claimed: '{manifest_key(refused)}' is there, and the store's listing "
            "does not show it; look at the spelling of the place, and at whether this user may list it"
        )
    raise SnapshotError(
        f"job '{archive.name}' could not be claimed: other runs went on committing to it {_RACES} times in between"
    )


class Claim:
    """A run's right to commit to a job, until another run claims it.

    Attributes:
        head: the last manifest that was committed.
    """

    def __init__(self, archive: Archive, head: Manifest, environment: Environment) -> None:
        self.head = head
        self._archive = archive
        self._environment = environment
        self._process = environment.process()
        self._lost: SnapshotError | None = None

    def writer(self) -> DataWriter:
        """Give what writes data files for the next commit."""
        self._check_process()
        return _writer(self._archive, replace(self.head, seq=self.head.seq + 1))

    def commit(self, content: Content) -> Manifest:
        """Make a snapshot of it.

        Raises:
            FencedError: if another run has claimed the job.
            CommitUnknown: if the store never told; nothing more may be committed under this claim.
            StoreError: if it was not committed; it may be tried again.
        """
        self._check_process()
        if self._lost is not None:
            raise self._lost
        seq = self.head.seq + 1
        manifest = replace(
            self.head,
            seq=seq,
            snapshot=seq,
            parent=self._archive.digest(self.head.seq),
            attempt=self._environment.token(),
            time=self._environment.now().isoformat(),
            writer=WRITER,
            tick=content.tick,
            parallelism=content.parallelism,
            codec=content.codec,
            operators=content.operators,
            files=content.files,
        )
        data = manifest.to_bytes(self._archive.seal)
        failpoint("before-manifest")
        try:
            if not _publish(self._archive, manifest_key(seq), data):
                raise self._fenced(manifest_key(seq))
            failpoint("manifest-written")
            self._check_boundary(seq)
        except (FencedError, CommitUnknown) as error:
            self._lost = error
            raise
        self._archive.remember(manifest, data)
        self.head = manifest
        return manifest

    def check(self) -> None:
        """Look whether the job is still this run's.

        Raises:
            FencedError: if another run has claimed it.
        """
        self._check_process()
        if self._lost is None:
            later = [seq for seq in self._archive.sequences(_NOTHING) if seq > self.head.seq]
            if later:
                self._lost = self._fenced(manifest_key(later[0]))
        if self._lost is not None:
            raise self._lost

    def collect(self, retain: int) -> None:
        """Delete what is no longer retained: raise the boundary, then delete what lies below it and is not needed.

        Raises:
            StoreError: if something could not be deleted; the next call finds it again.
        """
        self._check_process()
        archive = self._archive
        before = archive.boundary()
        boundary = self._new_boundary(retain, archive.sequences(before))
        if boundary > before:
            with suppress(KeyExists):
                archive.retry.of(lambda: archive.store.put_new(boundary_key(boundary), b"boundary"))
            failpoint("boundary-raised")
        marks, manifests = archive.list(BOUNDARIES), archive.list(MANIFESTS)
        boundary = highest(marks)
        needed = self._needed([seq for key in manifests if (seq := number_of(key)) is not None and seq >= boundary])
        dead = [key for key in [*manifests, *marks] if _is_below(key, boundary)]
        if needed is not None:
            dead += [key for key in archive.list(DATA) if _is_below(key, boundary) and key not in needed]
            for folder in (MANIFESTS, DATA, BOUNDARIES):
                archive.store.sweep(folder, lambda key: _is_below(key, boundary))
        for key in dead:
            archive.retry.of(lambda key=key: archive.store.delete(key))  # type: ignore[misc] # mypy knows no defaults
            failpoint("collected")
        archive.forget(boundary)

    def _new_boundary(self, retain: int, numbers: list[int]) -> int:
        """Find the number of the oldest snapshot to be retained."""
        archive = self._archive
        contents: set[int] = set()
        oldest = self.head.seq
        for seq in reversed(numbers):
            if self.head.seq - seq >= retain + _MOST_CLAIMS:
                break
            try:
                contents.add(archive.manifest(seq).snapshot)
            except StoreError:
                raise
            except SnapshotError:
                contents.add(seq)  # it can't be read, so it counts as one of its own
            if len(contents - {_NOTHING}) > retain:
                break
            oldest = seq
        return max(_NOTHING, min(oldest, self.head.seq + 1 - _FEWEST_MANIFESTS))

    def _needed(self, numbers: list[int]) -> set[str] | None:
        """Name the data files of these manifests; None if one of them can't be read, so that nobody knows."""
        try:
            manifests = [self._archive.manifest(seq) for seq in numbers]
        except StoreError:
            raise
        except SnapshotError:
            return None
        return {entry.name for manifest in manifests for entry in manifest.files}

    def _check_boundary(self, seq: int) -> None:
        try:
            boundary = self._archive.boundary()
        except StoreError as error:
            raise CommitUnknown(
                f"snapshot {seq} was written, but whether it counts could not be read: {error}"
            ) from error
        if boundary >= seq:
            raise self._fenced(boundary_key(boundary))

    def _check_process(self) -> None:
        if self._environment.process() != self._process:
            raise FencedError("this process was forked from the one that runs the job; only that one may commit")

    def _fenced(self, key: str) -> FencedError:
        reason = f"job '{self._archive.name}' was claimed by another run"
        seq = number_of(key)
        with suppress(SnapshotError, KeyMissing):
            other = self._archive.manifest(seq or _NOTHING)
            reason += f", {other.runner} at {other.time}"
        return FencedError(f"{reason}: '{key}' is its; this run stops, and what it did since its last snapshot is void")


def _first(archive: Archive, chosen: Manifest | None, newest: int, environment: Environment) -> Manifest:
    """Make the manifest of a claim; the number of the claim is its epoch."""
    seq = newest + 1
    facts = {
        "seq": seq,
        "epoch": seq,
        "runner": environment.token(),
        "attempt": environment.token(),
        "parent": archive.digest(newest) if newest else None,
        "time": environment.now().isoformat(),
        "writer": WRITER,
    }
    if chosen is not None:
        head = replace(chosen, **facts)  # type: ignore[arg-type] # each of its field's type
        # A run that is still collecting may delete what is older, as long as no manifest but old ones names it.
        return head if chosen.seq > newest - _FEWEST_MANIFESTS else _with_copies(archive, head)
    empty = {"snapshot": _NOTHING, "tick": 0, "parallelism": 0, "codec": "", "operators": (), "files": ()}
    return Manifest(job=archive.uuid, name=archive.name, **facts, **empty)  # type: ignore[arg-type] # each of its field's type


def _with_copies(archive: Archive, head: Manifest) -> Manifest:
    """Have a manifest name files of its own, in place of those whose content it carries."""
    writer = _writer(archive, head)
    copies = [writer.write(archive.read(entry)) for entry in head.files]
    files = tuple(replace(entry, name=name) for entry, name in zip(head.files, copies, strict=True))
    return replace(head, files=files)


def _writer(archive: Archive, manifest: Manifest) -> DataWriter:
    return DataWriter(archive.store, archive.retry, manifest.seq, manifest.epoch, manifest.runner)


def _publish(archive: Archive, key: str, data: bytes) -> bool:
    """Create an object that others may want to create too: True if it is ours now, False if it is another's.

    Raises:
        CommitUnknown: if the store never told.
        StoreError: if it was not and will not be written.
    """
    doubt: StoreError | None = None
    for _ in archive.retry.attempts():
        try:
            archive.store.put_new(key, data)
        except KeyExists:
            with suppress(KeyMissing):  # then it was collected, just now
                return _is_ours(archive, key, data)
            continue
        except Transient:
            continue
        except UnknownOutcome as error:
            doubt = error
            with suppress(KeyMissing):
                return _is_ours(archive, key, data)
            continue
        except StoreError as error:
            if doubt is None:
                raise
            raise _unknown(key, error) from error
        return True
    if doubt is None:
        raise StoreError(f"'{key}' could not be written in {archive.retry.seconds:g} seconds of trying")
    raise _unknown(key, doubt) from doubt


def _is_ours(archive: Archive, key: str, data: bytes) -> bool:
    """Recognise what was written by the attempt inside it."""
    try:
        return archive.get(key, LARGEST_MANIFEST) == data
    except StoreError as error:
        raise _unknown(key, error) from error


def _unknown(key: str, error: StoreError) -> CommitUnknown:
    return CommitUnknown(
        f"the store did not tell whether '{key}' was written: {error}; the run stops, the next one finds out"
    )


def _is_below(key: str, boundary: int) -> bool:
    seq = sequence_of_target(key)
    return seq is not None and seq < boundary
