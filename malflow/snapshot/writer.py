"""The snapshots of one run: changes are captured between ticks and written in the background."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from malflow.errors import (
    CommitUnknown,
    FencedError,
    OperatorError,
    RunFailed,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotIncomplete,
    StoreError,
)
from malflow.snapshot.codecs.classes import script_name
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.codecs.shapes import MAIN, Finding, Kept, Shape, in_script
from malflow.snapshot.compression import Compression
from malflow.snapshot.files.data_file import Section, pack
from malflow.snapshot.files.sections import (
    Found,
    Written,
    bare_sections,
    finding,
    merge_files,
    sections_of,
    with_frame,
    write_file,
)
from malflow.snapshot.persistence import RestoredState
from malflow.snapshot.protocol.commit import Claim, Content, DataWriter, increments_to_merge
from malflow.snapshot.protocol.manifest import FileEntry, StateEntry
from malflow.snapshot.sizes import Sizes, StateSize
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind, StateSpec
from malflow.words import error_line

if TYPE_CHECKING:
    from malflow.snapshot.executors import Executor
    from malflow.snapshot.protocol.manifest_log import ManifestLog
    from malflow.store.retry import SystemContext

__all__ = ["Limits", "SnapshotSession"]

_log = logging.getLogger("malflow.snapshot")

T = TypeVar("T")

Merge: TypeAlias = Callable[[DataWriter, Sequence[FileEntry]], list[FileEntry] | None]
"""Merges files into others; returns None if that is not possible."""

_IN_MAIN = (
    "operator '%s' keeps objects of class %s, which is defined in the script that runs: another program that reads "
    "them finds the class only where it has imported %s; define it in a module that both import, or use codec="
    "MsgpackCodec({'name': %s})"
)

_FIRST_RETRY = 1.0
"""Seconds to the first retry; each pause is twice the one before. Less: more load on a failing store; more: delay."""

_LONGEST_RETRY = 60.0
"""The longest pause between retries. Less: more load during an outage; more: a later snapshot after it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of retention, growth and failures.

    Attributes:
        retain: the number of snapshots to retain, or for how long.
        growth: the size of all increments, as a multiple of the base, above which a new base is written.
        tolerance: the number of seconds that snapshots may keep failing before the run ends.
        compression: the compression of frames.
    """

    retain: int | timedelta
    growth: float
    tolerance: float
    compression: Compression


class SnapshotSession:
    """Serialises deltas to sections, and commits them as one snapshot after the other.

    Sections that could not be written go into the next snapshot. No change is thus lost.
    """

    def __init__(
        self,
        manifest_log: ManifestLog,
        claim: Claim,
        codec: Codec,
        executor: Executor,
        environment: SystemContext,
        limits: Limits,
        *,
        restored: RestoredState | None,
        fresh_base: bool,
    ) -> None:
        self._manifest_log = manifest_log
        self._claim = claim
        self._codec = codec
        self._executor = executor
        self._environment = environment
        self._limits = limits
        self._must_base = fresh_base
        self._keys: dict[tuple[int, str], int] = {}
        for name, by_worker in ({} if restored is None else restored.states).items():
            self._keys.update({(worker, name): len(states) for worker, states in by_worker.items()})
        self._shapes = Kept({entry.name: entry.shapes for entry in claim.head.operators}, claim.head.parallelism)
        self._warned = False
        self._sizes = Sizes()
        self._usual: dict[tuple[int, str], float] = {}
        if restored is not None:
            self._sizes.note_keys({entry.name: entry.keys for entry in claim.head.operators})
        self._are_files_shared = False
        self._unwritten: list[Section] = []
        self._unwritten_base = False
        self._base_is_due: bool | None = None
        self._captured_at = claim.head.parallelism
        self._last: Future[int] | None = None
        self._fatal: SnapshotError | RunFailed | OperatorError | None = None
        self._failing_since: float | None = None
        self._backoff = _FIRST_RETRY
        self._retry_at: float | None = None
        self._pause: float | None = None
        self._process = environment.process()

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still being written."""
        return self._last is not None and not self._last.done()

    @property
    def wants_retry(self) -> bool:
        """Whether the last snapshot failed and a retry is due; the pauses grow from one second."""
        retry_at = self._retry_at
        return retry_at is not None and not self.is_busy and self._environment.monotonic() >= retry_at

    @property
    def retry_after(self) -> float | None:
        """The seconds from the last snapshot, if it failed, to the next attempt, or None."""
        return self._pause

    def needs_full_snapshot(self, parallelism: int) -> bool:
        """Whether there is no suitable base, or the increments have outgrown it.

        The next commit relies on this answer, even if a snapshot has been written in between.
        """
        head = self._claim.head
        base = sum(entry.bytes for entry in head.files if entry.base)
        increments = sum(entry.bytes for entry in head.files if not entry.base)
        increments += sum(len(section.frame) for section in self._unwritten)
        self._base_is_due = (
            self._must_base
            or not base
            or {head.parallelism, self._captured_at} != {parallelism}
            or head.codec != self._codec.name
            or increments > self._limits.growth * base
        )
        return self._base_is_due

    def commit(
        self,
        tick: int,
        parallelism: int,
        states: Sequence[StateSpec],
        deltas: Iterable[StateDelta],
    ) -> Future[int]:
        """Serialise the changes, and write them in the background."""
        self.check()
        base = self.needs_full_snapshot(parallelism) if self._base_is_due is None else self._base_is_due
        self._base_is_due = None
        self._captured_at = parallelism
        versions = {spec.name: spec.version for spec in states}
        sections: list[Future[Section]] = []
        if base:
            self._keys.clear()
            self._shapes.clear()
        for worker, name, delta, count in deltas:
            self._keys[worker, name] = count
            found = Found(usual=self._usual.get((worker, name), 0.0))
            sections.extend(self._capture(worker, name, versions[name], delta, found))
            self._note(self._shapes, [finding(self._codec, worker, name, delta, found)])
            self._usual[worker, name] = found.usual
        keys: Counter[str] = Counter()
        for (_, name), count in self._keys.items():
            keys[name] += count
        entries = tuple(
            _entry(spec, keys[spec.name], self._shapes.of(spec.name)) for spec in states if _is_listed(spec, keys)
        )
        content = Content(tick, parallelism, self._codec.name, entries, ())
        if base:
            self._must_base = False
        self._last = self._executor.submit(lambda: self._guarded(lambda: self._write(content, sections, base=base)))
        return self._last

    def amend(
        self,
        tick: int,
        parallelism: int,
        states: Sequence[StateSpec],
        deltas: Iterable[StateDelta],
    ) -> Future[int]:
        """Commit changes on top of the last snapshot, regardless of the size of its increments."""
        self.check()
        held = {entry.name: entry for entry in self._claim.head.operators}
        versions = {spec.name: spec.version for spec in states}
        sections: list[Future[Section]] = []
        changed: Counter[str] = Counter()
        for worker, name, delta, count in deltas:
            found = Found(usual=self._usual.get((worker, name), 0.0))
            sections.extend(self._capture(worker, name, versions[name], delta, found))
            self._note(self._shapes, [finding(self._codec, worker, name, delta, found)])
            self._usual[worker, name] = found.usual
            self._keys[worker, name] = count
            changed[name] += count
        entries = tuple(
            _entry(spec, changed[spec.name], self._shapes.of(spec.name))
            if spec.name in changed
            else held.get(spec.name, _entry(spec, 0))
            for spec in states
            if _is_listed(spec, changed.keys() | held.keys())
        )
        content = Content(tick, parallelism, self._codec.name, entries, ())
        self._last = self._executor.submit(lambda: self._guarded(lambda: self._write(content, sections, base=False)))
        return self._last

    def commit_written(
        self,
        tick: int,
        parallelism: int,
        states: Sequence[StateSpec],
        keys: Mapping[str, int],
        write: Callable[[DataWriter], Written],
        merge: Merge | None = None,
        *,
        base: bool,
    ) -> Future[int]:
        """Commit files written by `write`, in the background; after a failure the next commit must repeat the changes.

        Args:
            tick: the number of ticks completed.
            parallelism: the number of workers.
            states: the states of the program.
            keys: the number of keys of each state.
            write: writes the files in order; returns their entries and the classes in them.
            merge: merges earlier increments, as `malflow.snapshot.files.sections.merge_files` does, by default in this
                process.
            base: whether they hold the full state, not only changes.
        """
        self.check()
        self._base_is_due = None
        self._captured_at = parallelism
        entries = tuple(_entry(spec, keys.get(spec.name, 0)) for spec in states if _is_listed(spec, keys))
        content = Content(tick, parallelism, self._codec.name, entries, ())
        self._last = self._executor.submit(
            lambda: self._guarded(lambda: self._write_with(write, merge or self._merge_here, content, base=base))
        )
        return self._last

    @property
    def claimed(self) -> tuple[str, int]:
        """The uuid of the job and the number of this run's claim; the claim with the highest number is valid."""
        head = self._claim.head
        return head.job, head.epoch

    @property
    def writer(self) -> DataWriter:
        """The writer of data files for the next commit."""
        return self._claim.writer()

    @property
    def codec(self) -> Codec:
        """The codec of the states."""
        return self._codec

    @property
    def compression(self) -> Compression:
        """The compression of frames."""
        return self._limits.compression

    def check(self) -> None:
        """Raise the error that must end the run, if there is one."""
        if self._environment.process() != self._process:
            raise FencedError("this process was forked from the one that runs the job; only its parent may commit")
        if self._fatal is not None:
            raise self._fatal

    def confirm(self) -> None:
        """Wait for pending writes, and check that no other run has claimed the job."""
        if self._last is not None:
            self._last.exception()
        self._claim.check()

    @property
    def _is_empty_already(self) -> bool:
        head = self._claim.head
        return bool(head.snapshot) and not head.files

    def close(self, *, wait: bool = False) -> None:
        """Close the executor; with `wait`, finish pending writes and deletions."""
        self._executor.close(wait=wait)

    def _capture(self, worker: int, name: str, version: int, delta: Delta, found: Found) -> Iterable[Future[Section]]:
        compression = self._limits.compression
        for bare, raw in bare_sections(self._codec, worker, name, version, delta, found):
            yield self._executor.submit(lambda bare=bare, raw=raw: with_frame(bare, raw, compression))  # type: ignore[misc] # mypy does not infer defaults

    def _note(self, shapes: Kept, findings: Iterable[Finding]) -> None:
        """Add findings; warn once about large states, and classes that only the running script can find."""
        findings = list(findings)
        self._sizes.note_findings(findings)
        script = script_name()
        for found in findings:
            named = replace(found, shapes=tuple(in_script(shape, script) for shape in found.shapes))
            shapes.add([named])
            of_main = next((shape.name for shape in named.shapes if shape.name.startswith(MAIN)), None)
            if of_main is not None and not self._warned:
                self._warned = True
                name = of_main.removeprefix(MAIN)
                _log.warning(_IN_MAIN, found.state, name, script or "the module that defines it", name)

    def _check_that_files_are_shared(self, entries: Sequence[FileEntry]) -> None:
        """Check once that this process finds a file that another one may have written.

        Raises:
            SnapshotError: if it does not: each process has a store of its own.
        """
        if self._are_files_shared or not entries:
            return
        try:
            self._manifest_log.read(entries[0])
        except SnapshotIncomplete as missing:
            raise SnapshotError(
                f"another process has written '{entries[0].name}', but this one does not find it: the store of job "
                f"'{self._manifest_log.name}' is in the memory, or in a folder, of one process; let all processes of "
                "a run reach the same objects, or run it with SingleThreadRuntime"
            ) from missing
        self._are_files_shared = True

    def _unchanged(self) -> int:
        """Commit nothing, but check that no other run has claimed the job."""
        self._claim.check()
        return self._claim.head.snapshot

    def _guarded(self, work: Callable[[], int]) -> int:
        """Run a commit, and record its outcome."""
        self._pause = None
        try:
            snapshot = work()
        except StoreError as error:
            self._note_failure(error)
            raise
        except (SnapshotError, RunFailed, OperatorError) as error:
            self._fatal = error
            raise
        except Exception as error:
            self._fatal = SnapshotError(
                f"a snapshot of job '{self._manifest_log.name}' failed {_origin(error)}; "
                "the previous snapshot remains valid"
            )
            raise self._fatal from error
        self._failing_since = self._retry_at = None
        self._backoff = _FIRST_RETRY
        return snapshot

    def _note_failure(self, error: StoreError) -> None:
        """Schedule a retry, or end the run if snapshots have been failing for too long."""
        environment, name = self._environment, self._manifest_log.name
        now = environment.monotonic()
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        if now - since >= self._limits.tolerance:
            self._fatal = SnapshotError(
                f"snapshots of job '{name}' have been failing for {now - since:.0f} seconds: {error}"
            )
            self._fatal.__cause__ = error
            return
        pause = self._backoff * (0.5 + environment.jitter())
        self._backoff = min(2 * self._backoff, _LONGEST_RETRY)
        self._retry_at, self._pause = now + pause, pause

    def _write(self, content: Content, captured: list[Future[Section]], *, base: bool) -> int:
        sections = [future.result() for future in captured]
        if base:
            self._unwritten, self._unwritten_base = [], True
        self._unwritten.extend(sections)
        if not self._unwritten and (not self._unwritten_base or self._is_empty_already):
            return self._unchanged()
        size = sum(len(section.frame) for section in self._unwritten)
        kept, compacted = ((), []) if self._unwritten_base else self._compact(size, self._sections_of)
        groups = pack([*compacted, *self._unwritten], self._claim.writer().file_limit)
        entries = [self._put(group, base=self._unwritten_base) for group in groups]
        self._claim.commit(replace(content, files=(*kept, *entries)))
        self._unwritten, self._unwritten_base = [], False
        return self._committed()

    def _write_with(self, write: Callable[[DataWriter], Written], merge: Merge, content: Content, *, base: bool) -> int:
        writer = self._claim.writer()
        entries, findings = write(writer)
        self._check_that_files_are_shared(entries)
        if not entries and (not base or self._is_empty_already):
            return self._unchanged()
        size = sum(entry.bytes for entry in entries)
        kept, rewritten = ((), []) if base else self._compact(size, lambda files: merge(writer, files))
        shapes = Kept({}, 0) if base else self._shapes.copy()
        self._note(shapes, findings)
        states = tuple(replace(entry, shapes=shapes.of(entry.name)) for entry in content.states)
        self._claim.commit(replace(content, states=states, files=(*kept, *rewritten, *entries)))
        self._shapes = shapes
        if base:
            self._must_base = False
        return self._committed()

    @property
    def sizes(self) -> dict[str, StateSize]:
        """The sizes of the states in the last snapshot of this run."""
        return self._sizes.found

    @property
    def bytes(self) -> int:
        """The bytes of the files that the last snapshot consists of."""
        return sum(file.bytes for file in self._claim.head.files)

    def _committed(self) -> int:
        self._sizes.note_keys({entry.name: entry.keys for entry in self._claim.head.operators})
        self._executor.submit(self._delete_unreferenced)
        return self._claim.head.seq

    def _put(self, sections: list[Section], *, base: bool) -> FileEntry:
        return write_file(self._claim.writer(), sections, self._codec, self._limits.compression, base=base)

    def _compact(
        self, size: int, merge: Callable[[Sequence[FileEntry]], list[T] | None]
    ) -> tuple[tuple[FileEntry, ...], list[T]]:
        """Merge the small increments at the end of the snapshot.

        Args:
            size: the number of bytes about to be written.
            merge: merges files; returns None if that is not possible.

        Returns:
            The files that remain, and the result of `merge`.
        """
        chain = self._claim.head.files
        chosen = increments_to_merge(chain, size)
        if not chosen:
            return chain, []
        try:
            merged = merge(chosen)
        except SnapshotCorrupt as error:
            _log.warning(
                "a file of job '%s' is damaged; the next snapshot will replace it: %s", self._manifest_log.name, error
            )
            merged = None
        if merged is None:
            self._must_base = True
            return chain, []
        return chain[: len(chain) - len(chosen)], merged

    def _sections_of(self, files: Sequence[FileEntry]) -> list[Section] | None:
        return sections_of(self._manifest_log.read, files, self._limits.compression)

    def _merge_here(self, writer: DataWriter, files: Sequence[FileEntry]) -> list[FileEntry] | None:
        return merge_files(writer, files, self._codec, self._limits.compression)

    def _delete_unreferenced(self) -> None:
        try:
            self._claim.delete_unreferenced(self._limits.retain)
        except (FencedError, CommitUnknown) as error:
            self._fatal = error
        except SnapshotError as error:
            _log.warning(
                "old snapshots of job '%s' could not be deleted; the next snapshot tries again: %s",
                self._manifest_log.name,
                error,
            )
        except Exception as error:
            _log.warning("old snapshots of job '%s' could not be deleted %s", self._manifest_log.name, _origin(error))
            raise


def _origin(error: Exception) -> str:
    """Return an unexpected error and its origin, for a message."""
    place = extract_tb(error.__traceback__)[-1]
    return f"unexpectedly in {place.name} ({Path(place.filename).name}:{place.lineno}): {error_line(error)}"


def _is_listed(spec: StateSpec, known: Container[str]) -> bool:
    """Whether a snapshot lists a state: dead letters only if there have been any, as most operators never have one."""
    return spec.kind is not StateKind.LETTERS or spec.name in known


def _entry(spec: StateSpec, keys: int, shapes: tuple[Shape, ...] = ()) -> StateEntry:
    return StateEntry(
        spec.name, spec.kind.word, spec.version, spec.placement, keys, shapes, spec.definition, spec.panes
    )
