"""Streams that are keyed by the parts of their source: states are where the parts are, however these are dealt."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.conformance.dataflow import SECONDS
from tests.kit.backends import kept_states
from tests.kit.waiting import wait_until

PARTS = {f"part {number}": 12 + 5 * number for number in range(7)}
"""How many records each part has."""


def counted(source: Any, out: Any, mapper: Any = str) -> Any:
    """Count the records of each part, right after the source and in windows."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(source)).map("slow", mapper)
        stream.stateful_map("count", lambda part, _, n: ((part, n + 1), n + 1), int).sink("counts", out)
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        windows = on_time.window(tumbling(10)).aggregate("windows", agg.count())
        windows.map("window", lambda it: (it.start, it.value)).sink("window counts", VecSink())

    return build


def slow(value: Any) -> Any:
    """Return the value after a while, in which a run can be asked something."""
    time.sleep(0.005)
    return value


def scripted(ends: int = 4) -> ScriptedSource:
    """Return parts that end a few times before their last record."""
    script: dict[str, list[Any]] = {}
    for part, rows in PARTS.items():
        at = [rows * number // (ends + 1) for number in range(1, ends + 1)]
        script[part] = [it for row in range(rows) for it in ([END] if row in at else []) + [Timed(row, row), PAUSE]]
    return ScriptedSource(script)


def test_states_follow_their_parts_to_any_number_of_workers(any_parallelism: Any, store: FsspecBackend) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    source = scripted()
    for workers in (2, 3, 3, 1, any_parallelism.keywords["parallelism"]):
        any_parallelism(counted(source, out), store, parallelism=workers).execute()
    assert kept_states(store, "count") == PARTS
    assert sorted(out.values) == sorted((part, count + 1) for part, rows in PARTS.items() for count in range(rows))


def test_states_follow_their_parts_in_a_rescale(any_parallelism: Any, store: FsspecBackend) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    handle = any_parallelism(counted(scripted(0), out, slow), store).start()
    for workers in (3, 2, 4, 1, 2):
        handle.rescale(workers).result(SECONDS)
    assert handle.await_termination(SECONDS)
    assert kept_states(store, "count") == PARTS
    assert sorted(out.values) == sorted((part, count + 1) for part, rows in PARTS.items() for count in range(rows))


def test_streams_keyed_by_equal_parts_meet(any_parallelism: Any, store: FsspecBackend) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    left = ScriptedSource({part: [1, PAUSE, 2, END, 3] for part in range(5)})
    right = ScriptedSource({float(part): [10, END, 20, PAUSE, 30] for part in (4, 2, 0, 1, 3)})

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("left", StatefulSource(left))
        tens = provider.new_stream().source("right", StatefulSource(right))
        both = numbers.union(tens, name="both")
        both.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("out", out)

    for workers in (2, 4, 3):
        any_parallelism(build, store, parallelism=workers).execute()
    assert kept_states(store, "sum") == dict.fromkeys(range(5), 66)
    assert len(out.values) == 5 * 6


def test_parts_meet_keys_that_are_hashed(any_parallelism: Any, store: FsspecBackend) -> None:
    parts = ScriptedSource({part: [1, PAUSE, 2, END, 3] for part in range(5)})
    other = ScriptedSource([*range(5), END, *range(5)])
    beside = ScriptedSource({("beside", part): [1, END, 1] for part in range(6)})

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("parts", StatefulSource(parts))
        keyed = (
            provider.new_stream().source("other", StatefulSource(other)).key_distribute("key", lambda msg: msg.value)
        )
        both = numbers.union(keyed.map("ten", lambda _: 10), name="both")
        both.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("out", VecSink())
        more = provider.new_stream().source("beside", StatefulSource(beside))
        more.stateful_map("count", lambda _, value, total: (total + value, total + value), int).sink("o", VecSink())

    for workers in (2, 4, 3):
        any_parallelism(build, store, parallelism=workers).execute()
    assert kept_states(store, "sum") == dict.fromkeys(range(5), 26)
    assert kept_states(store, "count") == {("beside", part): 2 for part in range(6)}


def test_tables_of_parts_are_joined_by_other_keys(any_parallelism: Any, store: FsspecBackend) -> None:
    people = ScriptedSource({part: [(part, (part + 2) % 6), END, (-part, part + 1)] for part in range(5)})
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("people", StatefulSource(people)).to_table("rows")
        pairs = rows.join("pairs", rows, lambda one, other: (one, other), on=lambda row: row[1], how="left")
        pairs.rows().sink("out", out)

    for workers in (3, 4):
        any_parallelism(build, store, parallelism=workers).execute()
    last = {part: (-part, part + 1) for part in range(5)}
    assert {it.key: it.value for it in out} == {part: (row, last.get(part + 1)) for part, row in last.items()}


class Shuffled(ScriptedSource):
    """Lists its parts in another order each time, and leaves some out in the second run."""

    listings = 0

    def list_parts(self) -> list[Any]:
        type(self).listings += 1
        parts = [*super().list_parts()]
        parts = parts[self.listings % len(parts) :] + parts[: self.listings % len(parts)]
        return [part for part in parts if self.listings != 2 or part not in ("part 1", "part 4")]


def test_parts_in_another_order_and_parts_left_out_for_a_while(any_parallelism: Any, store: FsspecBackend) -> None:
    Shuffled.listings = 0
    source = Shuffled(scripted(3)._scripts)
    out: VecSink[Any, Any, Any] = VecSink()
    for workers in (3, 2, 3, 2, 4, 1):
        any_parallelism(counted(source, out), store, parallelism=workers).execute()
    assert kept_states(store, "count") == PARTS
    assert max(Counter(out.values).values()) == 1


@pytest.mark.parametrize("listed", [None, 3])
def test_a_source_that_lists_nothing_is_named(listed: Any) -> None:
    class Listless(ScriptedSource):
        def list_parts(self) -> Any:
            return listed

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("empty", StatefulSource(Listless({}))).sink("out", VecSink())

    expected = rf"'empty' failed: list_parts\(\) must return the parts of the source, .* list of str; got {listed}"
    with pytest.raises(OperatorError, match=expected):
        SingleThreadRuntime(build).execute()


@pytest.mark.parametrize("are_equal", [False, True], ids=["other parts", "equal parts"])
def test_all_workers_read(runtime: Any, store: FsspecBackend, new_log: Any, are_equal: bool) -> None:
    """Each of eight workers gets one of eight parts, of two sources with streams that never meet."""
    log = new_log()

    def build(provider: StreamProvider) -> None:
        for name in "ab":
            source = ScriptedSource({number if are_equal else (name, number): [number] for number in range(4)})
            stream = provider.new_stream().source(name, StatefulSource(source))
            stream.inspect(f"seen {name}", lambda msg, context: log.append((context.worker_id, msg.key)))

    runtime(build, store, parallelism=8).execute()
    assert sorted(worker for worker, _ in log) == [*range(8)]


def test_states_of_equal_parts_that_never_meet(any_parallelism: Any, store: FsspecBackend) -> None:
    """Each follows the parts of its own source, and both come together once their streams meet."""
    items = {name: {part: [it for n in range(3) for it in (n, PAUSE)] for part in range(6)} for name in "ab"}

    def build(meet: bool, rounds: int, provider: StreamProvider) -> None:
        streams = []
        for name in "ab":
            source = ScriptedSource({part: [*them, END] * rounds for part, them in items[name].items()})
            streams.append(provider.new_stream().source(name, StatefulSource(source)))
            streams[-1].stateful_map(f"count {name}", lambda _, value, n: (value, n + 1), int)
        if meet:
            both = streams[0].union(streams[1], name="both")
            both.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("s", VecSink())

    for number, workers in enumerate((4, 3, 8, 8, 2)):
        meets = number >= 3
        any_parallelism(partial(build, meets, number + 1), store, parallelism=workers).execute()
        for name in "ab":
            assert kept_states(store, f"count {name}") == dict.fromkeys(range(6), 3 * (number + 1))
    assert kept_states(store, "sum") == dict.fromkeys(range(6), 2 * 2 * 3)


def without_exchange(provider: StreamProvider) -> None:
    source = StatefulSource(ScriptedSource({part: [1] for part in "ab"}))
    provider.new_stream().source("two", source).sink("out", VecSink())


def with_exchange(provider: StreamProvider) -> None:
    stream = provider.new_stream().source("two", StatefulSource(ScriptedSource({part: [1] for part in "ab"})))
    stream = stream.key_distribute("spread", lambda msg: msg.value).map("same", lambda value: value)
    stream.key_distribute("again", lambda msg: msg.value).sink("out", VecSink())


def of_an_iterable(provider: StreamProvider) -> None:
    provider.new_stream().source("list", SingleIteratorSource([1, 2, 3])).sink("out", VecSink())


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (with_exchange, "2 parts of source 'two' feed 3 workers: 2 read, 3 compute after the exchange 'spread'"),
        (without_exchange, "2 parts of source 'two' feed 3 workers: 2 read, and no other computes; call .key_distrib"),
        (of_an_iterable, None),
    ],
)
def test_workers_without_a_part_are_told_if_there_could_be_more(
    any_parallelism: Any, build: Any, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    any_parallelism(build, parallelism=3).execute()
    found = [it.getMessage()[: len(told or "")] for it in caplog.records if " workers: " in it.getMessage()]
    takes_turns = any_parallelism.func is SingleThreadRuntime
    assert found == ([] if told is None or takes_turns else [told])


def test_progress_has_each_part_with_its_worker(any_parallelism: Any, new_log: Any) -> None:
    log = new_log()

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(scripted(0)))
        stream.inspect("seen", lambda msg, context: log.append((msg.key, context.worker_id))).sink("out", VecSink())

    handle = any_parallelism(build, parallelism=3).start()
    assert handle.await_termination(SECONDS)
    parts = handle.progress.parts["parts"]
    assert {part: (it.worker, it.records, it.is_finished) for part, it in parts.items()} == {
        part: (worker, PARTS[part], True) for part, worker in log
    }
    assert [(it.worker, it.parts) for it in handle.progress.workers] == [(0, 0), (1, 0), (2, 0)]


def test_a_query_finds_the_state_of_a_part(any_parallelism: Any) -> None:
    handle = any_parallelism(counted(scripted(0), VecSink(), slow), parallelism=3).start()
    wait_until(lambda: handle.progress.records.get("parts", 0) > 4 * len(PARTS))
    asked = {part: handle.state("count").get(part, default=0) for part in (*PARTS, "no part")}
    found = {part: answer.result(SECONDS) for part, answer in asked.items()}
    assert found.pop("no part") == 0
    assert all(0 < found[part] <= rows for part, rows in PARTS.items())
    assert handle.await_termination(SECONDS)
