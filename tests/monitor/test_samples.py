"""The last records of an operator, for people who watch a run: taps are added between ticks and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, GraphError, MultiProcessRuntime, SingleThreadRuntime, StreamProvider
from malflow.engine.taps import Tap
from malflow.errors import UnsupportedOperator
from malflow.monitor import Monitor, client
from malflow.monitor.samples import Samples, SampleSettings, TooManySamples
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until
from tests.monitor.watching import monitored, numbers

pytestmark = pytest.mark.slow

HIDDEN = "4711-hidden"


class Seen(Tap):
    """A tap that keeps the values of a number of ticks."""

    def __init__(self, operator: str, ticks: int = 1_000_000) -> None:
        super().__init__(operator)
        self.values: list[Any] = []
        self.by_output: dict[int, list[Any]] = {}
        self.ticks = 0
        self._most = ticks

    def take(self, output: int, batch: Batch) -> None:
        """Keep the values of a batch."""
        self.values += batch.values
        self.by_output.setdefault(output, []).extend(batch.values)

    def end_tick(self, tick: int) -> bool:
        """Whether there are ticks left."""
        del tick
        self.ticks += 1
        return self.ticks < self._most


class Tapping:
    """A listener that adds taps to a run."""

    def __init__(self, *taps: Tap) -> None:
        self._taps = taps

    def on_start(self, run: Any) -> None:
        """Add them."""
        for tap in self._taps:
            run.tap(tap)

    def on_event(self, event: Any) -> None:
        """Do nothing."""


def summing(script: list[Any], sink: Any) -> Any:
    """Return a dataflow that sums even numbers by last digit."""

    def by_parity(msg: Any, outputs: list[bool]) -> None:
        outputs[msg.value % 2] = True

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(script))
        even, _odd = numbers.split("parity", by_parity, 2)
        keyed = even.key_distribute("digit", lambda msg: msg.value % 10)
        sums = keyed.stateful_map("sum", lambda _key, value, total: (total + value, total + value), default=int)
        sums.sink("out", sink)

    return build_dataflow


@given(
    script=st.lists(st.one_of(st.integers(0, 99), st.just(PAUSE)), max_size=60),
    parallelism=st.integers(1, 3),
    ticks=st.integers(1, 5),
)
def test_taps_see_all_and_change_nothing(script: list[Any], parallelism: int, ticks: int) -> None:
    plain, tapped = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()
    SingleThreadRuntime(summing(script, plain), parallelism=parallelism).execute()
    taps = {name: Seen(name) for name in ("numbers", "parity", "digit", "sum", "out")}
    first = Seen("sum", ticks)
    listener = Tapping(*taps.values(), first)
    SingleThreadRuntime(summing(script, tapped), parallelism=parallelism, listeners=[listener]).execute()

    assert [*tapped] == [*plain]
    numbers = [it for it in script if it is not PAUSE]
    totals: dict[int, int] = {}
    sums = []
    for it in numbers:
        if it % 2 == 0:
            totals[it % 10] = totals.get(it % 10, 0) + it
            sums.append(totals[it % 10])
    assert taps["numbers"].values == numbers
    assert taps["parity"].by_output.get(1, []) == [it for it in numbers if it % 2]
    assert taps["parity"].by_output.get(0, []) == taps["digit"].values == [it for it in numbers if it % 2 == 0]
    assert sorted(taps["sum"].values) == sorted(taps["out"].values) == sorted(sums)
    assert first.ticks <= ticks
    assert first.values == taps["sum"].values[: len(first.values)]


def test_a_tap_that_ends_leaves_the_targets_as_they_were() -> None:
    seen, after = Seen("step", 3), Seen("step", 6)
    with monitored(numbers()) as handle:
        handle.tap(seen)
        wait_until(lambda: seen.ticks == 3)
        ended = [*seen.values]
        handle.tap(after)
        wait_until(lambda: after.ticks == 6)
        tick = handle.progress.tick
        wait_until(lambda: handle.progress.tick > tick + 3)
    assert seen.values == ended
    assert seen.ticks == 3
    assert after.ticks == 6


def test_taps_outlive_a_rescale() -> None:
    seen = Seen("count")
    with monitored(numbers()) as handle:
        handle.tap(seen)
        wait_until(lambda: len(seen.values) > 5)
        handle.rescale(3).result(60)
        before = len(seen.values)
        wait_until(lambda: len(seen.values) > before + 20, 20)
        handle.rescale(1).result(60)
        wait_until(lambda: len(seen.values) > before + 40, 20)
    assert handle.progress.operators["out"].taken >= len(seen.values)


def test_unknown_operators_and_other_runtimes() -> None:
    with monitored(numbers()) as handle:
        with pytest.raises(GraphError, match="did you mean 'step'"):
            handle.tap(Seen("stepp"))
        with pytest.raises(GraphError, match="there are 'numbers'"):
            handle.tap(Seen("<img>"))
    with (
        monitored(numbers(_plus_one), MultiProcessRuntime, parallelism=1, processes=1) as handle,
        pytest.raises(UnsupportedOperator, match="--on single"),
    ):
        handle.tap(Seen("step"))
    with pytest.raises(Exception, match="nothing runs"):
        SingleThreadRuntime(numbers()).tap(Seen("step"))


def _plus_one(number: int) -> int:
    return number + 1


class FakeRun:
    """A run that takes taps."""

    def __init__(self) -> None:
        self.taps: list[Any] = []

    def tap(self, tap: Any) -> None:
        """Take a tap."""
        self.taps.append(tap)


def sampling(**settings: Any) -> tuple[Samples, FakeRun, list[float]]:
    """Return the samples of a fake run and its clock."""
    now, run = [0.0], FakeRun()
    fake: Any = run
    return Samples(fake, SampleSettings(are_shown=True, **settings), clock=lambda: now[0]), run, now


def batch(*values: Any) -> Batch:
    """Return a batch without keys."""
    return Batch(None, [*values], [*range(len(values))])


def test_the_last_record_of_a_tick_four_times_a_second() -> None:
    samples, run, now = sampling()
    assert samples.of("map") == []
    (tap,) = run.taps
    for tick in range(1, 101):
        now[0] = tick / 100
        tap.take(0, batch(tick, -tick))
        tap.take(1, batch(tick * 1000, tick))
        assert tap.end_tick(tick)
    found = samples.of("map")
    assert [it["value"] for it in found] == ["1", "26", "51", "76"]
    assert {it["output"] for it in found} == {1}
    assert [it["tick"] for it in found] == [1, 26, 51, 76]
    assert [it["value"] for it in samples.of("map", after=2)] == ["51", "76"]
    now[0] = 10.9
    assert tap.end_tick(101)
    now[0] = 11.1
    assert not tap.end_tick(102), "nobody has asked for ten seconds"
    assert samples.of("map") == [], "and a viewer that comes back begins anew"
    assert len(run.taps) == 2


def test_many_viewers() -> None:
    samples, _run, now = sampling()
    for at in range(16):
        samples.of(f"map{at}")
    with pytest.raises(TooManySamples, match="16 operators"):
        samples.of("another")
    now[0] = 10.5
    samples.of("another")


@pytest.mark.fault("T5")
def test_records_are_redacted_first() -> None:
    def failing(message: Any) -> Any:
        raise ValueError(message.value)

    cases: list[tuple[Any, str]] = [
        (lambda msg: DataMessage("k", {**msg.value, "card": "*"}, msg.timestamp), "{'card': '*', 'name': 'anna'}"),
        (failing, "<hidden: redact failed with ValueError>"),
        (lambda _msg: HIDDEN, "<hidden: redact returned str, not a DataMessage>"),
        (lambda _msg: None, "<hidden: redact returned NoneType, not a DataMessage>"),
    ]
    for redact, expected in cases:
        samples, run, _now = sampling(redact=redact)
        samples.of("map")
        run.taps[0].take(0, Batch([HIDDEN], [{"card": HIDDEN, "name": "anna"}], [HIDDEN] if redact is failing else [1]))
        run.taps[0].end_tick(1)
        (found,) = samples.of("map")
        assert found["value"] == expected
        assert HIDDEN not in str(found)


@pytest.mark.fault("T5")
def test_hostile_values_are_short_texts() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    samples, run, now = sampling()
    samples.of("map")
    for at, value in enumerate(["\x1b[2J\u202e</script>", "x" * 1_000_000, Broken(), "postgres://me:hush@host/db"]):
        now[0] = at
        run.taps[0].take(0, batch(value))
        run.taps[0].end_tick(at)
    escapes, long, broken, url = (it["value"] for it in samples.of("map"))
    assert escapes.isprintable()
    assert len(long) < 1000
    assert broken.startswith("<Broken instance")
    assert "hush" not in url


def test_samples_over_the_socket(place: Path) -> None:
    del place
    monitor = Monitor(samples=True, redact=lambda msg: DataMessage(msg.key, f"#{msg.value}", msg.timestamp))
    handle = SingleThreadRuntime(numbers(), listeners=[monitor]).start()
    try:
        wait_until(lambda: monitor.watch is not None and handle.progress.tick > 0)
        run = client.find(None)
        first = client.ask(run, "sample", operator="step")
        assert (first["kind"], first["operator"]) == ("samples", "step")
        wait_until(lambda: bool(client.ask(run, "sample", operator="step")["samples"]))
        (newest, *_) = client.ask(run, "sample", operator="step")["samples"][::-1]
        assert newest["value"].startswith("'#")
        assert newest.keys() == {"number", "at", "tick", "output", "key", "value", "timestamp"}
        later = client.ask(run, "sample", operator="step", after=newest["number"])["samples"]
        assert all(it["number"] > newest["number"] for it in later)
        for operator in ("stepp", "", "\x1b[2J", "x" * 10_000):
            with pytest.raises(client.Refused) as refused:
                client.ask(run, "sample", operator=operator)
            assert refused.value.error["kind"] == "UnknownOperator"
            assert refused.value.error["message"].isprintable()
        with pytest.raises(client.Refused, match="needs operator"):
            client.ask(run, "sample")
    finally:
        handle.stop()
        handle.await_termination(60)


def test_records_are_not_shown_unless_somebody_has_said_so(place: Path) -> None:
    del place
    with monitored(numbers()):
        run = client.find(None)
        with pytest.raises(client.Refused, match="samples = true") as refused:
            client.ask(run, "sample", operator="step")
        assert refused.value.error["kind"] == "NotShown"
