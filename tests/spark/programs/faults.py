"""A dataflow that sums numbers by key while its user functions fail, once or each time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from malflow import DataMessage, StreamProvider
from malflow.runtime.spark.tasks import stage as stage_attempt
from malflow.runtime.spark.tasks.stage_output import read_output
from malflow.sinks import StatelessSink, StatelessSinkImpl, TextFileSink
from malflow.snapshot import FsspecBackend
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from tests.spark.flows import KEYS, PARTS, WRITTEN, as_line
from tests.spark.programs.writes import KILLS, Deadly, arm

SIGNING_KEY = "a key of sixteen bytes or more"
REPEATED = "repeated"


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        folder: where it keeps everything.
        size: how many numbers each of the three parts has.
        parallelism: how many workers there are.
        most: how many records a tick has at most.
        every: how often a snapshot is taken, in seconds; 0 takes one at the end only.
        attempts: how often it is started again.
        restore: the snapshot to begin with.
        scratch: where the changes lie, if not in the folder.
        deeds: what happens: the function in which, ``check`` before the exchange or ``sum`` after it, the number at
            which, and the name of it.
        local: where Spark has its own files.
        state: where the snapshots lie, if not in the folder.
        storage_options: what is needed to open what lies elsewhere.
        sleep: how long each number takes, in seconds.
        breaks_at: the number at which the sink breaks, where there is to be one that writes where the workers are.
        kills: who is killed while a file of a snapshot is written, and where.
        anchorless: whether PySpark lacks a door that anchors need.
        asks: whether a thread asks for the sums until the run ends.
        fails: whether another function fails for some numbers, while the run continues.
    """

    folder: str
    size: int = 120
    parallelism: int = 3
    most: int = 150
    every: float = 0.5
    attempts: int = 3
    restore: str | None = "latest"
    scratch: str = ""
    state: str = ""
    storage_options: Mapping[str, Any] | None = None
    deeds: Sequence[tuple[str, int, str]] = ()
    local: str = ""
    sleep: float = 0
    breaks_at: int | None = None
    kills: Sequence[str] = ()
    anchorless: bool = False
    asks: bool = False
    fails: bool = False

    def do(self, where: str, number: int) -> None:
        """Do what is to be done here."""
        for place, at, deed in self.deeds:
            if (place, at) == (where, number):
                DEEDS[deed](self, f"{deed} at {at} in {where}")

    def happened(self, name: str) -> bool:
        """Note that something has happened; return whether it had happened before."""
        try:
            mark = os.open(Path(self.folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return True
        os.close(mark)
        return False

    def count(self, name: str) -> int:
        """Count how often this was called."""
        return next(number for number in count(1) if not self.happened(f"{name} {number}"))


def backend_of(options: Options) -> FsspecBackend:
    """Return the backend, with short retries."""
    return FsspecBackend(
        options.state or f"{options.folder}/state",
        job="sums",
        storage_options=options.storage_options,
        signing_key=SIGNING_KEY,
        retry_for=timedelta(seconds=2),
        codec=Deadly(options) if options.kills else "pickle",
    )


def faulty(options: Options, out: Any) -> Callable[[StreamProvider], None]:
    """Add up numbers by key; at one of them something happens."""

    def check(value: int) -> int:
        note_repetitions(options)
        if options.sleep:
            time.sleep(options.sleep)
        with Path(options.folder, "checks").open("a", encoding="utf-8") as file:
            file.write(f"{value} ")
        options.do("check", value)
        return value

    def add(_key: Any, value: int, total: int) -> tuple[int, int]:
        options.do("sum", value)
        return total + value, total + value

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", Numbers(options))
        keyed = numbers.map("check", check).key_distribute("key", lambda msg: msg.value % KEYS)
        sums = keyed.stateful_map("sum", add, default=int)
        sums.sink("out", StatelessSink(out))
        sums.sink("file", TextFileSink(f"{options.folder}/{WRITTEN}", formatter=as_line))
        if options.fails:
            numbers.map("some", one_of_five, on_error="dead_letter").key_distribute("own", lambda msg: msg.value % KEYS)
        if options.breaks_at is not None:
            sums.sink("half", StatelessSink(Half(options)))

    return build


def one_of_five(value: int) -> int:
    """Fail for one number in five."""
    if value % 5 == 0:
        raise ValueError(f"{value} is one of five")
    return value


def note_repetitions(options: Options) -> None:
    """Note, from now on in this process, that a task sends what an earlier attempt has sent."""

    def noted(*what: Any) -> Any:
        options.happened(REPEATED)
        return read_output(*what)

    vars(stage_attempt)["read_output"] = noted


class Numbers(StatefulSourceImpl[str, int, int, int]):
    """Numbers from zero on in each part."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def list_parts(self) -> list[str]:
        return list(PARTS)

    def build_part(self, part: str, state: int | None) -> NumbersPart:
        del part
        return NumbersPart(self.options, state or 0)


class NumbersPart(StatefulSourcePartition[int, int, int]):
    """One part."""

    def __init__(self, options: Options, position: int) -> None:
        self.options = options
        self.position = position

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        values = list(range(self.position, min(self.position + limit, self.options.size)))
        self.position += len(values)
        return values, values

    def poll(self) -> tuple[int, int] | None:
        values, _ = self.poll_batch(1)
        return (values[0], values[0]) if values else None

    def is_finished(self) -> bool:
        return self.position >= self.options.size

    def snapshot(self) -> int:
        return self.position

    def collect(self) -> int:
        return self.position


class Half(StatelessSinkImpl[Any, Any, Any]):
    """Writes lines, and fails once behind one: at the second record with the timestamp."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        is_second = msg.timestamp == self.options.breaks_at and self.options.happened("half")
        if is_second and not self.options.happened("broken"):
            raise OSError("the pipe is broken")
        with Path(self.options.folder, "lines").open("a", encoding="utf-8") as file:
            file.write(f"{msg.key} {msg.value}\n")


def die_once(options: Options, mark: str) -> None:
    """End the process as the system does when memory is short."""
    if not options.happened(mark):
        os.kill(os.getpid(), signal.SIGKILL)


def run_out_of_memory_once(options: Options, mark: str) -> None:
    """Ask for more memory than there is."""
    if not options.happened(mark):
        raise MemoryError


def raise_twice(options: Options, mark: str) -> None:
    """Fail, fail, and work."""
    if options.count(mark) <= 2:
        raise ConnectionError("nobody answers")


def raise_always(options: Options, mark: str) -> None:
    """Fail."""
    options.count(mark)
    raise ValueError("it is poison")


def lose_shuffle(options: Options, mark: str) -> None:
    """Remove what Spark has written for later tasks, once."""
    if options.happened(mark.partition(" ")[0]):
        return
    for file in Path(options.local).rglob("shuffle_*"):
        with suppress(FileNotFoundError):
            file.unlink()
            options.happened("lost")


def lose_shuffle_and_die(options: Options, mark: str) -> None:
    """Remove what Spark has written, and end a process when it has written down what changed."""
    lose_shuffle(options, mark)
    arm(options, _scratch(options), {"worker linked": "worker linked"})


def lose_scratch(options: Options, mark: str) -> None:
    """Remove the changes of all ticks before, and end the process, which had them in memory."""
    if not options.happened(mark):
        for file in _changes(options):
            file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def flip_scratch(options: Options, mark: str) -> None:
    """Flip a bit in the changes of all ticks before, and end the process, which had them in memory."""
    if not options.happened(mark):
        for file in _changes(options):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        os.kill(os.getpid(), signal.SIGKILL)


def kill_in_write(options: Options, mark: str) -> None:
    """Kill while the changes of this tick are written."""
    arm(options, _scratch(options), {mark: mark.partition(" at ")[0]})


def _scratch(options: Options) -> Path:
    return Path(options.scratch or f"{options.folder}/scratch")


def _changes(options: Options) -> list[Path]:
    files = [file for file in _scratch(options).rglob("*") if file.is_file()]
    assert files
    return files


DEEDS: dict[str, Callable[[Options, str], None]] = {  # type: ignore[assignment] # mypy takes the first one's type
    deed.__name__: deed
    for deed in (
        die_once,
        run_out_of_memory_once,
        raise_twice,
        raise_always,
        lose_shuffle,
        lose_shuffle_and_die,
        lose_scratch,
        flip_scratch,
    )
} | dict.fromkeys(KILLS, kill_in_write)
