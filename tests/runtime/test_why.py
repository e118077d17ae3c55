"""Why nothing comes out: runs without a fault, answers after the end, long ticks, and hostile names and values."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from malflow import Breaker, OperatorError, Retry, SingleThreadRuntime, StreamProvider, agg
from malflow.engine.parts.reads import PartProgress, WorkerProgress
from malflow.engine.plan import Program
from malflow.errors import StoreError
from malflow.events import Event, SnapshotFailed
from malflow.nodes import StatelessNode
from malflow.operators.contract import Counts
from malflow.operators.stateless import Map
from malflow.patterns import step
from malflow.runtime.handle import RunHandle
from malflow.runtime.progress.progress import OperatorProgress, Progress, SnapshotFailure
from malflow.runtime.progress.time_table import TimeRow, TimeTable
from malflow.runtime.why.answer import FAULTS, Why
from malflow.runtime.why.search import Reading, why
from malflow.sinks import VecSink
from malflow.snapshot.protocol.manifest import DATA
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.store.local import LocalStore
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import counting, tumbling
from tests.conformance.dataflow import Started
from tests.kit.backends import at_once
from tests.kit.dripping import Drip, Stamps
from tests.kit.driving import compiled
from tests.kit.waiting import wait_until
from tests.properties.building import Run, build
from tests.properties.dataflows import dataflows
from tests.properties.specs import Dataflow

pytestmark = pytest.mark.slow

SECONDS = 60


def healthy(provider: StreamProvider) -> None:
    """Build an operator of each kind, all of which give records as long as the run runs."""

    def timed(name: str) -> Any:
        source = StatefulSource(Drip({"a": Stamps([0], 5), "b": Stamps([2], 5)}))
        stream = provider.new_stream().source(f"{name} source", source)
        stamped = stream.event_time(f"{name} times", lambda msg: msg.timestamp, out_of_orderness=7)
        return stamped.key_distribute(f"{name} key", lambda msg: 0)

    left, right = timed("left"), timed("right")
    pairs = left.interval_join("pairs", right, before=5, after=5)
    left.asof_join("as of", right).sink("as of sink", VecSink())
    left.window(tumbling(20)).cogroup("groups", right).sink("groups sink", VecSink())
    pairs.filter("some", lambda _: True).flat_map("twice", lambda it: [it, it]).sink("pairs sink", VecSink())
    left.window(tumbling(15)).aggregate("tumbling", agg.count()).sink("tumbling sink", VecSink())
    left.window(counting(3)).aggregate("counting", agg.count()).sink("counting sink", VecSink())
    left.stateful_map("sum", lambda _, value, total: (total + value, total + value), int).sink("sum sink", VecSink())
    left.sort("sorted").batch("lists", 3, within=20).sink("lists sink", VecSink())
    found = left.match("match", step("even", lambda value: value % 2 == 0).then(step("odd", lambda value: value % 2)))
    found.matches.union(found.timeouts, name="both").sink("match sink", VecSink())
    first, second = left.split("halves", lambda msg, to: to.__setitem__(msg.value % 2, True), 2)
    first.sink("even sink", VecSink())
    second.inspect_frontier("look", lambda *_: None).sink("odd sink", VecSink())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_run_in_which_records_flow_has_no_fault(parallelism: int) -> None:
    with Started(SingleThreadRuntime(healthy, parallelism=parallelism)) as started:
        handle = started.run
        wait_until(lambda: all(it.taken for it in handle.progress.operators.values()), SECONDS)
        for name in [*handle.progress.operators, None]:
            while (answer := handle.why(name)).cause != "flows":
                assert answer.cause == "waits", str(answer)
        assert str(handle.why("sum sink")).startswith("records flow: operator 'sum sink' has given ")


def test_no_late_records_lately_are_no_fault() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        source = StatefulSource(Drip({"a": Stamps([1, 50, 2, 51], 1), "b": Stamps([51], 1)}))
        found = (
            provider.new_stream()
            .source("source", source)
            .event_time("times", lambda msg: msg.timestamp, out_of_orderness=5)
        )
        found.late.sink("late", VecSink())
        found.sink("on time", VecSink())

    with Started(SingleThreadRuntime(build_dataflow)) as started:
        handle = started.run
        wait_until(lambda: handle.progress.records.get("on time", 0) > 100, SECONDS)
        wait_until(lambda: handle.why("late").cause == "other_output", SECONDS)
        assert "through its output 1 (the late records)" in str(handle.why("late"))
        assert handle.why().cause == "flows"


@given(dataflow=dataflows())
def test_answers_after_the_end_agree_with_the_records_that_came_out(dataflow: Dataflow) -> None:
    runtime = SingleThreadRuntime(lambda provider: build(dataflow, provider, None, Run()))
    runtime.execute()
    progress = runtime.progress
    for name in [*progress.operators, None]:
        answer = runtime.why(name)
        json.dumps(answer.as_json())
        if name is not None and (sum(progress.operators[name].given) or not progress.operators[name].given):
            came = sum(progress.operators[name].given) or progress.operators[name].taken
            assert answer.cause == "ended" if came else answer.cause != "flows"
        assert answer.cause not in ("silent_source", "silent_part", "unfinished_source", "long_tick", "blocked")


def test_nothing_has_run_yet() -> None:
    runtime = SingleThreadRuntime(lambda provider: provider.new_stream().source("s", SingleIteratorSource([1])))
    assert runtime.why("anything").cause == "starting"
    assert not runtime.why().is_fault


def test_the_runs_own_thread_can_not_ask() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource([1]))
        stream.inspect("ask", lambda _msg, _ctx: print(runtime.why()))

    runtime = SingleThreadRuntime(build_dataflow)
    with pytest.raises(OperatorError, match=r"why\(\) waits for the end of the tick.*call it from another thread"):
        runtime.execute()


def test_a_tick_that_takes_long_is_told() -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(value: int) -> int:
        begun.set()
        assert go.wait(SECONDS)
        return value

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("s", SingleIteratorSource([1])).map("hold", hold).sink("out", VecSink())

    handle: RunHandle = SingleThreadRuntime(build_dataflow).start()
    assert begun.wait(SECONDS)
    answer = handle.why("out", timeout=0.05)
    go.set()
    assert handle.await_termination(SECONDS)
    assert (answer.cause, answer.facts["tick"], answer.stops_at) == ("long_tick", 1, "hold")
    assert "has not ended, so nothing can come out: operator 'hold' is at work" in str(answer)


def test_a_breaker_that_waits_is_told() -> None:
    """The service stays down while the question is asked; the tick that calls it does not end."""
    is_up = threading.Event()

    async def call(value: int) -> int:
        if not is_up.is_set():
            raise ConnectionError("the service is down")
        return value

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource([1, 2, 3]))
        retry = Retry(2, first=0.001, on=(ConnectionError,))
        breaker = Breaker(failures=1, of=1, open_for=timedelta(seconds=0.2))
        stream.map_async("call", call, retry=retry, breaker=breaker).sink("out", VecSink())

    handle: RunHandle = SingleThreadRuntime(build_dataflow).start()
    wait_until(lambda: handle.progress.running is not None and handle.progress.running.waits is not None, SECONDS)
    answer = handle.why("out", timeout=0.01)
    is_up.set()
    assert handle.await_termination(SECONDS)
    assert (answer.cause, answer.stops_at, answer.is_fault) == ("breaker", "call", True)
    assert "paused by a breaker. Operator 'call' waits: its breaker is open, since 1 of the last 1 calls" in str(answer)
    assert handle.progress.running is None


def test_a_part_that_is_behind_at_rest_is_told() -> None:
    script = {"a": [Timed(1, 1), PAUSE(60), Timed(1, 90), *[PAUSE] * 10**4], "b": [Timed(1, 1), *[PAUSE] * 10**4]}

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", StatefulSource(ScriptedSource(script)))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=0)
        timed.key_distribute("key", lambda _: 0).window(tumbling(10)).aggregate("tens", agg.count())

    with Started(SingleThreadRuntime(build_dataflow)) as started:
        wait_until(lambda: started.run.progress.records.get("parts", 0) == 3, SECONDS)
        answer = started.run.why("tens")
    assert (answer.cause, answer.facts["part"]) == ("silent_part", "'b'")
    assert answer.facts["silent_for"] in ("60 s", "61 s")


# Two readings alone


class Odd:
    """A part, a timestamp or a value that nothing can be done with."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __sub__(self, other: object) -> Any:
        raise TypeError("no difference")

    __add__ = __ge__ = __sub__


