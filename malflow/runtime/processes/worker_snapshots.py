"""The snapshots in a worker process: serialises changes, and writes data files when the coordinator says so.

A process imports this module when it takes its first snapshot: a run without snapshots does not need it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from malflow.engine.workers import Workers
from malflow.errors import MalflowError, RunFailed
from malflow.runtime.processes.messages import Capture, Captured, WriteFiles, WrittenFiles
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import dumps
from malflow.snapshot.files.data_file import Section, pack
from malflow.snapshot.files.sections import Found, Recount, bare_sections, finding, with_frame, write_file
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta, StateDelta
from malflow.words import error_line

__all__ = ["WorkerSnapshots"]


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
            for group in pack(sections, command.writer.file_limit)
        ]
        return WrittenFiles(files)


def _fail(error: BaseException) -> WrittenFiles:
    raise error
