"""A driver whose runs hand out parts, or move them; it, or a process that reads a part, is killed amid a hand-over.

Run it as ``python -m tests.spark.programs.hand_overs FOLDER MASTER``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import DataMessage, SparkRuntime, StreamProvider
from malflow.runtime.coordination.part_mover import PartMover
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.state_moves import StateMoves
from malflow.sinks import TextFileSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.bounded import BoundedSource
from tests.kit.forced_moves import forced_choice
from tests.spark.programs import cluster

WORKERS = 3
HANDED_OUT = {part: 3 + 7 * part % 11 for part in range(30)}
"""The number of records of each part that is handed out; three workers have six of them at once."""

MOVED = {part: 30 + part for part in range(4)}
"""The same for parts that move; they end, but nothing says so."""

_FACTOR = 1000
_MOVES_BEFORE = 3
"""How many moves are made before the one in which something is killed."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        folder: where it keeps everything.
        moves: whether parts move; they are handed out otherwise.
        kill: what is killed, and where; empty for nothing.
        driver: the process of the driver.
    """

    folder: str
    moves: bool = False
    kill: str = ""
    driver: int = 0

    def happens(self, what: str) -> bool:
        """Whether to do something now, for the first time."""
        if what != self.kill:
            return False
        try:
            Path(self.folder, what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @property
    def has_moved(self) -> bool:
        """Whether as many parts have moved as are to move before something is killed."""
        return Path(self.folder, f"move {_MOVES_BEFORE}").exists()


def backend_of(folder: Path | str) -> FsspecBackend:
    """Return the backend of the runs in a folder."""
    return FsspecBackend(f"{folder}/state", job="parts")


def counted(options: Options) -> Callable[[StreamProvider], None]:
    """Count the records of each part where they are read, and write them to a file with their numbers."""
    rows = MOVED if options.moves else HANDED_OUT
    kind = ScriptedSource if options.moves else BoundedSource
    source = kind({part: [it for at in range(n) for it in (_FACTOR * part + at, PAUSE)] for part, n in rows.items()})

    def read(number: int) -> int:
        note_record(options, number)
        return number

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(source)).map("read", read)
        counts = stream.stateful_map("count", lambda _, number, n: ((number, n), n + 1), int)
        counts.sink("file", TextFileSink(f"{options.folder}/written", formatter=_as_line))

    return build


def _as_line(msg: DataMessage[int, tuple[int, int], Any]) -> str:
    number, count = msg.value
    return f"{number} {count}"


def note_record(options: Options, number: int) -> None:
    """Note which attempt of which task reads a record, and kill what is to be killed then."""
    from pyspark import TaskContext  # noqa: PLC0415 - only the extra has it

    task = TaskContext.get()
    if task is None:
        return
    line = [task.stageId(), task.partitionId(), task.attemptNumber(), *divmod(number, _FACTOR)]
    with Path(options.folder, "reads").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(line)}\n")
    part, row = divmod(number, _FACTOR)
    is_handed_over = options.has_moved if options.moves else (row == 0 and part == 20)
    if is_handed_over and options.happens("driver in the tick"):
        os.kill(options.driver, signal.SIGKILL)
    if is_handed_over and options.happens("task in the tick"):
        os.kill(os.getpid(), signal.SIGKILL)


class HandOvers(cluster.Program):
    """The driver, and the run that it drives."""

    def start(self, **options: Any) -> dict[str, Any]:
        """Start a run."""
        chosen = Options(**options, driver=os.getpid())
        if chosen.moves:
            _force_moves(chosen)
        self.handle = SparkRuntime(
            counted(chosen),
            backend_of(chosen.folder),
            timedelta(milliseconds=50),
            WORKERS,
            spark=self.session,
            max_records_per_tick=2 * WORKERS,
            scratch=f"{chosen.folder}/scratch",
        ).start()
        return self.progress()


def _force_moves(options: Options) -> None:
    """Make parts move at drawn ticks, and let the driver die in one of them."""
    begin, write, move = SparkHost._begin_changed, StateMoves.write, PartMover.move

    def begin_changed(host: SparkHost, *what: Any) -> None:
        _die_if(options.has_moved and options.happens("driver before the states"))
        begin(host, *what)
        _die_if(options.has_moved and options.happens("driver before the tick"))

    def write_states(moves: StateMoves, *what: Any) -> Any:
        written = write(moves, *what)
        _die_if(options.has_moved and options.happens("driver after the states"))
        return written

    def counted_move(mover: PartMover, *what: Any) -> None:
        move(mover, *what)
        numbers = (number for number in range(1, 1000) if not Path(options.folder, f"move {number}").exists())
        Path(options.folder, f"move {next(numbers)}").touch()

    SparkHost._begin_changed = begin_changed  # type: ignore[method-assign, assignment] # a part of it dies
    StateMoves.write = write_states  # type: ignore[method-assign, assignment] # as above
    PartMover.move = counted_move  # type: ignore[method-assign, assignment] # it is counted
    PartMover._choose = forced_choice(5)  # type: ignore[method-assign, assignment] # loads say nothing here


def _die_if(is_time: bool) -> None:
    if is_time:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    cluster.main(HandOvers)
