"""A run's hold on its job: what changed is captured between two ticks, and written in the background."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from malflow.errors import (
    CommitUnknown,
    FencedError,
    OperatorError,
    RunFailed,
    SnapshotCorrupt,
    SnapshotError,
    StoreError,
)
from malflow.snapshot.codecs.classes import script_name
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.codecs.shapes import MAIN, Finding, Kept, Shape, in_script
from malflow.snapshot.commit import Claim, Content, DataWriter
from malflow.snapshot.data_file import Section, compress, decode_file, encode_delta, encode_file, pack
from malflow.snapshot.manifest import FileEntry, OperatorEntry
from malflow.snapshot.persistence import Restored, UnwritableState
from malflow.state import Delta, StateDelta, StateSpec

if TYPE_CHECKING:
    from malflow.snapshot.executors import Executor
    from malflow.snapshot.manifest_log import Archive
    from malflow.store.retry import Environment

__all__ = ["Limits", "SnapshotSession", "Written", "bare_sections", "finding", "with_frame", "write_file"]

Written = tuple[Sequence[FileEntry], Sequence[Finding]]
"""Files that were written, and the classes in them."""

_log = logging.getLogger("malflow.snapshot")

_IN_MAIN = (
    "operator '%s' keeps objects of class %s, which is defined in the script that runs: another program that reads "
    "them finds the class only where it has imported %s; define it in a module that both import, or use codec="
    "MsgpackCodec({'name': %s})"
)

_TIER = 8
_SMALLEST_TIER = 4096
_LARGEST_FOLDED = 8 << 20
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and how patient a run is.

    Attributes:
        retain: how many snapshots stay.
        growth: how large the increments may become, as a multiple of the base, before a new base is written.
        tolerance: a snapshot that fails so many seconds after the first failure in a row ends the run.
        compression: how frames are compressed.
    """

    retain: int
    growth: float
    tolerance: float
    compression: str


