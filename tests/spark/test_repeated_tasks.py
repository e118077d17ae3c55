"""Tasks that are tried again send output that matches their state, whatever their functions return the second time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import OnError, Retry, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.runtime.spark.tasks import stage_output
from malflow.sinks import StatelessSink, StatelessSinkImpl, VecSink
from malflow.snapshot import dead_letters
from malflow.sources import StatefulSource
from malflow.sources.contract import Rejected, StatefulSourceImpl
from tests.kit.backends import in_memory, kept_states
from tests.spark.clusters import SECONDS, need_spark
from tests.spark.programs import desks as programs
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")

KEYS = 3
RECORDS = 60
COUNTER = count()


class Thing:
    """An element of a set, placed in it by its address."""


def first_of_a_set() -> int:
    """Draw from the order of a set, which differs from one process to the next."""
    return [*{Thing() if number else None: number for number in range(9)}.values()].index(0) + next(COUNTER) % 2


DRAWS: dict[str, Callable[[], Any]] = {
    "clock": time.time_ns,
    "uuid": lambda: uuid.uuid4().hex,
    "random": random.random,
    "counter": lambda: next(COUNTER),
    "set": first_of_a_set,
}
"""Functions that answer differently when they are called again."""


class Rising(StatefulSourceImpl[str, int, int, int]):
    """Numbers in two parts."""

    def list_parts(self) -> list[str]:
        return ["a", "b"]

    def build_part(self, part: str, state: int | None) -> Any:
        return RisingPart(state or 0)


class RisingPart:
    """Returns some more numbers; how many is drawn, so that no poll can be repeated."""

    def __init__(self, at: int) -> None:
        self.at = at

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        values = [*range(self.at, min(RECORDS, self.at + 1 + next(COUNTER) % min(limit, 7)))]
        self.at += len(values)
        return values, values

    def is_finished(self) -> bool:
        return self.at >= RECORDS

    def snapshot(self) -> int:
        return self.at


class Flaky(StatelessSinkImpl[Any, Any, Any]):
    """A sink on the workers, some of whose calls fail half-way.

    Args:
        fails: the numbers of the calls of `flush` that fail.
    """

    def __init__(self, fails: frozenset[int]) -> None:
        self.fails = fails
        self.flushes = 0
        self.seen: list[tuple[Any, Any]] = []

    def __reduce__(self) -> Any:
        return flaky_now, ()

    def sink(self, msg: Any) -> None:
        self.seen.append((msg.key, msg.value))

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes in self.fails:
            raise ConnectionError("the network is down")


FLAKY: list[Flaky] = []
"""The sink of the simulated processes, which are all in this one."""


def flaky_now() -> Flaky:
    return FLAKY[0]


def drawn(draw: Callable[[], Any]) -> Callable[[Any, Any, Any], Any]:
    """Draw for each record; the state is the list of what was emitted."""

    def mapper(_key: Any, value: Any, held: list[Any]) -> Any:
        out = value, draw()
        return out, [*held, out]

    return mapper


def program_of(name: str, sinks: dict[str, Any], flaky: Flaky) -> Program:
    """Draw before an exchange, with and without a state, and after it twice, with and without a state."""
    draw, graph = DRAWS[name], Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", StatefulSource(Rising()))
    early = numbers.map("early", lambda value: (value, draw()))
    other = early.key_distribute("other", lambda msg: msg.value[0] % KEYS)
    other.stateful_map("others", lambda _key, value, held: (value, [*held, value]), default=list).sink(
        "others-out", StatelessSink(sinks["others"])
    )
    first = early.key_distribute("key", lambda msg: msg.value[0] % KEYS).stateful_map(
        "first", drawn(draw), default=list
    )
    first.sink("first-out", StatelessSink(sinks["first"]))
    first.sink("flaky", StatelessSink(flaky))
    late = first.map("late", lambda value: (value, draw())).key_distribute("again", lambda msg: msg.value[0][0][0] % 2)
    plain = late.map("plain", lambda value: (value, draw())).key_distribute("last", lambda msg: msg.key)
    plain.stateful_map("second", drawn(draw), default=list).sink("second-out", StatelessSink(sinks["second"]))
    return compile_graph(graph)


plans = st.lists(
    st.builds(
        Plan,
        places=st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple),
        again=st.frozensets(st.integers(0, 7), max_size=4),
        killed=st.none() | st.integers(0, 3),
        asks=st.booleans(),
    ),
    max_size=12,
)


@pytest.mark.fault("I2", "I3")
@settings(max_examples=max(8, settings().max_examples // 6))  # each is a run with a hundred stages
@given(
    name=st.sampled_from(sorted(DRAWS)),
    plans=plans,
    fails=st.frozensets(st.integers(1, 40), max_size=8),
    small=st.sampled_from([0, 200, 64 << 10]),
    piece=st.sampled_from([1, 500, 4 << 20]),
)
@pytest.mark.slow
def test_repeated_tasks_send_only_what_their_state_holds(
    name: str, plans: list[Plan], fails: frozenset[int], small: int, piece: int
) -> None:
    sinks: dict[str, Any] = {it: VecSink() for it in ("others", "first", "second")}
    FLAKY[:] = [flaky] = [Flaky(fails)]
    backend = in_memory()
    with tempfile.TemporaryDirectory() as scratch, simulated(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(stage_output, "_SMALL", small)
        patched.setattr(stage_output, "_PIECE", piece)

        def check_that_pieces_are_removed(_job: Any, _coordinator: Any) -> None:
            assert not [it.name for it in Path(scratch).rglob("*-*-*-*") if it.is_file()]

        cluster = Cluster(plans, check_that_pieces_are_removed, tries=10)
        cluster.run(program_of(name, sinks, flaky), settings_at(scratch, backend), 2)
    states = {it: kept_states(backend, it) for it in sinks}
    for it, sink in sinks.items():
        sent: dict[Any, list[Any]] = {}
        for message in sink:
            sent.setdefault(message.key, []).append(message.value)
        assert sent == states[it]
    assert Counter(values_of(states["others"])) == Counter(value for value, _ in values_of(states["first"]))
    assert Counter(values_of(states["first"])) == Counter(it[0][0][0] for it in values_of(states["second"]))
    assert Counter(value for value, _ in values_of(states["others"])) == dict.fromkeys(range(RECORDS), 2)
    assert {value for _, value in flaky.seen} >= {*values_of(states["first"])}


def values_of(states: dict[Any, list[Any]]) -> list[Any]:
    return [value for held in states.values() for value in held]


def bad_fifth(value: int) -> int:
    """Fail at each fifth number, with a text that differs each time but for an address."""
    if value % 5 == 0:
        raise ValueError(f"{value} at {object()} in {hex(id(object()) + next(COUNTER))}")
    return value


def add(_key: Any, value: int, held: list[int]) -> Any:
    """Fail at each seventh number, after the state has changed."""
    held.append(value)
    return value // (value % 7) * 0 + value, held


def letters_of(sink: Any) -> Program:
    """Take the letters of an operator before the exchange, and keep those of one after it."""
    graph = Graph()
    provider = StreamProvider(graph)
    numbers = provider.new_stream().source("numbers", StatefulSource(Rising()))
    keyed = numbers.map("early", bad_fifth, on_error="dead_letter").key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("add", add, list, on_error="dead_letter").sink("out", StatelessSink(VecSink()))
    provider.on_dead_letters(lambda letters: letters.sink("letters", StatelessSink(sink)), ["early"])
    return compile_graph(graph)


@pytest.mark.fault("M7")
@settings(max_examples=max(8, settings().max_examples // 6))
@given(plans=plans)
@pytest.mark.slow
def test_repeated_tasks_make_each_dead_letter_once(plans: list[Plan]) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    backend = in_memory()
    with tempfile.TemporaryDirectory() as scratch, simulated():
        cluster = Cluster(plans, lambda _job, _coordinator: None, tries=10)
        cluster.run(letters_of(sink), settings_at(scratch, backend), 2)
    taken, kept = sink.values, [*dead_letters(backend, "add")]
    good = [value for value in range(RECORDS) if value % 5]
    assert Counter(it.value for it in taken) == dict.fromkeys(range(0, RECORDS, 5), 2)
    assert Counter(it.value for it in kept) == {value: 2 for value in good if value % 7 == 0}
    assert all(len({it.id for it in them}) == len(them) for them in (taken, kept))
    added = Counter(values_of(kept_states(backend, "add")))
    assert added == {value: 2 for value in good if value % 7}


class Bad(Rising):
    """Numbers; multiples of 11 can't be read."""

    policy = OnError("dead_letter")

    def build_part(self, part: str, state: int | None) -> Any:
        return BadPart(state or 0)

    def with_policy(self, policy: OnError) -> Bad:
        return self


