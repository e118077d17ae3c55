"""A run whose number of workers changes while records flow, and one that resumes with another number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import (
    MAX,
    DataMessage,
    ExpireMap,
    GraphError,
    OperatorError,
    SnapshotError,
    StreamProvider,
    index_select,
    rendezvous_select,
)
from malflow.engine.parts.dealing import deal
from malflow.engine.parts.places import held_parts
from malflow.sinks import StatefulSink, VecSink
from malflow.sources import SingleIteratorSource, StatefulSource, StatelessSource
from malflow.states.keyed import Delta
from malflow.testing.driven import DrivenRun
from tests.kit.driving import Store, compiled, finish, run_of

pytestmark = pytest.mark.slow

PARTS = [f"part {number}" for number in range(7)]


class Reader:
    """Returns one row a poll, and logs all calls."""

    def __init__(self, source: Scripted, part: Any, position: int) -> None:
        self.source, self.part, self.position = source, part, position

    def poll_batch(self, limit: int) -> tuple[list[Any], list[Any]]:
        row = self.source.rows[self.part][self.position]
        self.position += 1
        return [row], [self.position - 1]

    def is_finished(self) -> bool:
        return self.position >= len(self.source.rows[self.part])

    def snapshot(self) -> int:
        self.source.note("snapshot", self.part)
        return self.position

    def collect(self) -> int:
        self.source.note("collect", self.part)
        return self.position

    def suspend(self) -> None:
        self.source.note("suspend", self.part)


class Scripted:
    """A source whose parts emit one row a tick each: the rows of a part, in order."""

    def __init__(self, rows: dict[Any, Sequence[Any]]) -> None:
        self.rows = rows
        self.log: list[tuple[str, Any]] = []
        self.failing: tuple[str, Any] | None = None

    def note(self, what: str, part: Any) -> None:
        self.log.append((what, part))
        if (what, part) == self.failing:
            raise OSError(f"{what} failed")

    def times(self, what: str) -> Counter[Any]:
        return Counter(part for at, part in self.log if at == what)

    def list_parts(self) -> list[Any]:
        return list(self.rows)

    def build_part(self, part: Any, state: int | None = None) -> Reader:
        self.note("build", part)
        return Reader(self, part, state or 0)


def stateful(source: Any) -> StatefulSource[Any, Any, Any, Any]:
    return StatefulSource(source)


def owners(parallelism: int, parts: Sequence[Any] = PARTS) -> dict[Any, int]:
    return {part: rendezvous_select(part, range(parallelism)) for part in parts}


def movers(before: int, after: int, parts: Sequence[Any] = PARTS) -> set[Any]:
    return {part for part in parts if owners(before, parts)[part] != owners(after, parts)[part]}


def moved_parts(before: int, after: int, finished: Sequence[Any] = ()) -> set[Any]:
    """Return the parts of a source that move."""
    program = compiled(lambda provider: provider.new_stream().source("s", stateful(Scripted({}))))
    first = held_parts(deal(program, {"s": PARTS}, before))
    then = held_parts(deal(program, {"s": PARTS}, after, first, ended={"s": finished}))
    return {part for part in PARTS if first["s"][part] != then["s"][part]}


# Totals


def running_sum(key: Any, value: Any, state: int) -> tuple[int, int]:
    return state + value, state + value


@pytest.mark.fault("G8")
@pytest.mark.parametrize("partitioner", [rendezvous_select, index_select, lambda key, workers: workers[-1]])
def test_totals_are_those_of_an_uninterrupted_run(partitioner: Any) -> None:
    def total(*schedule: int) -> dict[int, list[int]]:
        out: VecSink[Any, Any, Any] = VecSink()
        source = Scripted({part: range(at, at + 40) for at, part in enumerate(PARTS)})

        def build_dataflow(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("numbers", stateful(source))
            keyed = numbers.key_distribute("key", lambda msg: msg.value % 11, partitioner)
            keyed.stateful_map("sum", running_sum, int).sink("out", out)

        run = run_of(build_dataflow)
        for parallelism in schedule:
            for _ in range(7):
                run.tick()
            run.rescale(parallelism)
            assert run.parallelism == parallelism
        finish(run)
        by_key: dict[int, list[int]] = defaultdict(list)
        for message in out:
            by_key[message.key].append(message.value)
        return by_key

    expected = total()
    for key, sums in total(3, 2, 2, 1).items():
        assert sums == sorted(sums)  # each key's records stay in order
        assert (len(sums), sums[-1]) == (len(expected[key]), expected[key][-1])


# Everything at once


WINDOW = 10
"""Of time; each part gives one record a window."""


class Tumble:
    """Sums each window, and emits it when an epoch has passed its end."""

    def on_data(self, msg: Any, state: Any, output: Any) -> dict[int, int]:
        window = msg.timestamp // WINDOW
        state[window] = state.get(window, 0) + msg.value["amount"]
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in list(states):
            windows = states[key]
            for window in sorted(windows):
                if epoch is MAX or (window + 1) * WINDOW <= epoch + 1:
                    output.send(DataMessage(key, (window, windows.pop(window)), epoch))
            states[key] = windows or None


def look(key: Any, value: Any, timestamp: int, seen: ExpireMap[Any, Any, Any]) -> Any:
    """Insert an entry that lives for a bit over two windows; return the window of the live one before it."""
    window = timestamp // WINDOW
    return (window, seen.insert("entry", window, (window + 2) * WINDOW + 5)), seen


class Seen:
    """The output of the dataflow."""

    def __init__(self) -> None:
        self.sums: list[Any] = []
        self.windows: list[Any] = []
        self.looks: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []


def flow(sources: Sequence[Scripted], seen: Seen, provider: StreamProvider) -> None:
    """Build two sources with epochs of their own, joined, and three states for each key."""
    streams: list[Any] = []
    for at, source in enumerate(sources):
        rows = provider.new_stream().source(f"rows {at}", stateful(source))
        stamped = rows.assign_timestamps(f"time {at}", lambda msg: msg.value["time"])
        # All parts are at the same window in each tick, so that what is a whole window behind has come.
        on_time, late = stamped.generate_epochs(
            f"epochs {at}", lambda msg, _: msg.timestamp // WINDOW * WINDOW - WINDOW - 1
        )
        late.inspect(f"late {at}", lambda msg, _: pytest.fail(f"{msg} is late"))
        streams.append(on_time)
    keyed = streams[0].union(*streams[1:]).key_distribute("key", lambda msg: msg.value["key"])
    keyed.inspect_frontier("frontier", lambda epoch, context: seen.epochs.append((context.worker_id, epoch)))
    sums = keyed.stateful_map("sum", lambda key, value, state: running_sum(key, value["amount"], state), int)
    sums.inspect("sums", lambda msg, _: seen.sums.append((msg.key, msg.value)))
    keyed.stateful_op("windows", Tumble(), dict).inspect(
        "closed", lambda msg, _: seen.windows.append((msg.key, *msg.value))
    )
    keyed.ttl_map("looks", look).inspect("looked", lambda msg, _: seen.looks.append((msg.key, *msg.value)))


amounts = st.integers(1, 9)
rows = st.lists(
    st.builds(
        lambda key, amount, jitter: {"key": key, "amount": amount, "time": jitter},
        st.sampled_from("abcdef"),
        amounts,
        st.integers(0, 9),
    ),
    max_size=14,
)
scripts = st.dictionaries(st.sampled_from(PARTS), rows, max_size=4)
changes = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["rescale", "restart", "snapshot"]), st.integers(1, 4)), max_size=6
)


@pytest.mark.fault("G8")
@given(scripts=st.lists(scripts, min_size=1, max_size=3), changes=changes, start=st.integers(1, 4))
def test_nothing_shows_of_rescales_and_restarts(
    scripts: list[dict[str, list[dict[str, Any]]]], changes: list[tuple[int, str, int]], start: int
) -> None:
    timed = [
        {
            part: [row | {"time": at * WINDOW + row["time"]} for at, row in enumerate(rows)]
            for part, rows in script.items()
        }
        for script in scripts
    ]
    seen, store = Seen(), Store()
    sources = [Scripted(script) for script in timed]
    program = compiled(partial(flow, sources, seen))
    run = store.restore(program, start)
    floor: Any = None
    for ticks, change, parallelism in changes:
        for _ in range(ticks):
            if not run.is_finished:
                run.tick()
        floor = _check_epochs(seen.epochs, floor)
        if change == "rescale":
            run.rescale(parallelism)
            continue
        store.commit(run, program)
        if change == "restart":
            run.close()
            run = store.restore(program, parallelism)
    finish(run)
    _check_epochs(seen.epochs, floor, last=True)
    _check_outputs([row for script in timed for rows in script.values() for row in rows], seen)
    # A worker whose parts have finished holds time back as long as others have parts of the same source to read.
    _check_looks(seen.looks, punctual=all(len(set(map(len, script.values()))) <= 1 for script in timed))


def _check_epochs(epochs: list[tuple[int, Any]], floor: Any, *, last: bool = False) -> Any:
    """Check that all workers saw the same epochs, each once and beyond all before; return the last one."""
    by_worker: dict[int, list[Any]] = defaultdict(list)
    for worker, epoch in epochs:
        by_worker[worker].append(epoch)
    epochs.clear()
    for got in by_worker.values():
        assert got == by_worker[0]
        assert all(before < after for before, after in pairwise(got if floor is None else [floor, *got]))
        assert (got[-1] is MAX) == last
    assert MAX not in by_worker[0][:-1]
    return by_worker[0][-1] if by_worker[0] else floor


def _check_outputs(rows: list[dict[str, Any]], seen: Seen) -> None:
    totals: Counter[str] = Counter()
    windows: Counter[tuple[str, int]] = Counter()
    for row in rows:
        totals[row["key"]] += row["amount"]
        windows[row["key"], row["time"] // WINDOW] += row["amount"]
    for key, total in totals.items():
        sums = [value for at, value in seen.sums if at == key]
        assert sums == sorted(sums)
        assert sums[-1] == total
    assert len(seen.sums) == len(rows)
    assert sorted(seen.windows) == sorted((key, window, total) for (key, window), total in windows.items())


def _check_looks(looks: list[tuple[str, int, int | None]], *, punctual: bool) -> None:
    """Check the lifetime of entries: epochs are two windows behind, and three after a rescale."""
    before: dict[str, int] = {}
    for key, window, found in looks:
        last = before.get(key)
        if last is not None and window - last <= 2:
            assert found == last
        if last is None or (punctual and window - last >= 6):
            assert found is None
        before[key] = window


# Refusals


def test_state_under_key_local_stays_and_the_run_goes_on() -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    source = Scripted({part: [1, 2, 3] for part in PARTS})

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", stateful(source)).key_local("k", lambda msg: msg.value)
        keyed.stateful_map("counted here", running_sum, int).sink("out", out)

    run = run_of(build_dataflow, 2)
    run.tick()
    run.rescale(2)
    for parallelism in (1, 3):
        with pytest.raises(SnapshotError, match=r"operator 'counted here' keeps .* \.key_local\(\).*key_distribute"):
            run.rescale(parallelism)
    assert run.parallelism == 2
    finish(run)
    assert len(out.values) == 3 * len(PARTS)
    assert source.times("build") == source.times("suspend") == Counter(PARTS)
    assert not source.times("collect")


@pytest.mark.parametrize("parallelism", [0, -1, True, 1.0, None])
def test_a_number_of_workers_is_a_whole_number_of_one_or_more(parallelism: Any) -> None:
    run = run_of(lambda provider: None)
    with pytest.raises(GraphError, match="parallelism must be a whole number, at least 1"):
        run.rescale(parallelism)


def test_invalid_partitioner_stops_a_rescale_before_anything_moves() -> None:
    source = Scripted({part: [1, 2, 3] for part in PARTS})

    def only_two(key: Any, workers: Sequence[int]) -> int:
        return key % 2

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", stateful(source)).key_distribute("k", lambda msg: msg.value, only_two)
        keyed.stateful_map("sum", running_sum, int)

    run = run_of(build_dataflow, 2)
    run.tick()
    with (
        run,
        pytest.raises(OperatorError, match=r"operator 'sum' failed at key 1: the partitioner returned 1;.*only_t"),
    ):
        run.rescale(1)
    assert not source.times("collect")
    assert source.times("suspend") == Counter(PARTS)


# Sources


def test_only_parts_that_move_are_collected() -> None:
    source = Scripted({part: range(9) for part in PARTS})

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", stateful(source)).sink("out", out)

    out: VecSink[Any, Any, Any] = VecSink()
    run = run_of(build_dataflow, 2)
    run.tick()
    run.rescale(3)
    moved = Counter(moved_parts(2, 3))
    assert 0 < len(moved) < len(PARTS)
    assert source.times("collect") == source.times("suspend") == moved
    assert source.times("build") == Counter(PARTS) + moved
    finish(run)
    assert Counter(out.values) == Counter(list(range(9)) * len(PARTS))
    assert source.times("suspend") == Counter(PARTS) + moved
    assert not source.times("snapshot")


def test_parts_without_a_position_do_not_start_over() -> None:
    source = Scripted({part: range(9) for part in PARTS})
    out: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", StatelessSource(source)).sink("out", out)  # type: ignore[arg-type]
        provider.new_stream().source("once", SingleIteratorSource(iter(range(50)))).sink("all", everything)

    everything: VecSink[Any, Any, Any] = VecSink()
    run = run_of(build_dataflow, 1)
    for parallelism in (4, 3, 1, 2):
        run.tick()
        run.rescale(parallelism)
    finish(run)
    assert Counter(out.values) == Counter(list(range(9)) * len(PARTS))
    assert everything.values == list(range(50))
    assert source.times("build") == source.times("suspend") == Counter(PARTS)


def test_finished_parts_are_not_built_again_and_their_position_is_kept() -> None:
    source = Scripted({part: range(at + 1) for at, part in enumerate(PARTS)})

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", stateful(source))

    run, store = run_of(build_dataflow, 3), Store()
    for _ in range(4):
        run.tick()
    run.rescale(2)
    finished, moved = set(PARTS[:4]), moved_parts(3, 2, PARTS[:4])
    assert finished & moved
    assert source.times("build") == Counter(PARTS) + Counter(moved - finished)
    store.commit(run, compiled(build_dataflow))
    assert store.merged("s") == {part: min(at + 1, 4) for at, part in enumerate(PARTS)}
    assert [run.tick() for _ in range(3)] == [3, 2, 1]
    assert run.is_finished
    run.close()


def test_a_finished_part_is_asked_for_its_position_once_more() -> None:
    source = Scripted({"short": range(1), "long": range(9)})

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", stateful(source))

    run, store = run_of(build_dataflow, 1), Store()
    for _ in range(4):
        run.tick()
        store.commit(run, compiled(build_dataflow))
    assert source.times("snapshot") == {"short": 1, "long": 4}
    assert store.merged("s") == {"short": 1, "long": 4}
    assert run.deltas() == []
    run.tick()
    assert list(run.deltas()[0].delta.changed) == ["long"]
    run.close()


def test_parts_are_polled_in_the_order_in_which_they_were_listed() -> None:
    source, out = Scripted({part: [part] * 9 for part in PARTS}), VecSink[Any, Any, Any]()
    run = run_of(lambda provider: provider.new_stream().source("s", stateful(source)).sink("out", out))
    for parallelism in (3, 2, 1):
        run.tick()
        run.rescale(parallelism)
    before = len(out.values)
    run.tick()
    assert out.values[before:] == PARTS
    run.close()


# Time


@pytest.mark.fault("E19")
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("restart", [False, True])
def test_late_records_stay_late_and_the_end_is_not_remembered(workers: int, restart: bool) -> None:
    source = Scripted({"part": [5, 9]})
    on_time, late = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()
    asked: list[Any] = []

    def generate(msg: Any, previous: Any) -> Any:
        asked.append(previous)
        return msg.timestamp

    def build_dataflow(provider: StreamProvider) -> None:
        stamped = provider.new_stream().source("s", stateful(source)).assign_timestamps("t", lambda msg: msg.value)
        for stream, out in zip(stamped.generate_epochs("e", generate), (on_time, late), strict=True):
            stream.sink("late" if out is late else "on time", out)

    program, store = compiled(build_dataflow), Store()
    run = store.restore(program, 2)
    run.tick()
    run.tick()
    store.commit(run, program)
    if restart:
        assert run.is_finished
        finish(run)
        source.rows["part"] = [5, 9, 7, 10]
        run = store.restore(program, workers)
    else:
        source.rows["part"] = [5, 9, 7, 10]
        run.close()
        run = store.restore(program, 2)
        run.rescale(workers)
    finish(run)
    assert (on_time.values, late.values) == ([5, 9, 10], [7])
    assert asked == [None, 5, 9, 9]


@pytest.mark.fault("E20")
def test_maps_that_moved_expire_as_if_they_had_stayed() -> None:
    source = Scripted({"part": [("x", 1), ("x", 2), ("y", 50), ("y", 60)]})

    def keep_a_while(key: Any, value: Any, timestamp: int, entries: ExpireMap[Any, Any, Any]) -> Any:
        entries.insert(timestamp, value, timestamp + 10)
        return value, entries

    def build_dataflow(provider: StreamProvider) -> None:
        stamped = provider.new_stream().source("s", stateful(source)).assign_timestamps("t", lambda msg: msg.value[1])
        on_time, _ = stamped.generate_epochs("e", lambda msg, _: msg.timestamp)
        on_time.key_distribute("key", lambda msg: msg.value[0]).ttl_map("ttl", keep_a_while)

    run = run_of(build_dataflow)
    run.tick()
    run.tick()
    run.rescale(2)  # x was last read after as many epochs as the new workers have seen after the next tick
    run.tick()
    held = {key for worker in run._workers for key in worker.states.live().get("ttl", {})}
    assert held == {"y"}
    run.close()


# Sinks


class Ledger:
    """A stateful sink whose parts number their lines; and what was done to them."""

    def __init__(self) -> None:
        self.lines: dict[Any, list[Any]] = defaultdict(list)
        self.log: list[tuple[str, Any]] = []
        self.failing: tuple[str, Any] | None = None

    def assign_part(self, msg: Any) -> Any:
        return msg.value % 5

    def build_part(self, part: Any, state: int | None) -> Page:
        self.log.append(("build", part))
        return Page(self, part, state or 0)

    def times(self, what: str) -> Counter[Any]:
        return Counter(part for at, part in self.log if at == what)


class Page:
    def __init__(self, ledger: Ledger, part: Any, count: int) -> None:
        self.ledger, self.part, self.count = ledger, part, count

    def sink(self, msg: Any) -> None:
        self.count += 1
        self.ledger.lines[self.part].append(self.count)

    def note(self, what: str) -> None:
        self.ledger.log.append((what, self.part))
        if (what, self.part) == self.ledger.failing:
            raise OSError(f"{what} failed")

    def snapshot(self) -> int:
        return self.count

    def collect(self) -> int:
        self.note("collect")
        return self.count

    def close(self) -> None:
        self.note("close")


class Closing(VecSink[Any, Any, Any]):
    """A stateless sink that counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_sink_parts_resume_and_stateless_sinks_stay_open() -> None:
    ledger, plain = Ledger(), Closing()
    source = Scripted({"a": range(40)})

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", stateful(source))
        stream.sink("ledger", StatefulSink(ledger))  # type: ignore[arg-type]
        stream.sink("plain", plain)

    run = run_of(build_dataflow, 2)
    for _ in range(4):  # the part 4 is not built yet
        run.tick()
    run.rescale(3)
    moved = movers(2, 3, range(4))
    assert 0 < len(moved) < 4
    assert ledger.times("collect") == ledger.times("close") == Counter(moved)
    assert ledger.times("build") == Counter(range(4))
    assert plain.closed == 0
    finish(run)
    assert ledger.lines == {part: list(range(1, 9)) for part in range(5)}
    assert ledger.times("close") == ledger.times("build") == Counter(range(5)) + Counter(moved)
    assert plain.closed == 1


