"""The program of a worker process: runs its share of the workers, as the coordinator commands."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from malflow.engine.parts.discovery import Confirmations
from malflow.engine.parts.places import Place
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.state_specs import kept_versions
from malflow.engine.workers import Workers
from malflow.errors import GraphError, MalflowError, RunFailed, own_process
from malflow.runtime.process_state import handle_stops, rarer_collections
from malflow.runtime.processes.exchange import PeerExchange, PeerIsGone, TickAborted
from malflow.runtime.processes.forwarding import finish_lines, forward_all, install_filters
from malflow.runtime.processes.links import Link, receive_link, wait_for
from malflow.runtime.processes.messages import (
    CLOSE,
    AddParts,
    Ask,
    AskQuestions,
    Begin,
    Capture,
    Captured,
    CheckGone,
    Closed,
    ContinueTicks,
    Done,
    Failed,
    Gathered,
    GiveParts,
    Message,
    PeerLost,
    ReadSoFar,
    RunTick,
    Settle,
    Setup,
    TakeParts,
    Ticked,
    ToMove,
)
from malflow.runtime.transport.chunks import ChunkBuffer
from malflow.runtime.transport.error_pickles import dumps_error
from malflow.runtime.transport.pickling import dumps, dumps_by_value, load_states, missing_module
from malflow.runtime.transport.script_classes import install_classes
from malflow.runtime.transport.sink_proxies import collected
from malflow.words import error_line

if TYPE_CHECKING:
    from malflow.runtime.processes.worker_snapshots import WorkerSnapshots

__all__ = ["main"]

_CLOSE: Final = dumps(CLOSE)
"""The frame of the last command."""

_WATCH_SECONDS = 0.5
"""How often a worker process checks that its parent is the same."""


def main(control: int, files: int, life: int, peers: int) -> None:
    """Run a worker process until the coordinator closes it, or is gone.

    Args:
        control: the file descriptor of the socket for commands and replies; it first receives the peers' descriptors.
        files: the descriptor of the connection on which data files are commissioned.
        life: the descriptor of a pipe that closes when the coordinator's process ends.
        peers: the number of other worker processes.
    """
    _end_with(life)
    handle_stops(_leave_to_coordinator)
    _let_this_process_be_killed_first()
    own_process()
    end = socket.socket(fileno=control)
    try:
        links = [receive_link(end) for _ in range(peers)]
    except (EOFError, ConnectionError):  # the coordinator is gone
        os._exit(1)
    WorkerProcess(Link(end), links, files).run()


def _end_with(life: int) -> None:
    """End this process as soon as the coordinator's has ended, whatever user code is doing.

    A thread waits for the end of the pipe, or of the parent. On Linux the kernel does as well, and needs no interpreter
    lock. A function in C may hold that lock for minutes.
    """
    parent = os.getppid()
    if hasattr(fcntl, "F_SETSIG"):
        with suppress(OSError):  # without /proc
            own = os.open(f"/proc/self/fd/{life}", os.O_RDONLY | os.O_NONBLOCK)  # whose signal no other process changes
            fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        with selectors.DefaultSelector() as selector:  # unlike select(), for any file descriptor
            selector.register(life, selectors.EVENT_READ)
            while os.getppid() == parent and not selector.select(_WATCH_SECONDS):
                pass
        os._exit(1)

    threading.Thread(target=watch, name="malflow-watch", daemon=True).start()


def _leave_to_coordinator(_number: int, _frame: object) -> None:
    """Ignore a signal to the whole process group; what user code starts or forks has Python's default handling."""