class BadPart(RisingPart):
    """Rejects multiples of 11."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.rejected: list[Rejected] = []

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        values, _ = super().poll_batch(limit)
        self.rejected += [Rejected(it, it, f"at {it}", "Bad", "no") for it in values if it % 11 == 0]
        read = [it for it in values if it % 11]
        return read, read

    def take_rejected(self) -> list[Rejected]:
        rejected, self.rejected = self.rejected, []
        return rejected


TRIED: set[int] = set()


def at_second_try(value: int) -> int:
    """Fail on the first attempt in this process, so that a repeated task has fewer failures."""
    if value % 2 and value not in TRIED:
        TRIED.add(value)
        raise TimeoutError
    return value


def seventh_fails(_key: int, value: int, seen: list[int]) -> tuple[int, list[int]]:
    """Note a value, then fail for each seventh."""
    seen.append(value)
    if value % 7 == 0:
        raise ValueError(value)
    return value, seen


def parked() -> Program:
    """Read the readable records, retry, and park keys."""
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", StatefulSource(Bad()))
    retry = OnError("dead_letter", retry=Retry(2, first=0))
    keyed = numbers.map("try", at_second_try, on_error=retry).key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("park", seventh_fails, list, on_error="park").sink("out", StatelessSink(VecSink()))
    return compile_graph(graph)


@pytest.mark.fault("N12")
@pytest.mark.fault("N14")
@settings(max_examples=max(8, settings().max_examples // 6))
@given(plans=plans)
@pytest.mark.slow
def test_repeated_tasks_park_retry_and_reject_once(plans: list[Plan]) -> None:
    TRIED.clear()
    backend = in_memory()
    with tempfile.TemporaryDirectory() as scratch, simulated():
        Cluster(plans, lambda _job, _coordinator: None, tries=10).run(parked(), settings_at(scratch, backend), 2)
    assert Counter(it.value for it in dead_letters(backend, "numbers")) == dict.fromkeys(range(0, RECORDS, 11), 2)
    assert list(dead_letters(backend, "try")) == []
    done = {key: list(seen) for key, seen in kept_states(backend, "park").items()}
    waiting: dict[int, list[tuple[int, int]]] = {}
    for it in dead_letters(backend, "park"):
        waiting.setdefault(it.key, []).append((it.value, it.attempts))
    for key in range(KEYS):
        values = [value for value in range(RECORDS) if value % KEYS == key and value % 11] * 2
        letters = waiting.get(key, [])
        assert sorted([*done.get(key, []), *(value for value, _ in letters)]) == sorted(values)
        assert all(value % 7 for value in done.get(key, []))
        assert [attempts for _, attempts in letters] == [1, *([0] * (len(letters) - 1))][: len(letters)]
        assert not letters or letters[0][0] % 7 == 0


@pytest.mark.fault("I3")
@pytest.mark.spark
@pytest.mark.nightly
def test_a_desk_of_a_set_is_given_away_once_on_spark(tmp_path: Path) -> None:
    need_spark()
    command = [sys.executable, "-m", "tests.spark.programs.desks", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / programs.FAILED).exists()
    given = [json.loads(line) for line in (tmp_path / programs.GIVEN).read_text(encoding="utf-8").splitlines()]
    assert sorted(given) == sorted(programs.desks())
    assert kept_states(programs.backend_at(str(tmp_path)), "give") == {"office": set()}