def test_the_states_of_sink_parts_that_were_not_built_move_too() -> None:
    program, store, ledger = None, Store(), Ledger()
    source = Scripted({"a": range(25)})

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", stateful(source)).sink("ledger", StatefulSink(ledger))  # type: ignore[arg-type]

    program = compiled(build_dataflow)
    run = store.restore(program, 1)
    for parallelism in (2, 3, 1, 4):
        for _ in range(5):
            run.tick()
        store.commit(run, program)
        run.close()
        run = store.restore(program, parallelism)
        run.rescale(parallelism + 1)  # before any part is built
    finish(run)
    assert ledger.lines == {part: [1, 2, 3, 4, 5] for part in range(5)}


# Failures on the way


@pytest.mark.parametrize("step", ["collect", "build", "suspend"])
def test_failing_source_ends_the_run_and_closes_everything(step: str) -> None:
    source, plain, ledger = Scripted({part: range(20) for part in PARTS}), Closing(), Ledger()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", stateful(source))
        stream.sink("plain", plain)
        stream.sink("ledger", StatefulSink(ledger))  # type: ignore[arg-type]

    run = run_of(build_dataflow, 2)
    for _ in range(5):
        run.tick()
    victim = sorted(moved_parts(2, 3))[-1]
    source.failing = (step, victim)
    with pytest.raises(OperatorError, match=f"operator 's' failed at part '{victim}': OSError: {step} failed"), run:
        run.rescale(3)
    built = source.times("build") - Counter([victim] if step == "build" else [])
    assert source.times("suspend") == built
    assert plain.closed == 1
    assert ledger.times("close") == ledger.times("build")