HOSTILE = "<img src=x onerror=alert(1)>'\"&" + "x" * 10_000


def reading(
    program: Program, records: int = 0, *, status: Any = "running", table: TimeTable | None = None, **facts: Any
) -> Reading:
    """Return a reading of a run in which each source has emitted so many records, and nothing else has any."""
    operators = {it.node.name: OperatorProgress(0, (0,) * it.node.outputs) for it in program.vertices}
    counts = dict.fromkeys(program.sources, records)
    progress = Progress(records, 1, counts, 0, None, 0, operators=operators, status=status, unfinished=tuple(counts))
    made = {name: value for name, value in facts.items() if name in Progress.__slots__}
    progress = replace(progress, **made)
    return Reading(progress, table or TimeTable(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=records)))


def answer_to(build_dataflow: Callable[[StreamProvider], None], name: str | None = None, **facts: Any) -> Why:
    """Return the answer to two readings, between which 10 records were emitted, and as many before."""
    program = compiled(build_dataflow)
    return why(program, reading(program, 10), reading(program, 20, **facts), name)


def busy(**seconds: float) -> dict[str, OperatorProgress]:
    """Return the progress of operators with these busy times."""
    return {name: OperatorProgress(20, (20,), busy=it) for name, it in seconds.items()}


@pytest.mark.parametrize(
    ("operators", "counts", "cause", "text"),
    [
        (busy(source=1, map=9, out=0), {}, "long_tick", "operator 'map' took 90% of the time of earlier ticks"),
        (busy(source=1, map=1, out=1), {}, "long_tick", "a function, a source or a sink takes long"),
        (busy(), {}, "long_tick", "a function, a source or a sink takes long"),
        (busy(source=1, map=9), {"map": {"opened": 2}}, "breaker", "its breaker has opened 2 times"),
        (busy(source=9, map=1), {"map": {"opened": 2}}, "long_tick", "operator 'source' took 90%"),
    ],
)
def test_the_operator_that_takes_the_time_of_ticks_elsewhere(
    operators: dict[str, OperatorProgress], counts: dict[str, dict[str, int]], cause: str, text: str
) -> None:
    program = compiled(maps)
    after = reading(program, 10, operators=operators, counts=counts)._replace(is_answered=False)
    answer = why(program, reading(program, 10), after)
    assert answer.cause == cause
    assert text in str(answer)


