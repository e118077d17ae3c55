"""A program that counts and sums numbers by key, keeps its state in a folder, and follows further options.

``python -m tests.processes.programs.counting FOLDER [OPTIONS]`` with the options of `Options`, as JSON. It says
``started`` when the first record flows, and writes every running total that it emits into a file.
"""

from __future__ import annotations

import json
import logging
import os
import random
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
        size: how many numbers each of the three parts has, or the longest one.
        drawn: the seed of the parts: see `parts_of`; 0 for three parts.
        forgets: whether the source leaves a part out now and then.
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
    drawn: int = 0
    forgets: bool = False
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
        options = self.options
        source = WaitingSource(scripts_of(options.size, options.drawn), self._is_waiting, forgets=options.forgets)
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


def parts_of(size: int, drawn: int) -> dict[str, int]:
    """Return how many numbers each part has: the same for each of three parts, or drawn ones, one of them long.

    Args:
        size: the most numbers of a part.
        drawn: the seed of the number of parts, their names and their sizes; 0 for three parts.
    """
    if not drawn:
        return dict.fromkeys(PARTS, size)
    rng = random.Random(drawn)  # noqa: S311 - no secret
    names = [f"{rng.choice('abü')}-{rng.getrandbits(20):x}" for _ in range(rng.randint(1, 12))]
    return {name: PER_TICK * rng.randint(0, size // 5 // PER_TICK) if at else size for at, name in enumerate(names)}


def scripts_of(size: int, drawn: int) -> dict[str, list[Any]]:
    """Return the script of each part, with a pause after so many numbers."""
    scripts = {}
    for part, rows in parts_of(size, drawn).items():
        chunks = [range(start, min(start + PER_TICK, rows)) for start in range(0, rows, PER_TICK)]
        scripts[part] = [item for chunk in chunks for item in (*chunk, PAUSE)]
    return scripts


class RestlessSource(ScriptedSource):
    """A script whose parts are listed in another order each time, and one of which may be forgotten.

    Args:
        script: the script.
        forgets: whether a part is left out of some lists.
    """

    def __init__(self, script: dict[str, list[Any]], *, forgets: bool) -> None:
        super().__init__(script)
        self._forgets = forgets

    def list_parts(self) -> list[Any]:
        """Return the parts, or most of them."""
        parts = [*super().list_parts()]
        random.shuffle(parts)
        return parts[1:] if self._forgets and len(parts) > 1 and random.random() < 0.3 else parts  # noqa: S311


class WaitingSource(RestlessSource):
    """A script that goes no further until the snapshot of an earlier tick is there, so that each tick has its own."""

    def __init__(self, script: dict[str, list[Any]], is_waiting: Callable[[], bool], *, forgets: bool) -> None:
        super().__init__(script, forgets=forgets)
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