class SnapshotSession:
    """Captures deltas as sections of bytes, and commits them one snapshot after the other.

    What could not be written stays at hand, and goes into the next snapshot: nothing that changed is ever forgotten.
    """

    def __init__(
        self,
        archive: Archive,
        claim: Claim,
        codec: Codec,
        executor: Executor,
        environment: Environment,
        limits: Limits,
        *,
        restored: Restored | None,
        fresh_base: bool,
    ) -> None:
        self._archive = archive
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
        self._unwritten: list[Section] = []
        self._unwritten_base = False
        self._base_is_due: bool | None = None
        self._captured_at = claim.head.parallelism
        self._last: Future[int] | None = None
        self._fatal: SnapshotError | RunFailed | OperatorError | None = None
        self._failing_since: float | None = None
        self._failures = 0
        self._retry_at: float | None = None
        self._pause: float | None = None
        self._process = environment.process()

    @property
    def is_busy(self) -> bool:
        """Tell whether a snapshot is still being written."""
        return self._last is not None and not self._last.done()

    @property
    def wants_retry(self) -> bool:
        """Whether the last snapshot failed, and it is time to try again: after a second, then more and more."""
        retry_at = self._retry_at
        return retry_at is not None and not self.is_busy and self._environment.monotonic() >= retry_at

    @property
    def retry_after(self) -> float | None:
        """The seconds between the last snapshot, if it failed, and the next attempt; None if there is none."""
        return self._pause

    def wants_base(self, parallelism: int) -> bool:
        """Tell whether there is no base that fits, or the increments have outgrown it.

        The next commit goes by this answer, whatever the background has written in between.
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
        operators: Sequence[StateSpec],
        deltas: Iterable[StateDelta],
    ) -> Future[int]:
        """Capture what changed, and write it in the background."""
        self.check()
        base = self.wants_base(parallelism) if self._base_is_due is None else self._base_is_due
        self._base_is_due = None
        self._captured_at = parallelism
        versions = {spec.name: spec.version for spec in operators}
        sections: list[Future[Section]] = []
        if base:
            self._keys.clear()
            self._shapes.clear()
        for worker, name, delta, count in deltas:
            self._keys[worker, name] = count
            kinds: set[type] = set()
            sections.extend(self._capture(worker, name, versions[name], delta, kinds))
            self._note(self._shapes, [finding(self._codec, worker, name, delta, kinds)])
        keys: Counter[str] = Counter()
        for (_, name), count in self._keys.items():
            keys[name] += count
        entries = tuple(_entry(spec, keys[spec.name], self._shapes.of(spec.name)) for spec in operators)
        content = Content(tick, parallelism, self._codec.name, entries, ())
        if base:
            self._must_base = False
        self._last = self._executor.submit(lambda: self._guarded(lambda: self._write(content, sections, base=base)))
        return self._last

    def commit_written(
        self,
        tick: int,
        parallelism: int,
        operators: Sequence[StateSpec],
        keys: Mapping[str, int],
        write: Callable[[DataWriter], Written],
        *,
        base: bool,
    ) -> Future[int]:
        """Commit what others write, in the background; where that fails, the next commit must hold it too.

        Args:
            tick: how many ticks have run.
            parallelism: how many workers have the state.
            operators: those that keep state.
            keys: how many keys each of them has.
            write: writes the files, in their order, and returns what is to be said of them, and of the states in them.
            base: whether they hold all there is, and not only what changed.
        """
        self.check()
        self._base_is_due = None
        self._captured_at = parallelism
        entries = tuple(_entry(spec, keys.get(spec.name, 0)) for spec in operators)
        content = Content(tick, parallelism, self._codec.name, entries, ())
        self._last = self._executor.submit(lambda: self._guarded(lambda: self._write_with(write, content, base=base)))
        return self._last

    @property
    def claimed(self) -> tuple[str, int]:
        """The uuid of the job, and the number of this run's claim to it: the greatest has it."""
        head = self._claim.head
        return head.job, head.epoch

    @property
    def codec(self) -> Codec:
        """How states are written."""
        return self._codec

    @property
    def compression(self) -> str:
        """How frames are compressed."""
        return self._limits.compression

    def check(self) -> None:
        """Raise what ends the run."""
        if self._environment.process() != self._process:
            raise FencedError("this process was forked from the one that runs the job; only that one may commit")
        if self._fatal is not None:
            raise self._fatal

    def confirm(self) -> None:
        """Look whether the job is still this run's, once nothing is being written."""
        if self._last is not None:
            self._last.exception()
        self._claim.check()

    @property
    def _is_empty_already(self) -> bool:
        head = self._claim.head
        return bool(head.snapshot) and not head.files

    def close(self, *, wait: bool = False) -> None:
        """Let go of the background."""
        self._executor.close(wait=wait)

    def _capture(
        self, worker: int, name: str, version: int, delta: Delta, kinds: set[type]
    ) -> Iterable[Future[Section]]:
        compression = self._limits.compression
        for bare, raw in bare_sections(self._codec, worker, name, version, delta, kinds):
            yield self._executor.submit(lambda bare=bare, raw=raw: with_frame(bare, raw, compression))  # type: ignore[misc] # mypy knows no defaults

    def _note(self, shapes: Kept, findings: Iterable[Finding]) -> None:
        """Add what was found; warn once of classes that only the script that runs now can find."""
        script = script_name()
        for found in findings:
            named = replace(found, shapes=tuple(in_script(shape, script) for shape in found.shapes))
            shapes.add([named])
            of_main = next((shape.name for shape in named.shapes if shape.name.startswith(MAIN)), None)
            if of_main is not None and not self._warned:
                self._warned = True
                name = of_main.removeprefix(MAIN)
                _log.warning(_IN_MAIN, found.operator, name, script or "what defines it", name)

    def _unchanged(self) -> int:
        """Find out at least whether the job is still this run's."""
        self._claim.check()
        return self._claim.head.snapshot

    def _guarded(self, work: Callable[[], int]) -> int:
        """Do a commit, and note how it ended."""
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
                f"a snapshot of job '{self._archive.name}' could not be made, {_told(error)}; the last snapshot stands"
            )
            raise self._fatal from error
        self._failing_since = self._retry_at = None
        self._failures = 0
        return snapshot

    def _note_failure(self, error: StoreError) -> None:
        """Schedule another try soon, or end the run if commits have been failing for too long."""
        environment, name = self._environment, self._archive.name
        now = environment.monotonic()
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        if now - since >= self._limits.tolerance:
            self._fatal = SnapshotError(
                f"snapshots of job '{name}' have been failing for {now - since:.0f} seconds: {error}"
            )
            self._fatal.__cause__ = error
            return
        pause = min(_FIRST_RETRY * 2**self._failures, _LONGEST_RETRY) * (0.5 + environment.jitter())
        self._failures += 1
        self._retry_at, self._pause = now + pause, pause

    def _write(self, content: Content, captured: list[Future[Section]], *, base: bool) -> int:
        sections = [future.result() for future in captured]
        if base:
            self._unwritten, self._unwritten_base = [], True
        self._unwritten.extend(sections)
        if not self._unwritten and (not self._unwritten_base or self._is_empty_already):
            return self._unchanged()
        size = sum(len(section.frame) for section in self._unwritten)
        kept, folded = ((), []) if self._unwritten_base else self._fold(size)
        entries = [self._put(group, base=self._unwritten_base) for group in pack([*folded, *self._unwritten])]
        self._claim.commit(replace(content, files=(*kept, *entries)))
        self._unwritten, self._unwritten_base = [], False
        return self._committed()

    def _write_with(self, write: Callable[[DataWriter], Written], content: Content, *, base: bool) -> int:
        entries, findings = write(self._claim.writer())
        if not entries and (not base or self._is_empty_already):
            return self._unchanged()
        kept, folded = ((), []) if base else self._fold(sum(entry.bytes for entry in entries))
        rewritten = [self._put(group, base=False) for group in pack(folded)]
        shapes = Kept({}, 0) if base else self._shapes.copy()
        self._note(shapes, findings)
        operators = tuple(replace(entry, shapes=shapes.of(entry.name)) for entry in content.operators)
        self._claim.commit(replace(content, operators=operators, files=(*kept, *rewritten, *entries)))
        self._shapes = shapes
        if base:
            self._must_base = False
        return self._committed()

    def _committed(self) -> int:
        self._executor.submit(self._collect)
        return self._claim.head.seq

    def _put(self, sections: list[Section], *, base: bool) -> FileEntry:
        return write_file(self._claim.writer(), sections, self._codec, self._limits.compression, base=base)

    def _fold(self, size: int) -> tuple[tuple[FileEntry, ...], list[Section]]:
        """Take small increments that have become many into the file to be written.

        Files are of tiers, each `_TIER` times as large as the one below, and fewer than `_TIER` of one tier stay: so a
        snapshot has few files, and a byte is written again once for each tier. After the log-structured merge-tree of
        O'Neil et al., 1996. Frames are taken as they are.

        Args:
            size: how many bytes are to be written.

        Returns:
            The files that stay, and the sections of those that don't.
        """
        chain = self._claim.head.files
        while True:
            run = _last_of_tier(chain, _tier(size))
            if len(run) < _TIER - 1:
                break
            chain = chain[: -len(run)]
            size += sum(entry.bytes for entry in run)
        folded = self._claim.head.files[len(chain) :]
        try:
            files = [decode_file(entry.name, self._archive.read(entry)) for entry in folded]
        except SnapshotCorrupt as error:
            _log.warning("a file of job '%s' is damaged, the next snapshot replaces it: %s", self._archive.name, error)
            self._must_base = True
            return self._claim.head.files, []
        if any(file.compression != self._limits.compression for file in files):
            self._must_base = True
            return self._claim.head.files, []
        return chain, [section for file in files for section in file.sections]

    def _collect(self) -> None:
        try:
            self._claim.collect(self._limits.retain)
        except (FencedError, CommitUnknown) as error:
            self._fatal = error
        except SnapshotError as error:
            _log.warning("old snapshots of job '%s' could not be deleted, yet: %s", self._archive.name, error)
        except Exception as error:
            _log.warning("old snapshots of job '%s' could not be deleted, yet, %s", self._archive.name, _told(error))
            raise