@pytest.mark.parametrize(("full", "text"), [(89, None), (90, "in 90% of its polls; operator 'map' takes 80%")])
def test_input_that_waits_is_told_where_records_flow(full: int, text: str | None) -> None:
    program = compiled(maps)
    before = reading(program, 10)
    source = OperatorProgress(20, (20,), busy=1, polls=100, saturated_polls=full)
    operators = {"source": source, "map": OperatorProgress(20, (20,), busy=4), "out": OperatorProgress(20)}
    answer = why(program, before, reading(program, 20, operators=operators))
    assert answer.cause == "flows"
    assert (text or "records flow") in str(answer)
    assert ("More input waits: source 'source' gave" in str(answer)) == (text is not None)


def test_parts_that_are_uneven_are_named() -> None:
    program = compiled(maps)
    parts = {
        "source": {"big": PartProgress(0, 9, 900.0), "x": PartProgress(0, 1, 50.0), "small": PartProgress(1, 1, 5.0)}
    }
    workers = (WorkerProgress(0, 2, 950.0, 0.97, 0), WorkerProgress(1, 1, 5.0, 0.1, 1))
    facts = {"parts": parts, "workers": workers, "operators": busy(source=1, map=1, out=0)}
    answer = why(program, reading(program, 10), reading(program, 20, **facts))
    assert (answer.cause, answer.stops_at, answer.is_fault) == ("uneven_parts", "source", False)
    assert "waits for worker 0, which is busy 97% of the time, and worker 1 only 10%" in answer.text
    assert "It reads 'big' of 'source' (900 records/s), 'x' of 'source' (50 records/s)." in answer.text
    assert answer.facts["parts"] == ["'big' of 'source' (900 records/s)", "'x' of 'source' (50 records/s)"]
    taking_turns = tuple(replace(it, lane=0) for it in workers)
    of_one_key = tuple(replace(it, rate=500.0) for it in workers)
    unknown = tuple(replace(it, busy=None) for it in workers)
    for others in (taking_turns, of_one_key, unknown, ()):
        after = reading(program, 20, **{**facts, "workers": others})
        assert why(program, reading(program, 10), after).cause == "flows"


def maps(provider: StreamProvider) -> None:
    provider.new_stream().source("source", SingleIteratorSource([])).map("map", str).sink("out", VecSink())


@pytest.mark.parametrize("status", ["starting", "restarting", "failed"])
def test_a_run_that_can_not_give_records_is_told(status: Any) -> None:
    answer = answer_to(maps, status=status)
    assert (answer.cause, answer.is_fault, answer.stops_at) == (status, False, None)


