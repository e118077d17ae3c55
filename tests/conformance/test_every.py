"""Epochs (watermarks) that are multiples of a step."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from malflow import (
    MAX,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    StreamProvider,
    limit_out_of_orderness,
)
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.conformance.dataflow import epochs_of, values_of
from tests.kit.log import Log


def own_time(stream: Any, name: str = "t") -> Any:
    return stream.assign_timestamps(name, lambda msg: msg.value)


def record_time(msg: Any, _: Any) -> Any:
    return msg.timestamp


class Marks:
    """Notes records and epochs in their order."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def on_data(self, msg: Any, output: Any) -> None:
        self.log.append(msg.value)

    def on_epoch(self, epoch: Any, output: Any) -> None:
        self.log.append(f"epoch {epoch}")


@pytest.mark.parametrize("generator", [record_time, limit_out_of_orderness(0)], ids=["function", "bound"])
def test_an_epoch_is_the_multiple_that_was_reached(runtime: Any, log: Log, generator: Any) -> None:
    def build(stream: Any) -> Any:
        on_time, _ = own_time(stream).generate_epochs("e", generator, every=10)
        return on_time.stateless_op("marks", Marks(log))

    values_of(runtime, [3, 9, 10, 19, 12, 45, 41, 40, 60], build)
    assert list(log) == [3, "epoch 0", 9, 10, "epoch 10", 19, 12, 45, "epoch 40", 41, 60, "epoch 60", "epoch MAX"]


def test_records_are_late_by_the_multiple(runtime: Any) -> None:
    late = values_of(
        runtime, [12, 11, 10, 9, 25, 20, 21], lambda s: own_time(s).generate_epochs("e", record_time, every=10)[1]
    )
    assert late == [10, 9, 20]


def test_a_generator_receives_its_own_epoch_before_rounding(runtime: Any, log: Log) -> None:
    def next_one(msg: Any, previous: Any) -> int:
        return 1 if previous is None else previous + 1

    def build(stream: Any) -> Any:
        return stream.generate_epochs("e", next_one, every=4)[0]

    assert epochs_of(runtime, range(10), build, log) == [0, 4, 8, MAX]


def test_incoming_epochs_are_rounded_too(runtime: Any, log: Log) -> None:
    def build(stream: Any) -> Any:
        dense, _ = own_time(stream).generate_epochs("dense", record_time)
        return dense.generate_epochs("thin", lambda *_: None, every=5)[0]

    assert epochs_of(runtime, [4, 6, 7, 12, 13], build, log) == [0, 5, 10, MAX]


def test_the_epochs_of_parts_are_rounded(runtime: Any, log: Log) -> None:
    late: VecSink[Any, Any, Any] = VecSink()
    script = {"a": [5, 14, 10, 3, PAUSE, 25], "b": [PAUSE, 8, 12, 11, 10, 31]}
    source = ScriptedSource(
        {part: [it if it is PAUSE else Timed(it, it) for it in its] for part, its in script.items()}
    )

    def build_dataflow(provider: StreamProvider) -> None:
        streams = provider.new_stream().source("s", source).generate_epochs("e", record_time, every=10)
        streams[0].inspect_frontier("f", lambda epoch, _: log.append(epoch))
        streams[1].sink("late", late)

    runtime(build_dataflow).execute()
    assert sorted(late.values) == [3, 10, 10]
    epochs = [epoch for epoch in log if epoch is not MAX]
    assert epochs == sorted(set(epochs))
    assert set(epochs) <= {0, 10, 20, 30}