def _told(error: Exception) -> str:
    """Return what an error is that nobody has foreseen, and where it came from."""
    place = extract_tb(error.__traceback__)[-1]
    return f"by a fault in {place.name} ({Path(place.filename).name}:{place.lineno}): {type(error).__name__}: {error}"


def finding(codec: Codec, worker: int, name: str, delta: Delta, kinds: Iterable[type]) -> Finding:
    """Say what is to be known of the classes in a delta that was written."""
    shapes = map(codec.shape_of, kinds) if isinstance(codec, ShapedCodec) else ()
    found = sorted((shape for shape in shapes if shape is not None), key=lambda shape: shape.name)
    return Finding(worker, name, delta.whole, tuple(found))


def bare_sections(
    codec: Codec,
    worker: int,
    name: str,
    version: int,
    delta: Delta,
    kinds: set[type],
    errors: type[BaseException] = Exception,
) -> Iterator[tuple[Section, bytes]]:
    """Write a delta as sections without their frames, each with the bytes to make its frame of.

    Args:
        codec: how.
        worker: the worker.
        name: the operator.
        version: the version of its states.
        delta: what changed.
        kinds: where to add the classes in it.
        errors: what, raised by the classes of a state, is an error of theirs; see `encode_delta`.

    Raises:
        UnwritableState: if a state can't be written.
        SnapshotError: if keys have changed.
    """
    if delta.appended > len(delta.changed):
        raise SnapshotError(
            f"operator '{name}' has keys that are equal now and were not when they came; keys and "
            "their hashes must not change"
        )
    if delta.whole:
        yield Section(name, worker, version, "whole", 0, 0, b""), b""
    writing = codec.noting(kinds) if isinstance(codec, ShapedCodec) else codec
    try:
        for what, count, raw in encode_delta(writing, delta, errors):
            yield Section(name, worker, version, what, count, len(raw), b""), raw
    except UnwritableState as error:
        error.operator = name
        raise