def test_an_operator_without_output_is_named_with_its_line() -> None:
    answer = answer_to(maps)
    assert (answer.cause, answer.stops_at, answer.is_fault) == ("no_output", "map", True)
    assert str(answer).startswith("operator 'map' by str has received 20 records and given 0.")
    assert answer.as_json() == {
        "operator": None,
        "cause": "no_output",
        "text": answer.text,
        "stops_at": "map",
        "facts": {"taken": 20, "given": 0, "recently_taken": 10},
        "is_fault": True,
    }


def test_counts_begin_again_after_a_restart() -> None:
    program = compiled(maps)
    answer = why(program, reading(program, 1000), reading(program, 7, restarts=1), "source")
    assert answer.facts["recent"] == 7


def test_a_failed_snapshot_is_remarked_where_sinks_do_not_wait_for_it() -> None:
    failure = SnapshotFailure(3, "StoreError: full\x1b[2J" + "x" * 10**6, datetime.now(UTC))
    answer = answer_to(maps, "source", snapshot_failure=failure)
    assert answer.cause == "flows"
    assert "The last snapshot failed: StoreError: full\\x1b[2Jxxx" in str(answer)
    assert len(str(answer)) < 1000


@pytest.mark.parametrize(("failed", "cause"), [(20, "letters"), (19, "no_output"), (0, "no_output")])
def test_failures_are_the_cause_only_if_all_records_fail(failed: int, cause: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("source", SingleIteratorSource([]))
        counts = Counts(counters=("failed", "skipped", "letters"))
        node = StatelessNode("map", partial(Map, callback=str), counts=counts)
        stream._at(stream._append(node)).sink("out", VecSink())

    program = compiled(build_dataflow)
    before, after = (
        reading(program, records, counts={"map": {"failed": min(records, failed)}}) for records in (10, 20)
    )
    assert why(program, before, after, "out").cause == cause


def test_hostile_names_and_values_are_shown_short() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source(HOSTILE, StatefulSource(Drip({"a": Stamps([])})))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=1)
        timed.key_distribute("key", lambda _: 0).window(tumbling(10)).aggregate("tens", agg.count()).sink(
            "out", VecSink()
        )

    program, now, odd = compiled(build_dataflow), datetime.now(UTC), Odd()
    row = TimeRow("tens", 0, "windows", 1, odd, odd, "times", HOSTILE, odd, odd, timedelta(seconds=9))
    heard = {HOSTILE: {odd: None, "b": now}}
    table = TimeTable(now, (row,), heard=heard, epochs={"times": odd}, late={"times": 3}, lateness={"times": odd})
    for late in (0, 20):
        before = reading(program, 10, counts={"times": {"late": late // 2}})
        after = reading(program, 20, table=table, counts={"times": {"late": late}}, lateness={"times": odd})
        for name in (HOSTILE, "tens", "out", None):
            answer = why(program, before, after, name)
            assert len(str(answer)) < 2000
            assert json.loads(json.dumps(answer.as_json()))["cause"] == answer.cause
            if name in ("tens", "out"):
                assert answer.cause == ("all_late" if late else "silent_part")


def test_a_sink_for_alarms_is_no_fault_of_a_run_with_other_sinks() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", SingleIteratorSource(range(10)))
        stream.filter("alarms", lambda value: value > 10).sink("alarm", VecSink())
        stream.sink("all", VecSink())

    runtime = SingleThreadRuntime(build_dataflow)
    runtime.execute()
    assert runtime.why("alarm").cause == "filter"
    program = compiled(build_dataflow)
    assert why(program, reading(program, 10), reading(program, 20)).cause == "flows"


def test_each_fault_is_described() -> None:
    for cause in FAULTS:
        assert f"``{cause}``" in (Why.__doc__ or "")


def test_records_that_pass_a_step_of_their_name_do_not_count_as_its_own() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        script = [Timed(1, 9), PAUSE, Timed(1, 3), PAUSE, Timed(1, 2)]
        stream = provider.new_stream().source("source", ScriptedSource(script))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=0)
        timed.late.sink("late", VecSink())

    runtime = SingleThreadRuntime(build_dataflow)
    runtime.execute()
    assert runtime.progress.operators["times"] == OperatorProgress(3, (1, 2))


@pytest.mark.parametrize(("earlier", "cause"), [(40, "waits"), (48, "bound"), (50, "bound")])
def test_a_bound_that_is_soon_passed_is_no_fault(earlier: int, cause: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", StatefulSource(Drip({"a": Stamps([])})))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=1000)
        timed.key_distribute("key", lambda _: 0).window(tumbling(100)).aggregate("hundreds", agg.count())

    def at(records: int, epoch: int, clock: datetime) -> Reading:
        row = TimeRow("hundreds", 0, "windows", 1, epoch, 99, "times", "source", None, epoch, timedelta(0))
        return reading(program, records, table=TimeTable(clock, (row,)), at=clock)

    program, now = compiled(build_dataflow), datetime.now(UTC)
    before, after = at(10, earlier, now), at(20, 50, now + timedelta(seconds=4))
    assert why(program, before, after, "hundreds").cause == cause


def test_a_snapshot_that_works_again_clears_the_failure(tmp_path: Path) -> None:
    failing = iter([False, True, False, False])
    failures: list[SnapshotFailure | None] = []

    def put_new(store: LocalStore, key: str, data: bytes) -> None:
        if key.startswith(DATA) and next(failing, False):
            raise StoreError("the disk is full")
        write(store, key, data)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", ScriptedSource([it for at in range(6) for it in (at, PAUSE)]))
        stream.sink("out", VecSink())

    class Watch:
        def on_event(self, event: Event) -> None:
            if isinstance(event, SnapshotFailed):
                failures.append(runtime.progress.snapshot_failure)

    write = LocalStore.put_new
    runtime = SingleThreadRuntime(build_dataflow, at_once(tmp_path), timedelta(microseconds=1), listeners=[Watch()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "put_new", put_new)
        patch.setattr("malflow.snapshot.writer._FIRST_RETRY", 0.001)
        patch.setattr("malflow.snapshot.writer._LONGEST_RETRY", 0.002)
        runtime.execute()
    assert failures[0] is not None
    assert failures[0].error == "StoreError: the disk is full"
    assert runtime.progress.snapshot_failure is None
    assert runtime.progress.snapshot_interval == 1e-6


def times(stamp: Any, bound: Any, until: Any, *, late: int = 0, size: Any = 10) -> Why:
    """Return the answer for windows that have given nothing, at an epoch of the newest timestamp less the bound."""

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", StatefulSource(Drip({"a": Stamps([])})))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=bound)
        timed.key_distribute("key", lambda _: 0).window(tumbling(size)).aggregate("windows", agg.count())

    program, epoch = compiled(build_dataflow), stamp - bound
    row = TimeRow("windows", 0, "windows", 1, epoch, until, "times", "source", None, epoch, timedelta(0))
    table = TimeTable(datetime(2026, 1, 1, tzinfo=UTC), (row,), epochs={"times": epoch})
    counts = [{"times": {"late": count}} for count in (late // 2, late)]
    before = reading(program, 10, table=table, counts=counts[0])
    return why(program, before, reading(program, 20, table=table, counts=counts[1]), "windows")


MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
IN_1970 = datetime(1970, 1, 20, tzinfo=UTC)
IN_2027 = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda: times(1_700_000_100, 5000, 1_700_000_009), "units"),
        (lambda: times(1_700_000_100_000, 5_000_000, 1_700_000_009_999), "units"),
        (lambda: times(1_700_000_100, 500, 1_700_000_009), "bound"),
        (lambda: times(1_700_000_100, 86_400, 1_700_000_009), "bound"),
        (lambda: times(100, 5000, 9), "bound"),
        (lambda: times(100.5, 50.0, 99), "bound"),
        (lambda: times(8, 5000, 9), "waits"),
        (lambda: times(IN_1970, MINUTE, IN_1970 + DAY, size=DAY), "units"),
        (lambda: times(IN_1970 + 100 * DAY, MINUTE, IN_1970 + 101 * DAY, size=DAY), "waits"),
        (lambda: times(IN_2027, DAY, IN_2027, size=DAY), "bound"),
        (lambda: times(IN_2027, MINUTE, IN_2027 + DAY, late=20, size=DAY), "future_record"),
        (lambda: times(1_800_000_000, 1, 1_800_000_009, late=20), "future_record"),
        (lambda: times(1_800_000_000_000, 1, 1_800_000_000_009, late=20), "future_record"),
        (lambda: times(1_700_000_000, 1, 1_700_000_009, late=20), "all_late"),
        (lambda: times(1_700_000_000, 1, 1_700_000_009, late=8), "waits"),
        (lambda: times(5e17, 1, 5e17, late=20), "all_late"),
    ],
)
def test_units_bounds_and_the_future_are_told_apart(answer: Callable[[], Why], cause: str) -> None:
    assert answer().cause == cause, str(answer())
