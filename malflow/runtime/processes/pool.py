"""The worker processes of a run: commands to all of them, their replies, and their ends."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from malflow.errors import RunFailed
from malflow.runtime.processes.forwarding import deliver_side
from malflow.runtime.processes.links import wait_for
from malflow.runtime.processes.messages import CLOSE, Closed, Done, Failed, Message, PeerLost, Reply, RunTick, Setup
from malflow.runtime.processes.starting import Launch, StartedProcess, start_all
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.runtime.transport.pickling import dumps

__all__ = ["Pool"]

A = TypeVar("A")

_REST = 5.0
"""The seconds that a process gets to close its workers after a failure, before it is killed."""

_AT_ONCE = 0.5
"""The same after a second signal to stop."""

_TURN = 0.02
"""How often to look whether a process that has closed its workers has ended."""

_LAST_WORDS = 5.0
"""The seconds to wait for the end of a process that has closed its connection, to report how it ended."""

_LOOK = 1.0
"""The seconds after which a silent process is looked at, whether it has ended."""

_Expected: TypeAlias = dict[StartedProcess, Reply | None]

_Started: TypeAlias = tuple[Sequence[StartedProcess], int]
"""The processes, and a file descriptor to close after they have ended."""


class Pool:
    """The worker processes of a run, started in the background: they import their program while this process reads on.

    Args:
        count: the number of processes.
        launch: launches one.
        setup: returns what the process with a number needs to know.
        name_workers: returns the numbers of a process's workers as text, for errors.

    Attributes:
        reader_is_gone: whether the reader of what the processes print has exited (a broken pipe).
    """

    reader_is_gone = False

    def __init__(
        self, count: int, launch: Launch, setup: Callable[[int], Setup], name_workers: Callable[[int], str]
    ) -> None:
        self._name_workers = name_workers
        self._start: Future[_Started] = Future()
        frames = [pickle.dumps(setup(number), 5) for number in range(count)]  # with the settings of this thread
        threading.Thread(target=self._begin, args=(launch, frames), name="malflow-start", daemon=True).start()

    def _begin(self, launch: Launch, frames: Sequence[bytes]) -> None:
        """Start the processes, and send each its program."""
        try:
            started = start_all(len(frames), launch)
        except BaseException as error:  # noqa: BLE001 - the run raises it
            self._start.set_exception(error)
            return
        links = [process.link for process in started[0]]
        for link, frame in zip(links, frames, strict=True):
            link.send(frame)
        wait_for(links, lambda: not any(link.is_sending for link in links))
        self._start.set_result(started)

    @property
    def processes(self) -> Sequence[StartedProcess]:
        """The processes, in the order of their numbers; waits until they have started.

        Raises:
            RunFailed: if a process can't be started.
        """
        return self._start.result()[0]

    def ask_all(self, command: Message[A]) -> list[A]:
        """Send a command to all processes, and return their answers.

        After the error of a tick the processes can only be closed, since others may wait for the one that failed. After
        any other error, all have replied.

        Raises:
            MalflowError: the first error of a process.
            RunFailed: if a process has ended, naming it.
        """
        frame = dumps(command)
        return self._answers([frame] * len(self.processes), in_tick=isinstance(command, RunTick))

    def ask_each(self, commands: Iterable[Message[A]]) -> list[A]:
        """Send each process its own command, and return their answers.

        Raises:
            MalflowError: the first error of a process.
            RunFailed: if a process has ended, naming it.
        """
        return self._answers([dumps(command) for command in commands])

    def _answers(self, frames: Sequence[bytes], *, in_tick: bool = False) -> list[Any]:
        """Send pickled commands, and return the answers; `in_tick`, the first error ends the wait for other replies."""
        for process, frame in zip(self.processes, frames, strict=True):
            process.link.send(frame)
        expected: _Expected = dict.fromkeys(self.processes)
        links = [it.link for it in self.processes]
        while not wait_for(links, lambda: self._has_all(expected, in_tick=in_tick), _LOOK):
            for it in self.processes:
                if it.wait(0.0):
                    wait_for([it.link], lambda link=it.link: not link.is_open, _TURN)  # type: ignore[misc] # as it says
                    it.link.close()  # a child that user code has forked may hold the other end
        self._raise_first(expected.values())
        return [reply.answer for reply in expected.values() if isinstance(reply, Done)]

    def _has_all(self, expected: _Expected, *, in_tick: bool) -> bool:
        """Take the replies that have arrived; return whether all have, or one that ends the command."""
        for process in expected:
            while expected[process] is None and process.link.arrived:
                expected[process] = self._reply_in(process.link.arrived.popleft())
        if in_tick and any(isinstance(it, Failed | PeerLost) for it in expected.values()):
            return True
        missing = [process for process, reply in expected.items() if reply is None]
        return not missing or any(not process.link.is_open for process in missing)

    def _raise_first(self, replies: Iterable[Reply | None]) -> None:
        """Raise the error of a process, unless all have replied."""
        found = list(replies)
        for reply in found:
            if isinstance(reply, Failed):
                raise loaded_error(reply.error)
        for reply in found:
            if isinstance(reply, PeerLost):
                raise self._lost(self.processes[reply.process])
        for process, reply in zip(self.processes, found, strict=True):
            if reply is None and not process.link.is_open:  # others may still work
                raise self._lost(process)

    def _lost(self, process: StartedProcess) -> RunFailed:
        process.wait(_LAST_WORDS)
        workers = self._name_workers(process.number)
        return RunFailed(f"worker process {process.pid}, which ran {workers}, {process.end}")

    def close(self, error: BaseException | None) -> list[Exception]:
        """Close the workers in the processes, end the processes, and return the errors of closing.

        Args:
            error: the error that ended the run, if any; processes that are busy are killed then.
        """
        if self._start.exception() is not None:
            return []  # nothing has started
        processes, life = self._start.result()
        try:
            return self._closed(error)
        finally:
            for it in processes:
                it.close()
            os.close(life)

    def _closed(self, error: BaseException | None) -> list[Exception]:
        seconds = None if error is None else _REST if isinstance(error, Exception) else _AT_ONCE
        deadline = None if seconds is None else time.monotonic() + seconds
        frame = dumps(CLOSE)
        for it in self.processes:
            it.link.send(frame)
        errors: list[bytes] = []
        for it in self.processes:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            errors += self._last_errors(it, left)
        return [loaded_error(data) for data in errors]

    def _last_errors(self, process: StartedProcess, seconds: float | None) -> Sequence[bytes]:
        """Wait until a process has closed its workers and ended; return its errors."""
        closed: list[Closed] = []

        def has_ended() -> bool:
            while process.link.arrived:
                reply = self._reply_in(process.link.arrived.popleft())
                closed.extend([reply.answer] if isinstance(reply, Done) and isinstance(reply.answer, Closed) else [])
            return bool(closed) or not process.link.is_open

        links = [it.link for it in self.processes]
        deadline = None if seconds is None else time.monotonic() + seconds
        while not wait_for(links, has_ended, _TURN):
            if process.wait(0.0) or (deadline is not None and time.monotonic() > deadline):
                break  # a child that user code has forked may hold the other end
        if closed or not process.link.is_open:
            deadline = time.monotonic() + _REST
            while not wait_for([process.link], lambda: has_ended() and not process.link.is_open, _TURN):
                if process.wait(0.0) or time.monotonic() > deadline:
                    break  # as above
            process.wait(_REST)
        return closed[0].errors if closed else ()

    def _reply_in(self, frame: bytearray) -> Reply | None:
        """Return a reply, or None for a message that passes by: text, a log record or a warning."""
        reply: Reply = pickle.loads(frame)  # noqa: S301 - of this run
        if isinstance(reply, Done | Failed | PeerLost):
            return reply
        try:
            deliver_side(reply)
        except BrokenPipeError:
            self.reader_is_gone = True
        return None