def with_frame(bare: Section, raw: bytes, compression: str) -> Section:
    """Make the frame of a section."""
    return replace(bare, frame=compress(raw, compression)) if raw else bare


def write_file(
    writer: DataWriter, sections: Sequence[Section], codec: Codec, compression: str, *, base: bool
) -> FileEntry:
    """Write a file of sections, and tell what the manifest has to say of it.

    Raises:
        StoreError: if it can't be written.
    """
    data = encode_file(sections, codec=codec.name, compression=compression)
    raw = sum(section.raw for section in sections)
    return FileEntry(writer.write(data), len(data), sha256(data).hexdigest(), raw, base)


def _entry(spec: StateSpec, keys: int, shapes: tuple[Shape, ...] = ()) -> OperatorEntry:
    return OperatorEntry(spec.name, spec.kind.word, spec.version, spec.placement, keys, shapes)


def _last_of_tier(chain: Sequence[FileEntry], tier: int) -> list[FileEntry]:
    """Give the increments at the end of the chain that are of this tier or below it."""
    return list(
        takewhile(
            lambda entry: not entry.base and entry.bytes < _LARGEST_FOLDED and _tier(entry.bytes) <= tier,
            reversed(chain),
        )
    )


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST_TIER:
        size //= _TIER
        tier += 1
    return tier
