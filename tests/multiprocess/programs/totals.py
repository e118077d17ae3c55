"""A program that counts and sums numbers by key in worker processes, and writes every running total that it emits.

``python -m tests.multiprocess.programs.totals FOLDER [OPTIONS]`` with the options of `Options`, as JSON. Its state is
that of `tests.processes.programs.counting`, so that the same checks apply. It prints ``restarted N`` when a run is
restarted, ``busy`` when user code is, ``stopping`` when it was told to stop, and ``ended N`` with the number of
restarts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import MultiProcessRuntime, RestartPolicy, SingleThreadRuntime, StreamProvider
from malflow.events import Event, Restarted
from malflow.sinks import JsonLinesSink
from malflow.snapshot import FsspecBackend
from tests.kit.backends import at_once
from tests.processes.programs.counting import RestlessSource, add, as_list, key_of, say, scripts_of, tell_of_stop

FAILPOINT = "MALFLOW_FAILPOINT"


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        size: the count of numbers in each of the three parts, or in the longest one.
        drawn: the seed of the parts: see `tests.processes.programs.counting.parts_of`; 0 for three parts.
        forgets: whether the source leaves a part out now and then.
        start_method: how worker processes are started; "none" runs in one thread.
        processes: the number of worker processes.
        every: the seconds between snapshots; 0 takes one after each tick, on the run's own thread.
        sleep: the seconds that each number takes.
        at: the number (it is in each part) at which `do` happens, once for each folder.
        do: the name of what happens then, in a worker process.
        worker_point: the failpoint of the first worker processes, while that of the environment is the coordinator's.
    """

    size: int = 100
    drawn: int = 0
    forgets: bool = False
    start_method: str = "forkserver"
    processes: int = 2
    every: float = 0
    sleep: float = 0
    at: int = -1
    do: str = "nothing"
    worker_point: str = ""


def loop() -> None:
    """Be busy in Python, for ever."""
    say("busy")
    while True:
        pass


def compute() -> None:
    """Be busy in one call of C, which keeps the interpreter lock for hours."""
    say("busy")
    sum(range(10**14))


def sleep() -> None:
    """Be asleep for an hour."""
    say("busy")
    time.sleep(3600)


def talk() -> None:
    """Print, for ever."""
    say("busy")
    while True:
        print("is anybody there?")
        time.sleep(0.002)


def leak() -> None:
    """Allocate 2 GB and use them."""
    say("busy")
    held = [b"\1" * (1 << 20) for _ in range(2048)]
    say(f"has {len(held)} MB")


def fork() -> None:
    """Fork a child that lives on for an hour."""
    if not os.fork():
        time.sleep(3600)
        os._exit(0)


DEEDS: Mapping[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "loop": loop,
    "compute": compute,
    "sleep": sleep,
    "talk": talk,
    "leak": leak,
    "fork": fork,
}


def is_first(mark: Path) -> bool:
    """Whether no process has asked for this mark before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def pass_by(folder: Path, options: Options, msg: Any, _ctx: Any) -> None:
    """Do what the options say, in a worker process."""
    if options.sleep:
        time.sleep(options.sleep)
    if msg.value == options.at and is_first(folder / "done"):
        DEEDS[options.do]()


def build(folder: Path, options: Options, provider: StreamProvider) -> None:
    """Build the dataflow: running totals by key, into a file and into a folder."""
    source = RestlessSource(scripts_of(options.size, options.drawn), forgets=options.forgets)
    numbers = provider.new_stream().source("numbers", source)
    passed = numbers.inspect("pass", partial(pass_by, folder, options))
    keyed = passed.key_distribute("key", lambda msg: key_of(msg.value))
    totals = keyed.stateful_map("total", add, default=lambda: (0, 0))
    totals.sink("totals", JsonLinesSink[Any, Any, Any](folder / "totals.jsonl", append=True, formatter=as_list))
    totals.sink("parts", JsonLinesSink[Any, Any, Any](f"{folder}/parts/", formatter=as_list))


class Announcer:
    """A listener that prints that the run is restarted; its new processes pass no failpoint."""

    def on_event(self, event: Event, /) -> None:
        """Handle an event."""
        if isinstance(event, Restarted):
            os.environ.pop(FAILPOINT, None)
            say(f"restarted {event.restarts}")


def runtime_of(folder: Path, options: Options) -> MultiProcessRuntime | SingleThreadRuntime:
    """Return the runtime of the program."""
    url = str(folder / "state")
    backend = FsspecBackend(url, job="counting", retain=2) if options.every else at_once(url, job="counting", retain=2)
    every = timedelta(seconds=options.every or 1e-6)
    if options.start_method == "none":
        return SingleThreadRuntime(partial(build, folder, options), backend, every, 3)
    return MultiProcessRuntime(
        partial(build, folder, options),
        backend,
        every,
        3,
        processes=options.processes,
        start_method="spawn" if options.start_method == "spawn" else "forkserver",
        restart=RestartPolicy(attempts=10, backoff=timedelta(milliseconds=10)),
        listeners=[Announcer()],
    )


def main() -> None:
    """Run the program to its end."""
    options = Options(**json.loads(sys.argv[2])) if len(sys.argv) > 2 else Options()
    os.environ.pop(FAILPOINT, None)  # it was read when malflow was imported
    if options.worker_point:
        os.environ[FAILPOINT] = options.worker_point
    runtime = runtime_of(Path(sys.argv[1]), options)
    if options.do != "nothing":
        threading.Thread(target=tell_of_stop, args=[runtime], daemon=True).start()
    runtime.execute()
    say(f"ended {runtime.progress.restarts}")


if __name__ == "__main__":
    main()
