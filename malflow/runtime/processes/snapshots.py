"""The snapshots of a run in worker processes: those write their own data files, and this process commits them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.engine.state_specs import States, kept_versions, states_of, stored_once
from malflow.errors import RunFailed
from malflow.runtime.host import SinkPositions
from malflow.runtime.processes.messages import Capture, WriteFiles, WrittenFiles
from malflow.runtime.processes.pool import Pool
from malflow.runtime.processes.starting import StartedProcess
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.runtime.transport.pickling import dumps, dumps_by_value
from malflow.snapshot.files.data_file import pack
from malflow.snapshot.files.sections import (
    Written,
    encoded,
    write_file,
)
from malflow.snapshot.persistence import Session
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.snapshot.writer import SnapshotSession
from malflow.states.keyed import StateDelta

__all__ = ["ProcessCaptures"]


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
            files = (
                write_file(writer, it, session.codec, session.compression, base=base)
                for it in pack(sections, writer.file_limit)
            )
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
