"""Parts that move from a worker to another in a run: the results are those of a run without moves."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    MultiProcessRuntime,
    RestartPolicy,
    SingleThreadRuntime,
    SparkRuntime,
    StreamProvider,
    Why,
    agg,
    limit_out_of_orderness,
)
from malflow.engine.parts import balance, reads
from malflow.errors import OperatorError
from malflow.events import Event, PartsKept, PartsMoved, SnapshotCommitted
from malflow.runtime.coordination import part_mover
from malflow.runtime.coordination.part_mover import PartMover
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.conformance.dataflow import SECONDS
from tests.kit.backends import kept_states
from tests.kit.forced_moves import forced_choice
from tests.kit.nights import at_night
from tests.kit.waiting import wait_until

PARTS = {f"part {number}": 10 + 4 * number for number in range(4)}
"""How many records each part has."""


class Events:
    """Collects the events of a run."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def on_event(self, event: Event, /) -> None:
        self.all.append(event)

    def of(self, kind: type) -> list[Any]:
        return [it for it in self.all if isinstance(it, kind)]


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes parts move at drawn ticks, to drawn workers."""

    def force(seed: int) -> None:
        monkeypatch.setattr(PartMover, "_choose", forced_choice(seed))

    return force


def stamps(part: str) -> list[Any]:
    """Return the records of a part: most are in order, and some are late; the time of some parts passes faster."""
    at = [*PARTS].index(part)
    times = [(1 + at) * (row - 3 * (row % 5 == 4)) for row in range(PARTS[part])]
    return [it for row, time in enumerate(times) for it in (Timed(100 * at + row, time), PAUSE)]


def counted(out: Any) -> Callable[[StreamProvider], None]:
    """Count the records of each part, in windows too, and of all parts after an exchange, with those that are late."""

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource({part: stamps(part) for part in PARTS})
        stream = provider.new_stream().source("parts", StatefulSource(source))
        stream.stateful_map("count", lambda part, _, n: ((part, n + 1), n + 1), int).sink("counts", out)
        stream.map("try", not_of_part_1, on_error="dead_letter").sink("tried", VecSink())
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(1))
        late.map("late", lambda row: ("late", row)).sink("late out", out)
        by_part = on_time.window(tumbling(10)).aggregate("windows", agg.count())
        by_part.map("window", lambda it: ("window", it.start, it.value)).sink("window out", out)
        spread = on_time.key_distribute("digit", lambda msg: msg.value % 3)
        of_all = spread.window(tumbling(10)).aggregate("all windows", agg.count())
        of_all.map("digits", lambda it: ("digit", it.start, it.value)).sink("all out", out)

    return build


def not_of_part_1(number: int) -> int:
    """Return a number.

    Raises:
        ValueError: if it is of one of the parts, and divisible by five.
    """
    if number // 100 == 1 and number % 5 == 0:
        raise ValueError(number)
    return number


OFTEN = timedelta(milliseconds=20)


def counting(mapper: Callable[[int], int]) -> Callable[[StreamProvider], None]:
    """Count the records of each part, with a function that may fail."""

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource({part: stamps(part) for part in PARTS})
        stream = provider.new_stream().source("parts", StatefulSource(source)).map("may fail", mapper)
        stream.stateful_map("count", lambda _part, _, n: (n + 1, n + 1), int).sink("out", VecSink())

    return build


def results(runtime: Any, *arguments: Any, **options: Any) -> Counter[Any]:
    out: VecSink[Any, Any, Any] = VecSink()
    runtime(counted(out), *arguments, at_end="finish", **options).execute()
    return Counter((it.key, it.value) for it in out)


@pytest.mark.parametrize("seed", at_night(range(3), but=[0]))
def test_results_and_snapshots_with_moves(
    any_parallelism: Any, store: FsspecBackend, forced: Callable[[int], None], seed: int
) -> None:
    expected = results(any_parallelism, parallelism=3)
    forced(seed)
    events = Events()
    often = timedelta(milliseconds=1)
    assert results(any_parallelism, store, snapshots=often, parallelism=3, listeners=[events]) == expected
    moves, snapshots = ({it.tick for it in events.of(kind)} for kind in (PartsMoved, SnapshotCommitted))
    assert len(moves) > 3
    assert len(snapshots) > 3
    assert not moves & snapshots, "a move in the tick of a snapshot"
    assert kept_states(store, "count") == PARTS
    letters = Counter((it.key, it.value) for it in dead_letters(store))
    assert letters == Counter(("part 1", 100 + row) for row in range(0, PARTS["part 1"], 5))


class Failing:
    """Fails now and then: at each record with one of these numbers, once in all processes."""

    def __init__(self, folder: Path, at: Sequence[int], fail: Callable[[], None]) -> None:
        self.folder, self.at, self.fail = folder, at, fail

    def __call__(self, value: int) -> int:
        if value in self.at:
            try:
                (self.folder / f"failed {value}").touch(exist_ok=False)
            except FileExistsError:
                return value
            self.fail()
        return value


def broken() -> None:
    """Fail.

    Raises:
        ValueError: always.
    """
    raise ValueError("broken")


def killed() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_states_after_failures_in_the_middle(
    any_parallelism: Any, store: FsspecBackend, forced: Callable[[int], None], tmp_path: Path
) -> None:
    """Each run ends by an error after some moves; the next one continues, with as many workers or others."""
    forced(7)
    failing = Failing(tmp_path, (4, 108, 213, 318), broken)
    for workers in (3, 3, 2, 4):
        with pytest.raises(OperatorError):
            any_parallelism(counting(failing), store, OFTEN, parallelism=workers).execute()
    any_parallelism(counting(failing), store, OFTEN, parallelism=3).execute()
    assert kept_states(store, "count") == PARTS


def test_states_after_processes_were_killed(
    tmp_path: Path, store: FsspecBackend, forced: Callable[[int], None]
) -> None:
    forced(9)
    failing = Failing(tmp_path, (6, 215), killed)
    MultiProcessRuntime(
        counting(failing), store, OFTEN, processes=2, parallelism=3, restart=RestartPolicy(9, timedelta(0))
    ).execute()
    assert kept_states(store, "count") == PARTS
    assert len([*tmp_path.glob("failed *")]) == 2


def test_a_part_with_too_much_state_stays(
    forced: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forced(3)
    monkeypatch.setattr(part_mover, "LARGEST", 2)
    events = Events()
    out: VecSink[Any, Any, Any] = VecSink()
    MultiProcessRuntime(counted(out), processes=2, parallelism=2, listeners=[events], at_end="finish").execute()
    expected: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(counted(expected), at_end="finish").execute()
    assert sorted(map(str, out.values)) == sorted(map(str, expected.values))
    kept = events.of(PartsKept)
    assert kept
    assert all(it.bytes > it.limit == 2 for it in kept)
    assert "should move from worker" in caplog.text


class Endless(StatefulSourceImpl[str, int, None, int]):
    """Parts that never end: the first two give records at each poll, and the others none."""

    def list_parts(self) -> list[str]:
        return ["busy", "silent", "busy too", "silent too"]

    def build_part(self, part: str, state: int | None) -> EndlessPart:
        return EndlessPart(part, state or 0)


class EndlessPart(StatefulSourcePartition[int, None, int]):
    """Numbers, or nothing."""

    def __init__(self, part: str, number: int) -> None:
        self.part, self.number = part, number

    def poll(self) -> tuple[int, None] | None:
        self.number += self.part.startswith("busy")
        return (self.number, None) if self.part.startswith("busy") else None

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self.number


def slowly(number: int) -> int:
    """Return a number, after a while in which the processor is busy."""
    time.sleep(0.002)
    return number


@pytest.mark.slow
@pytest.mark.parametrize(
    "with_spark",
    [False, pytest.param(True, marks=[pytest.mark.spark, pytest.mark.nightly])],
    ids=["processes", "spark"],
)
def test_a_part_of_a_busy_worker_moves_to_an_idle_one(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
    store: FsspecBackend,
    with_spark: bool,
) -> None:
    caplog.set_level("INFO", "malflow")
    for module, name, seconds in (
        (balance, "_LASTING", 1.0),
        (balance, "_PAUSE", 1.0),
        (part_mover, "_EVERY", 0.2),
        (reads, "_EVERY", 0.2),
        (reads, "_SECONDS", 1.0),
    ):
        monkeypatch.setattr(module, name, seconds)

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(Endless())).map("slow", slowly)
        stream.stateful_map("in order", next_of, int).sink("out", VecSink())

    events = Events()
    how: dict[str, Any] = {"parallelism": 2, "listeners": [events]}
    if with_spark:
        runtime: Any = SparkRuntime(build, store, spark=request.getfixturevalue("spark"), **how)
    else:
        runtime = MultiProcessRuntime(build, store, processes=2, **how)
    handle = runtime.start()
    wait_until(lambda: bool(events.of(PartsMoved)), SECONDS)
    (move,) = events.of(PartsMoved)
    assert (move.source, move.before, move.after) == ("parts", 0, 1)
    assert move.parts[0].startswith("busy")
    assert re.search(r"part 'busy.*' of source 'parts' moved from worker 0 to worker 1: worker 0 was busy", caplog.text)
    tick = handle.progress.tick
    more = 8 if with_spark else 30
    wait_until(lambda: handle.progress.tick > tick + more, SECONDS)
    handle.stop()
    assert handle.await_termination(SECONDS)
    assert len(events.of(PartsMoved)) == 1, "the loads are even now"
    places = {part: it.worker for part, it in handle.progress.parts["parts"].items()}
    assert {places["busy"], places["busy too"]} == {0, 1}
    read = {part: it.records for part, it in handle.progress.parts["parts"].items() if it.records}
    assert kept_states(store, "in order") == read


@pytest.mark.slow
def test_uneven_parts_are_the_cause_why_a_run_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_EVERY", 0.2)

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("parts", StatefulSource(Endless())).map("slow", slowly).sink("out", VecSink())

    handle = MultiProcessRuntime(build, processes=2, parallelism=2, move_parts=False).start()
    answers: list[Why] = []

    def is_uneven() -> bool:
        answers.append(handle.why(timeout=SECONDS))
        return answers[-1].cause == "uneven_parts"

    wait_until(is_uneven, SECONDS)
    handle.stop()
    assert handle.await_termination(SECONDS)
    assert answers[-1].stops_at == "parts"
    assert all(f"'{part}' of 'parts'" in answers[-1].text for part in ("busy", "busy too"))


def next_of(_part: str, number: int, last: int) -> tuple[int, int]:
    """Return a number that follows the last one of its part.

    Raises:
        ValueError: if it does not follow.
    """
    if number != last + 1:
        raise ValueError(f"{number} follows {last}")
    return number, number


def test_parts_stay_if_the_run_says_so(forced: Callable[[int], None], any_parallelism: Any) -> None:
    forced(3)
    events = Events()
    results(any_parallelism, parallelism=3, move_parts=False, listeners=[events])
    assert not events.of(PartsMoved)