def _let_this_process_be_killed_first() -> None:
    """On Linux, let the kernel end this process rather than the coordinator where memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


class WorkerProcess:
    """The workers of this process, and the links to the coordinator and the other processes.

    Args:
        control: the link to the coordinator.
        peers: the links to the other processes, in the order of their numbers.
        files: the descriptor of the connection on which data files are commissioned.
    """

    def __init__(self, control: Link, peers: list[Link], files: int) -> None:
        self._control = control
        self._links = peers
        self._files = files
        self._workers: Workers | None = None
        self._program: Program | None = None
        self._problem: MalflowError | None = None
        self._exchange: PeerExchange | None = None
        self._snapshots: WorkerSnapshots | None = None
        self._confirmations = Confirmations(lambda: self._hosted.sources)
        self._mine: list[int] = []
        self._actions: Mapping[type, Callable[[Any], Any]] = {
            AddParts: self._add_parts,
            Ask: self._do,
            AskQuestions: self._answer,
            Begin: self._begin,
            Capture: self._capture,
            ContinueTicks: self._continue_ticks,
            CheckGone: self._check_gone,
            RunTick: self._run_tick,
            GiveParts: self._give_parts,
            Settle: self._settle,
            TakeParts: self._take_parts,
        }

    def run(self) -> None:
        """Execute commands until one closes the process, or the coordinator is gone."""
        try:
            setup: Setup = pickle.loads(self._next())  # noqa: S301 - of this run
            self._setup = setup
            forward_all(setup, self._tell, lambda: ", ".join(map(str, self._mine)) or "?")
            self._get_ready()
            with rarer_collections():
                while not self._is_over(self._next()):
                    pass
        except _CoordinatorIsGone:
            os._exit(1)
        wait_for([self._control], lambda: not self._control.is_sending)

    def _next(self) -> bytearray:
        """Wait for the next frame of the coordinator."""
        control = self._control
        wait_for([control], lambda: bool(control.arrived) or not control.is_open)
        if not control.arrived:
            raise _CoordinatorIsGone
        return control.arrived.popleft()

    def _tell(self, message: object) -> None:
        self._control.send(dumps(message))
        if threading.current_thread() is threading.main_thread():  # in a command: the coordinator reads
            self._control.flush()

    def _is_over(self, frame: bytearray) -> bool:
        """Execute a command and reply; return whether it was the last one."""
        command: Message[Any] | None = None
        try:
            command = self._command_in(frame)
            reply = dumps(Done(self._actions[type(command)](command)))
        except TickAborted:
            return False
        except PeerIsGone as gone:
            reply = dumps(PeerLost(gone.process))
        except MalflowError as error:
            reply = dumps(Failed(dumps_error(error)))
        except BaseException as error:  # noqa: BLE001 - the coordinator reports it
            reply = dumps(Failed(dumps_error(_failure(error))))
        self._control.send(reply)
        return command == CLOSE

    def _command_in(self, frame: bytearray) -> Message[Any]:
        if self._problem is not None and frame != _CLOSE:
            raise self._problem
        command: Message[Any] = load_states(bytes(frame), _states_in)
        return command

    def _get_ready(self) -> None:
        """Load the script's classes and the program, before the first command: its states may be of these classes.

        The coordinator reads the snapshot meanwhile. It gets an error as the reply to its first command.
        """
        setup = self._setup
        try:
            setup.surroundings.install()
            self._program = _loaded_program(setup.program)
            install_filters(setup.filters)
            _leave_imports_out()
        except MalflowError as error:
            self._problem = error
        except BaseException as error:  # noqa: BLE001 - the coordinator reports it
            self._problem = _failure(error)

    @property
    def _loaded(self) -> Program:
        if self._program is None:
            raise RunFailed("the worker process has no program")
        return self._program

    @property
    def _hosted(self) -> Workers:
        if self._workers is None:
            raise RunFailed("the worker process has no workers yet")
        return self._workers

    def _do(self, ask: Ask[Any]) -> object:
        match ask.what:
            case "times":
                return self._hosted.explain()
            case "held":
                return self._hosted.held()
            case "read":
                return ReadSoFar(self._hosted.epochs(), self._hosted.ended())
            case "states":
                return self._states()
            case "check_moves":
                self._check_moves()
                return None
            case "gather":
                return self._gather()
            case "close":
                return self._close()
            case _:
                assert_never(ask.what)

    # Workers

    def _begin(self, command: Begin) -> frozenset[Place]:
        """Make workers with their states, open them, and return the live places."""
        setup, program = self._setup, self._loaded
        self._mine = [worker for worker, process in enumerate(command.owners) if process == setup.process]
        self._workers = workers = Workers(
            program,
            parallelism=len(command.owners),
            tracked=setup.tracked,
            debug=setup.debug,
            listed=command.listed,
            parts=command.parts,
            hosted=self._mine,
        )
        workers.begin(command.discovered, command.states, command.changed, command.finished)
        peers = [process for process in range(len(self._links) + 1) if process != setup.process]
        self._exchange = PeerExchange(
            dict(zip(peers, self._links, strict=True)), self._control, command.owners, setup.process, debug=setup.debug
        )
        if self._snapshots is None and setup.debug and setup.tracked:
            self._snapshots = self._made_snapshots()
        if self._snapshots is not None:
            self._snapshots.begin(workers)
        workers.open()
        self._confirmations.note(command.tick)
        return workers.live

    def _add_parts(self, command: AddParts) -> frozenset[Place]:
        self._hosted.take_parts(command.new, command.parts, command.raised)
        return self._hosted.live

    def _give_parts(self, command: GiveParts) -> ToMove:
        from malflow.engine.part_moves import entries_of, give, times_of  # noqa: PLC0415 - in most runs, none moves
        from malflow.runtime.transport.states import dumps_state  # noqa: PLC0415 - as above

        workers, program, move = self._hosted, self._loaded, command.move
        times = times_of(program, move, workers)
        packed = {name: {at: dumps_state(name, it) for at, it in them.items()} for name, them in times.items()}
        size = 0
        states: dict[str, bytes] = {}
        for name, entries in entries_of(program, move, workers).items():
            states[name] = dumps_state(name, entries)
            size += len(states[name])
            if size > command.limit:
                return ToMove(packed, size, {}, {}, {})
        given = give(program, move, workers)
        states |= {name: dumps_state(name, given.states[name]) for name in given.states.keys() - states.keys()}
        return ToMove(packed, None, states, given.ended, given.heard)

    def _take_parts(self, command: TakeParts) -> frozenset[Place]:
        from malflow.engine.part_moves import Given, take  # noqa: PLC0415 - in most runs, none moves
        from malflow.runtime.transport.states import loaded_state  # noqa: PLC0415 - as above

        workers = self._hosted
        states, times = (
            {name: loaded_state(name, data) for name, data in them.items()} for them in (command.states, command.times)
        )
        take(workers, self._loaded, command.move, Given(states, command.ended, command.heard), times)
        return workers.live

    def _check_gone(self, command: CheckGone) -> None:
        for name, parts in command.gone.items():
            self._hosted.check_gone(name, parts)

    def _answer(self, command: AskQuestions) -> list[dict[int, bytes]]:
        from malflow.runtime.transport.states import answered  # noqa: PLC0415 - most runs are asked nothing

        program, stages = self._loaded, self._hosted.stages
        return [
            {
                worker.worker_id: answered(program, worker, asked)
                for worker in stages[asked.stage]
                if asked.asks(asked.stage, worker.worker_id)
            }
            for asked in command.questions
        ]

    def _run_tick(self, command: RunTick) -> Ticked:
        workers, exchange, tick = self._hosted, self._exchange, command.tick
        if exchange is None:
            raise RunFailed("the worker process has no workers yet")
        exchange.begin(tick.number)
        reports = workers.run(tick, exchange)
        output = []
        for number, name, batches in collected(sink for stage in workers.stages for it in stage for sink in it.sinks):
            buffer = ChunkBuffer(name, debug=self._setup.debug)
            buffer.add(batches)
            output += [(number, chunk) for chunk in buffer.take()]
        return Ticked(reports, output)

    def _check_moves(self) -> None:
        for source in self._hosted.sources:
            source.states_to_move(dumps_by_value)

    def _states(self) -> dict[tuple[int, str], bytes]:
        from malflow.runtime.transport.states import dumps_state  # noqa: PLC0415 - for a rescale

        states = self._hosted.states_to_move(dumps_by_value)
        return {place: dumps_state(place[1], state) for place, state in states.items()}

    def _continue_ticks(self, command: ContinueTicks) -> tuple[frozenset[Place], list[Report]]:
        return self._hosted.live, self._hosted.make_up_ticks(command.finished)

    def _made_snapshots(self) -> WorkerSnapshots:
        from multiprocessing.connection import Connection  # noqa: PLC0415 - not before the first snapshot

        from malflow.runtime.processes.worker_snapshots import WorkerSnapshots  # noqa: PLC0415 - as above

        debug = self._setup.debug and self._setup.tracked
        return WorkerSnapshots(Connection(self._files), kept_versions(self._loaded), debug=debug)

    def _capture(self, command: Capture) -> Captured:
        workers = self._hosted
        if self._snapshots is None:
            self._snapshots = self._made_snapshots()
        captured = self._snapshots.capture(workers, command)
        self._confirmations.note(command.tick)
        return captured

    def _settle(self, command: Settle) -> list[tuple[str, bytes]]:
        if self._snapshots is not None:
            self._snapshots.settle(command.tick, command.snapshot)
        errors = self._confirmations.settle(command.tick, command.snapshot)
        return [(name, dumps_error(error)) for name, error in errors if isinstance(error, MalflowError)]

    def _gather(self) -> Gathered:
        """Pickle all state, and close the workers, but not their sinks.

        Raises:
            GraphError: if a reader without a position can't be pickled; nothing has changed then.
            NotPicklable: naming a state that can't be pickled.
        """
        workers = self._hosted
        states = self._states()
        finished = workers.finished_parts()
        workers.park()
        return Gathered(states, finished)

    def _close(self) -> Closed:
        """Close the workers, and return the errors."""
        workers, self._workers = self._workers, None
        errors = []
        try:
            if workers is not None:
                workers.close()
        except MalflowError as error:
            errors.append(dumps_error(error))
        finish_lines()
        return Closed(errors)


def _states_in(command: Any) -> Mapping[str, Mapping[Any, Any]]:
    """Return the states in a command, for an error that names the one that can't be unpickled."""
    by_worker = getattr(command, "states", {})
    return {name: state for states in by_worker.values() for name, state in states.items()}


def _failure(error: BaseException) -> RunFailed:
    """Return the error for a failure of malflow, or of user code outside of operators."""
    failed = RunFailed(f"a worker process has failed: {error_line(error)}")
    failed.__cause__ = error
    return failed


class _CoordinatorIsGone(Exception):
    """The coordinator's process has ended, or has closed its end."""


def _loaded_program(data: bytes) -> Program:
    try:
        classes, program = pickle.loads(data)  # noqa: S301 - of this run
        install_classes(classes)
        loaded: Program
        (loaded,) = pickle.loads(program)  # noqa: S301 - of this run
    except Exception as error:
        raise GraphError(
            f"the dataflow can't be read by a worker process: {error_line(error)}"
            f"{missing_module(error) or '; it is pickled, and everything in it must survive the round trip'}"
        ) from error
    return loaded


def _leave_imports_out() -> None:
    """Exclude everything imported so far from garbage collections, which begin now.

    A collection before it would take a tenth of the start. Imports leave 0.3 MB of garbage.
    """
    gc.freeze()
    gc.enable()