@pytest.mark.parametrize("step", ["collect", "close"])
def test_a_sink_that_fails_on_the_way_ends_the_run_with_everything_let_go(step: str) -> None:
    source, plain, ledger = Scripted({part: range(20) for part in PARTS}), Closing(), Ledger()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", stateful(source))
        stream.sink("ledger", StatefulSink(ledger))  # type: ignore[arg-type]
        stream.sink("plain", plain)

    run = run_of(build_dataflow, 2)
    for _ in range(5):
        run.tick()
    ledger.failing = (step, min(movers(2, 3, range(5))))
    with pytest.raises(OperatorError, match=f"operator 'ledger' failed.*OSError: {step} failed"), run:
        run.rescale(3)
    assert source.times("suspend") == source.times("build")
    assert plain.closed == 1
    assert ledger.times("close") == ledger.times("build") == Counter(range(5))


# Deltas


def test_after_a_rescale_the_deltas_are_whole_once() -> None:
    source = Scripted({part: range(20) for part in PARTS})

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", stateful(source)).key_distribute("k", lambda msg: msg.value)
        keyed.stateful_map("sum", running_sum, int)

    run = run_of(build_dataflow, 2)
    run.tick()
    assert all(delta.whole for _, _, delta, _ in run.deltas())
    run.tick()
    assert not any(delta.whole for _, _, delta, _ in run.deltas())
    run.rescale(3)
    deltas = run.deltas()
    assert all(delta.whole for _, _, delta, _ in deltas)
    assert {(worker, name) for worker, name, _, _ in deltas} == {
        (worker, name) for worker in range(3) for name in ("s", "k/exchange", "sum")
    }
    run.tick()
    assert not any(delta.whole for _, _, delta, _ in run.deltas())
    assert all(delta.whole for _, _, delta, _ in run.deltas(whole=True))
    run.close()