PLUS_ONE = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("times", "every", "epochs"),
    [
        ([-1, 3, 20], 10, [-10, 0, 20]),
        ([0.25, 1.75, 3.5], 1.5, [0.0, 1.5, 3.0]),
        ([1.0, 7.0], 5, [0.0, 5.0]),
        ([Decimal("-0.1"), Decimal("2.3")], Decimal("0.5"), [Decimal("-0.5"), Decimal("2.0")]),
        ([Fraction(1, 3), Fraction(7, 2)], Fraction(1, 2), [0, Fraction(7, 2)]),
        ([datetime(2024, 5, 1, 9, 59, 59, 7), datetime(1960, 1, 1, 1)], timedelta(hours=1), [datetime(2024, 5, 1, 9)]),
        ([datetime(2024, 5, 1, 0, 30, tzinfo=PLUS_ONE)], timedelta(days=1), [datetime(2024, 4, 30, tzinfo=UTC)]),
        ([date(2024, 5, 3)], timedelta(days=7), [date(2024, 5, 2)]),
        ([timedelta(seconds=61)], timedelta(minutes=1), [timedelta(minutes=1)]),
        ([float("-inf"), 5.0, float("inf")], 2, [float("-inf"), 4.0, float("inf")]),
    ],
)
@pytest.mark.parametrize("generator", [record_time, None], ids=["function", "bound"])
def test_multiples_count_from_zero_or_from_1970(
    log: Log, times: list[Any], every: Any, epochs: list[Any], generator: Any
) -> None:
    generator = generator or limit_out_of_orderness(every - every)
    got = epochs_of(
        SingleThreadRuntime, times, lambda s: own_time(s).generate_epochs("e", generator, every=every)[0], log
    )
    assert got == [*epochs, MAX]


def test_a_multiple_keeps_the_zone_of_its_epoch(log: Log) -> None:
    def build(stream: Any) -> Any:
        return own_time(stream).generate_epochs("e", record_time, every=timedelta(hours=1))[0]

    (epoch, _) = epochs_of(SingleThreadRuntime, [datetime(2024, 5, 1, 0, 30, tzinfo=PLUS_ONE)], build, log)
    assert epoch.tzinfo == PLUS_ONE


@pytest.mark.parametrize(
    ("bound", "every", "told"),
    [
        (None, 0, "operator 'e' every must be a positive number or timedelta, .*; got 0"),
        (None, -1.5, "got -1.5"),
        (None, timedelta(0), r"got datetime.timedelta\(0\)"),
        (None, float("nan"), "got nan"),
        (None, float("inf"), "got inf"),
        (None, Decimal("nan"), "got Decimal"),
        (None, True, "got True"),
        (None, "1x", "got '1x'"),
        (10, timedelta(seconds=1), "has a bound of 10 and an every of datetime.timedelta.*; both must fit"),
        (timedelta(1), 60, "has a bound of datetime.timedelta.* and an every of 60"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(bound: Any, every: Any, told: str) -> None:
    generator = record_time if bound is None else limit_out_of_orderness(bound)
    with pytest.raises(GraphError, match=told) as caught:
        values_of(SingleThreadRuntime, [1], lambda s: s.generate_epochs("e", generator, every=every)[0])
    assert caught.value.operator == "e"


@pytest.mark.parametrize(
    ("moment", "every", "told"),
    [
        (3, timedelta(seconds=1), "the epochs are int, such as 3, and every is timedelta, .* use an every that fits"),
        (datetime(2024, 5, 1, tzinfo=UTC), 60, "the epochs are datetime, .* and every is int, 60"),
        (date(2024, 5, 1), 1, "the epochs are date"),
        (timedelta(1), 2, "the epochs are timedelta"),
        ("2024", 1, "the epochs are str"),
    ],
)
def test_a_step_that_does_not_fit_is_told_with_the_record(runtime: Any, moment: Any, every: Any, told: str) -> None:
    with pytest.raises(OperatorError, match=told) as caught:
        values_of(runtime, [moment], lambda s: own_time(s).generate_epochs("e", record_time, every=every)[0])
    assert (caught.value.operator, caught.value.value) == ("e", moment)


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), -1])
def test_a_bound_is_finite(bound: float) -> None:
    with pytest.raises(GraphError, match="needs a finite bound of zero or more; got"):
        limit_out_of_orderness(bound)


def test_a_generator_tells_its_bound() -> None:
    generator = limit_out_of_orderness(timedelta(seconds=3))
    assert generator.bound == timedelta(seconds=3)
    assert repr(generator) == "limit_out_of_orderness(datetime.timedelta(seconds=3))"
