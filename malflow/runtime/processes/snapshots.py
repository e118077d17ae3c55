"""The snapshots of a run in worker processes, which write their own data files; this one commits them."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import States, kept_versions, states_of, stored_once
from malflow.engine.workers import Workers
from malflow.errors import MalflowError, RunFailed
from malflow.runtime.host import SinkPositions
from malflow.runtime.processes.messages import Capture, Captured, WriteFiles, WrittenFiles
from malflow.runtime.processes.pool import Pool
from malflow.runtime.processes.starting import StartedProcess
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error
from malflow.runtime.transport.pickling import dumps, dumps_by_value
from malflow.snapshot.files.data_file import Section, pack
from malflow.snapshot.files.sections import (
    Found,
    Recount,
    Written,
    bare_sections,
    encoded,
    finding,
    with_frame,
    write_file,
)
from malflow.snapshot.persistence import Session, StateNotSerializable
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.snapshot.writer import SnapshotSession
from malflow.states.keyed import Delta, StateDelta
from malflow.words import error_line

__all__ = [
    "ProcessCaptures",
    "WorkerSnapshots",
]


@dataclass(slots=True)
class _Changes:
    """Serialised changes that are not in a durable snapshot.

    Attributes:
        tick: the tick of their states.
        is_full: whether they hold all state; earlier ones are then obsolete.
        sections: sections without frames, with the bytes of their frames.
    """

    tick: int
    is_full: bool
    sections: list[tuple[Section, bytes]] = field(default_factory=list)


class WorkerSnapshots:
    """Captures the changes of the workers, and writes their data files when the coordinator says so.

    The changes of a snapshot that failed are written with the next one. No change is thus lost.

    Args:
        end: receives `WriteFiles`, and sends `WrittenFiles`.
        versions: the version of each state that is saved.
        debug: whether to check that the deltas add up to the states.
    """

    def __init__(self, end: Connection, versions: Mapping[str, int], *, debug: bool) -> None:
        self._end = end
        self._versions = versions
        self._debug = debug
        self._unwritten: list[_Changes] = []
        self._usual: dict[tuple[int, str], float] = {}
        self._recount: Recount | None = None
        threading.Thread(target=self._write_all, name="malflow-snapshots", daemon=True).start()

    def begin(self, workers: Workers) -> None:
        """Continue with other workers; the next snapshot of them is a full one, if their number has changed."""
        self._unwritten = []
        if self._debug:
            self._recount = Recount(None)
            states = workers.stored_states()
            whole = [StateDelta(*place, Delta(state, whole=True), len(state)) for place, state in states.items()]
            self._recount.check(whole, states, base=True)

    def capture(self, workers: Workers, command: Capture) -> Captured:
        """Serialise the changes since the last call.

        Raises:
            OperatorError: if a state can't be serialised.
        """
        found = workers.deltas(command.full)
        if self._recount is not None:
            self._recount.check(found, workers.stored_states(), base=command.full)
        deltas = [it for it in found if it.name in self._versions]
        keys = {(it.worker, it.name): it.keys for it in deltas}
        if command.codec is None:
            return Captured(keys, (), [dumps(tuple(it)) for it in deltas])
        changes = _Changes(command.tick, command.full)
        findings = []
        for it in deltas:
            seen = Found(usual=self._usual.get((it.worker, it.name), 0.0))
            try:
                changes.sections += bare_sections(
                    command.codec, it.worker, it.name, self._versions[it.name], it.delta, seen, BaseException
                )
            except StateNotSerializable as error:
                raise error.as_operator_error() from error.__cause__
            findings.append(finding(command.codec, it.worker, it.name, it.delta, seen))
            self._usual[it.worker, it.name] = seen.usual
        self._unwritten = [*(() if command.full else self._unwritten), changes]
        return Captured(keys, findings, (), any(it.is_full for it in self._unwritten))

    def settle(self, tick: int, snapshot: int | None) -> None:
        """Drop the changes that are in a durable snapshot; None as its id keeps them for the next one."""
        if snapshot is not None:
            self._unwritten = [it for it in self._unwritten if it.tick > tick]

    def _write_all(self) -> None:
        """Write data files whenever told to, until the coordinator closes its end."""
        while True:
            try:
                command: WriteFiles = pickle.loads(self._end.recv_bytes())  # noqa: S301 - of this run
            except (EOFError, OSError):
                return
            except BaseException as error:  # noqa: BLE001 - the coordinator waits for the answer
                self._answer(lambda error=error: _fail(error))  # type: ignore[misc] # mypy does not infer defaults
                continue
            self._answer(lambda command=command: self._write(command))  # type: ignore[misc] # as above

    def _answer(self, act: Callable[[], WrittenFiles]) -> None:
        try:
            written = act()
        except MalflowError as error:
            written = WrittenFiles((), dumps_error(error))
        except BaseException as error:  # noqa: BLE001 - as above
            failure = RunFailed(f"data files could not be written: {error_line(error)}")
            failure.__cause__ = error
            written = WrittenFiles((), dumps_error(failure))
        with suppress(OSError):  # the coordinator is gone
            self._end.send_bytes(dumps(written))

    def _write(self, command: WriteFiles) -> WrittenFiles:
        sections = [
            with_frame(bare, raw, command.compression) for changes in self._unwritten for bare, raw in changes.sections
        ]
        files = [
            write_file(command.writer, group, command.codec, command.compression, base=command.base)
            for group in pack(sections)
        ]
        return WrittenFiles(files)


def _fail(error: BaseException) -> WrittenFiles:
    raise error


def loaded_deltas(blobs: Sequence[bytes]) -> list[StateDelta]:
    """Unpickle the changes of a `Captured`."""
    found: list[Any] = [pickle.loads(blob) for blob in blobs]  # noqa: S301 - of this run
    return [StateDelta(*it) for it in found]


_LOOK = 0.5
"""The seconds after which a process that has not answered is looked at."""


class ProcessCaptures:
    """Captures the changes of all processes, and commits them in one snapshot.

    Args:
        program: the program.
        sinks: the sinks in this process.
        is_in_memory: whether the store is in the memory of this process.
    """

    def __init__(self, program: Program, sinks: RunSinks, *, is_in_memory: bool) -> None:
        self._specs = states_of(program)
        self._versions = kept_versions(program)
        self._once = stored_once(program)
        self._sinks = sinks
        self._keys: dict[tuple[int, str], int] = {}
        self._can_travel: bool | None = False if is_in_memory else None

    def begin(self, states: Mapping[int, Mapping[str, States]]) -> None:
        """Continue with workers that have these states, by worker and name."""
        self._keys = {
            (worker, name): len(state)
            for worker, them in states.items()
            for name, state in them.items()
            if worker == 0 or name not in self._once
        }

    def write(
        self, session: Session, pool: Pool, tick: int, parallelism: int, sinks: SinkPositions, *, full: bool
    ) -> Future[int]:
        """Begin to write the changes since the last snapshot.

        Args:
            session: the session to commit them with.
            pool: the processes.
            tick: the number of the last tick.
            parallelism: the number of workers.
            sinks: returns the positions of the sinks.
            full: whether to write all state.

        Raises:
            StateNotSerializable: if a position can't be encoded.
            OperatorError: if a state can't be encoded, or a sink fails.
        """
        if not isinstance(session, SnapshotSession) or not self._writes_there(session):
            captured = pool.ask_all(Capture(tick, full, None))
            deltas = [delta for it in captured for delta in loaded_deltas(it.deltas)]
            return session.commit(tick, parallelism, self._specs, [*deltas, *sinks(full)])
        captured = pool.ask_all(Capture(tick, full, session.codec))
        base = any(it.is_full for it in captured)
        sections, findings = encoded(session.codec, session.compression, self._versions, sinks(base))
        findings += [it for one in captured for it in one.findings]
        for it in captured:
            self._keys.update(it.keys)

        def write(writer: DataWriter) -> Written:
            command = WriteFiles(writer, session.codec, session.compression, base)
            entries = _written(pool.processes, command)
            files = (write_file(writer, it, session.codec, session.compression, base=base) for it in pack(sections))
            return [*entries, *files], findings

        keys: Counter[str] = Counter(self._sinks.sizes)
        for (_, name), count in self._keys.items():
            if name in self._versions:
                keys[name] += count
        return session.commit_written(tick, parallelism, self._specs, keys, write, base=base)

    def _writes_there(self, session: SnapshotSession) -> bool:
        """Whether the processes reach the store; otherwise this one writes all data files."""
        if self._can_travel is None:
            try:
                pickle.loads(dumps_by_value(session.writer))  # noqa: S301 - just written
            except Exception:  # noqa: BLE001 - a store of the user's may raise any
                self._can_travel = False
            else:
                self._can_travel = True
        return self._can_travel


def _answer_of(process: StartedProcess) -> bytes:
    """Wait for the answer of a process, and look at the process itself: a child of it may hold the connection."""
    while not process.files.poll(_LOOK):
        if process.wait(0.0) and not process.files.poll():
            raise EOFError
    return process.files.recv_bytes()


def _written(processes: Sequence[StartedProcess], command: WriteFiles) -> list[FileEntry]:
    """Order all processes to write their data files, and wait for them.

    Raises:
        MalflowError: the first error of a process.
        RunFailed: if a process has ended.
    """
    frame = dumps(command)
    answers: list[WrittenFiles] = []
    try:
        for it in processes:
            it.files.send_bytes(frame)
        answers += [pickle.loads(_answer_of(it)) for it in processes]  # noqa: S301 - of this run
    except (EOFError, OSError) as error:
        raise RunFailed("a worker process ended while it wrote a snapshot") from error
    for answer in answers:
        if answer.error is not None:
            raise loaded_error(answer.error)
    return [entry for answer in answers for entry in answer.written]