def test_a_run_that_keeps_nothing_can_be_rescaled() -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    source = Scripted({part: range(20) for part in PARTS})

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", stateful(source)).key_distribute("k", lambda msg: msg.value)
        keyed.stateful_map("count", lambda key, value, n: (n + 1, n + 1), int).sink("out", out)

    run = run_of(build_dataflow, 1, tracked=False)
    for parallelism in (2, 3):
        run.tick()
        run.rescale(parallelism)
    assert run.deltas() == []
    finish(run)
    assert Counter(out.values) == dict.fromkeys(range(1, len(PARTS) + 1), 20)


def test_deltas_after_a_restore_are_increments_unless_rescaled() -> None:
    source = Scripted({part: range(20) for part in PARTS})

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("s", stateful(source)).key_distribute("k", lambda msg: msg.value)
        keyed.stateful_map("sum", running_sum, int)

    program, store = compiled(build_dataflow), Store()
    run = store.restore(program, 2)
    for _ in range(5):
        run.tick()
    store.commit(run, program)
    for parallelism in (2, 3):
        run.close()
        run = store.restore(program, parallelism)
        run.tick()
        changed = {(name, delta.whole) for _, name, delta, _ in run.deltas() if delta != Delta(whole=True)}
        assert {whole for _, whole in changed} == {parallelism == 3}
        assert run.ticks.number == 6
    run.close()


def test_a_run_is_open_before_it_can_have_ended() -> None:
    with DrivenRun(compiled(lambda provider: None), parallelism=1, tracked=False) as run:
        run.open()
        assert run.is_finished
