"""A program that counts and sums numbers by key, keeps its state in a folder, and follows further options.

``python -m tests.processes.programs.counting FOLDER [OPTIONS]`` with the options of `Options`, as JSON. It says
``started`` when the first record flows, and writes every running total that it emits into a file.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import StoreError
from malflow.sinks import JsonLinesSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.store.local import LocalStore
from malflow.testing import PAUSE, ScriptedSource
from malflow.testing.scripted import ScriptedPart

PARTS = ("a", "b", "c")
PER_TICK = 10


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        size: how many numbers each of the three parts has.
        parallelism: how many workers there are.
        retain: how many snapshots stay.
        growth: how large increments may become beside their base.
        every: how often a snapshot is taken, in seconds; 0 takes one at the end of every tick that had records.
        sleep: how long each number takes, in seconds.
        writes: whether the running totals are written into a file.
        at: the number (it comes once in each part) at which `do` happens, the first time that it comes.
        do: the name of what happens then.
        barrier: whether to say ``ready`` and wait for a line before running.
        held: a file without which no snapshot is written after that of the start; ``writing`` is said when one waits.
        failing: how many writes fail, as on a full disk, after those of the start.
    """

    size: int = 100
    parallelism: int = 2
    retain: int = 2
    growth: float = 1.0
    every: float = 0
    sleep: float = 0
    writes: bool = True
    at: int = -1
    do: str = "nothing"
    barrier: bool = False
    held: str = ""
    failing: int = 0


@dataclass
class Program:
    """A run of it."""

    folder: Path
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.started = self.done = False
        self.asked: Future[Any] = Future()
        self.asked.set_result(None)
        self.backend = FsspecBackend(
            str(self.folder / "state"),
            job="counting",
            retain=self.options.retain,
            growth=self.options.growth,
            retry_for=timedelta(seconds=0.5),
        )
        every = timedelta(seconds=self.options.every) if self.options.every else None
        self.runtime = SingleThreadRuntime(self.build, self.backend, every, self.options.parallelism)

    def build(self, provider: StreamProvider) -> None:
        size = self.options.size
        chunks = [range(start, min(start + PER_TICK, size)) for start in range(0, size, PER_TICK)]
        script = [item for chunk in chunks for item in (*chunk, PAUSE)]
        source = WaitingSource(dict.fromkeys(PARTS, script), self._is_waiting)
        numbers = provider.new_stream().source("numbers", source)
        keyed = numbers.inspect("pass", self._pass).key_distribute("key", lambda msg: key_of(msg.value))
        totals = keyed.stateful_map("total", add, default=lambda: (0, 0))
        writes = JsonLinesSink[Any, Any, Any](self.folder / "totals.jsonl", append=True, formatter=as_list)
        totals.sink("totals", writes if self.options.writes else VecSink())

    def _pass(self, msg: Any, _ctx: Any) -> None:
        if not self.started:
            self.started = True
            say("started")
        if self.options.sleep:
            time.sleep(self.options.sleep)
        if not self.options.every and msg.value % PER_TICK == 0:
            self._ask_for_snapshot()
        if msg.value == self.options.at and not self.done:
            self.done = True
            DEEDS[self.options.do](self)

    def _ask_for_snapshot(self) -> None:
        """Ask for one at the end of this tick."""
        if not self.runtime._slot.current.mailbox.changes.waiting:
            self.asked = self.runtime.snapshot()

    def _is_waiting(self) -> bool:
        """Whether the snapshot of an earlier tick is still to come."""
        return not self.asked.done() and not self.runtime._slot.current.mailbox.changes.waiting


class WaitingSource(ScriptedSource):
    """A script that goes no further until the snapshot of an earlier tick is there, so that each tick has its own."""

    def __init__(self, script: dict[str, list[Any]], is_waiting: Callable[[], bool]) -> None:
        super().__init__(script)
        self._is_waiting = is_waiting

    def build_part(self, part: Any, state: int | None) -> ScriptedPart:
        """Return a reader that waits."""
        made = super().build_part(part, state)
        poll = made.poll_batch
        made.poll_batch = lambda limit: ([], []) if self._is_waiting() else poll(limit)  # type: ignore[method-assign] # of this one
        return made


def key_of(number: int) -> str:
    """Return a shared key for an even number, and a key of its own for an odd one."""
    return f"own {number}" if number % 2 else f"shared {number % 17}"


def add(_key: str, value: int, so_far: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    count, total = so_far
    return (count + 1, total + value), (count + 1, total + value)


def as_list(msg: Any) -> Any:
    return [msg.key, *msg.value]


def say(word: str) -> None:
    """Say something, in one write."""
    os.write(1, f"{word}\n".encode())


def fork(program: Program) -> None:
    """Continue twice: as the parent, which waits for the child, and as the child."""
    child = os.fork()
    if child:
        say(f"child {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


def until_broken() -> None:
    """Print something until it is no longer read."""
    while True:
        say("is anybody there?")
        time.sleep(0.002)


def starve(_program: Program, slack: int = 64 << 20) -> None:
    """Limit the memory, and allocate more."""
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + slack, size + slack))
    bytearray(1 << 30)


def interrupt(_program: Program) -> None:
    raise KeyboardInterrupt


DEEDS: dict[str, Callable[[Program], object]] = {
    "nothing": lambda program: None,
    "stop": lambda program: program.runtime.stop(),
    "fork": fork,
    "starve": starve,
    "starve at once": lambda program: starve(program, 0),
    "os._exit": lambda program: os._exit(9),
    "sys.exit": lambda program: sys.exit(9),
    "KeyboardInterrupt": interrupt,
    "print": lambda program: until_broken(),
    "abort": lambda program: os.kill(os.getpid(), signal.SIGABRT),
}


def hold(program: Program, path: Path) -> None:
    """Make every write of a snapshot wait for a file, once records flow."""
    write = LocalStore.put_new

    def put_new(self: LocalStore, key: str, data: bytes) -> None:
        if program.started and threading.current_thread() is not threading.main_thread():
            say("writing")
            while not path.exists():
                time.sleep(0.002)
        write(self, key, data)

    LocalStore.put_new = put_new  # type: ignore[method-assign]


def fail(program: Program, times: int) -> None:
    """Make some writes fail, once records flow."""
    write, left = LocalStore.put_new, iter(range(times))

    def put_new(self: LocalStore, key: str, data: bytes) -> None:
        in_background = threading.current_thread() is not threading.main_thread()
        if program.started and in_background and next(left, None) is not None:
            raise StoreError("the disk is full, in a test")
        write(self, key, data)

    LocalStore.put_new = put_new  # type: ignore[method-assign]


def tell_of_stop(runtime: SingleThreadRuntime) -> None:
    """Say when the run was told to stop."""
    while not runtime._slot.current.stopping:
        time.sleep(0.002)
    say("stopping")


def main() -> None:
    logging.basicConfig()
    options = Options(**json.loads(sys.argv[2]))
    program = Program(Path(sys.argv[1]), options)
    if options.held:
        hold(program, Path(options.held))
        threading.Thread(target=tell_of_stop, args=[program.runtime], daemon=True).start()
    if options.failing:
        fail(program, options.failing)
    if options.barrier:
        say("ready")
        sys.stdin.readline()
    program.runtime.execute()


if __name__ == "__main__":
    for ignored in (signal.SIGHUP, signal.SIGQUIT):  # by whoever started the tests, such as nohup
        signal.signal(ignored, signal.SIG_DFL)
    main()
