"""Event time and epochs (watermarks) on edges, with Malstrom's cases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from malflow import (
    MAX,
    MIN,
    DataMessage,
    OperatorError,
    SingleThreadRuntime,
    StreamProvider,
    agg,
    limit_out_of_orderness,
)
from malflow.sinks import StatelessSink, StatelessSinkImpl, VecSink
from malflow.sources import TextFileSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.conformance.dataflow import epochs_of, messages_of, sis, values_of
from tests.kit.log import Log


def no_epochs(msg: Any, previous: Any) -> None:
    return None


def test_timestamps_get_assigned(any_parallelism: Any) -> None:
    out = messages_of(
        any_parallelism,
        range(10),
        lambda s: s.assign_timestamps("t", lambda m: 2 * m.value).generate_epochs("e", no_epochs)[0],
    )
    assert [m.timestamp for m in out] == list(range(0, 20, 2))


def test_epochs_of_the_old_time_are_removed(runtime: Any, log: Log) -> None:
    def build(s: Any) -> Any:
        on_time, _ = s.generate_epochs("old", lambda m, _: m.timestamp)
        return on_time.assign_timestamps("t", lambda m: m.value).generate_epochs("new", no_epochs)[0]

    assert epochs_of(runtime, range(10), build, log) == [MAX]


def test_converted_timestamps_keep_their_epochs_and_lateness(any_parallelism: Any) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)

    def build(stream: Any) -> Any:
        timed = stream.event_time("times", lambda msg: start + timedelta(seconds=msg.value), out_of_orderness="2s")

        def keyed(it: Any, name: str) -> Any:
            units = it.convert_timestamps(f"{name} units", lambda moment: int((moment - start).total_seconds()))
            return units.key_distribute(name, lambda msg: msg.value % 2)

        windows = keyed(timed, "on time").window(tumbling(10)).allow_late(keyed(timed.late, "late"))
        return windows.aggregate("sums", agg.sum()).results

    found = messages_of(any_parallelism, [1, 9, 3, 12, 5, 20, 2], build)
    assert sorted((it.key, it.value.start, it.value.value) for it in found) == [
        (0, 10, 12),
        (0, 20, 20),
        (1, 0, 13),
    ]
    assert {it.timestamp for it in found} == {9, 19, 29}


def test_a_conversion_that_fails_names_its_record(runtime: Any) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'op' failed at key NoKey, value 7, timestamp 0: ZeroDivisionError"
    ):
        values_of(runtime, [7], lambda s: s.convert_timestamps("op", lambda moment: 1 // moment))


def test_an_epoch_is_issued_after_its_message(runtime: Any, log: Log) -> None:
    class Logging:
        def on_data(self, msg: Any, output: Any) -> None:
            log.append(msg.timestamp)

        def on_epoch(self, epoch: Any, output: Any) -> None:
            log.append(-epoch if epoch is not MAX else "-MAX")

    def build(s: Any) -> Any:
        stamped = s.assign_timestamps("t", lambda m: m.value)
        return stamped.generate_epochs("e", lambda m, _: m.timestamp)[0].stateless_op("log", Logging())

    values_of(runtime, range(1, 4), build)
    assert log == [1, -1, 2, -2, 3, -3, "-MAX"]


def test_none_and_smaller_epochs_are_ignored(runtime: Any, log: Log) -> None:
    wishes = {3: 2, 1: None}

    def build(s: Any) -> Any:
        return s.generate_epochs("e", lambda m, _: wishes.get(m.value, m.value))[0]

    assert epochs_of(runtime, range(6), build, log) == [0, 2, 4, 5, MAX]


def test_the_late_stream_carries_every_epoch(runtime: Any, log: Log) -> None:
    def build(s: Any) -> Any:
        return s.generate_epochs("e", lambda m, _: m.value)[1]

    assert epochs_of(runtime, [3, 1, 5], build, log) == [3, 5, MAX]


def test_equal_is_late_and_the_generator_sees_late_records(runtime: Any, log: Log) -> None:
    def generator(msg: Any, previous: Any) -> Any:
        log.append((msg.value, previous))
        return msg.timestamp

    def stamped(s: Any) -> Any:
        return s.assign_timestamps("t", lambda m: m.value).generate_epochs("e", generator)

    assert values_of(runtime, [2, 1, 2, 3], lambda s: stamped(s)[0]) == [2, 3]
    assert values_of(runtime, [2, 1, 2, 3], lambda s: stamped(s)[1]) == [1, 2]
    assert log[:4] == [(2, None), (1, 2), (2, 2), (3, 2)]


def test_limit_out_of_orderness_makes_exactly_bound_late(any_parallelism: Any) -> None:
    def build(index: int) -> Any:
        def streams(s: Any) -> Any:
            stamped = s.assign_timestamps("t", lambda m: m.value)
            return stamped.generate_epochs("e", limit_out_of_orderness(10))[index]

        return streams

    items = [20, 11, 10, 9, 35, 26, 25]
    assert values_of(any_parallelism, items, build(0)) == [20, 11, 35, 26]
    assert values_of(any_parallelism, items, build(1)) == [10, 9, 25]


def test_limit_out_of_orderness_of_zero_needs_ascending_timestamps(runtime: Any) -> None:
    def build(s: Any) -> Any:
        return s.assign_timestamps("t", lambda m: m.value).generate_epochs("e", limit_out_of_orderness(0))[0]

    assert values_of(runtime, [1, 1, 2, 2, 3], build) == [1, 2, 3]


def test_time_may_be_of_any_ordered_type(any_parallelism: Any) -> None:
    start = datetime(2013, 1, 1)

    def build(s: Any) -> Any:
        stamped = s.assign_timestamps("t", lambda m: start + timedelta(minutes=m.value))
        return stamped.generate_epochs("e", limit_out_of_orderness(timedelta(minutes=5)))[0]

    out = messages_of(any_parallelism, [0, 10, 6, 5, 20], build)
    assert [m.timestamp for m in out] == [start + timedelta(minutes=m) for m in (0, 10, 6, 20)]


@pytest.mark.fault("E27")
def test_files_of_different_days_make_nothing_late(any_parallelism: Any, tmp_path: Path) -> None:
    for day in range(1, 4):
        times = [datetime(2026, 1, day) + timedelta(minutes=minute) for minute in range(1000)]
        (tmp_path / f"{day}.txt").write_text("".join(f"{time.isoformat()}\n" for time in times))
    on_time: VecSink[Any, Any, Any] = VecSink()
    late: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        times = provider.new_stream().source("days", TextFileSource(f"{tmp_path}/*.txt"))
        stamped = times.map("time", datetime.fromisoformat).assign_timestamps("t", lambda m: m.value)
        streams = stamped.generate_epochs("e", limit_out_of_orderness(timedelta(minutes=5)))
        for name, stream, sink in zip(("on time", "late"), streams, (on_time, late), strict=True):
            stream.sink(name, sink)

    any_parallelism(build_dataflow).execute()
    assert (len(on_time), len(late)) == (3000, 0)


def part_epochs(
    runtime: Any, script: Any, log: Log, source: Any = ScriptedSource, **options: Any
) -> tuple[list[Any], list[Any]]:
    """Read the timestamps of parts, with epochs that follow them; return the epochs that come out, and what is late."""
    late: VecSink[Any, Any, Any] = VecSink()
    timed = {part: [it if it is PAUSE else Timed(it, it) for it in items] for part, items in script.items()}
    scripted = source(timed)
    before = len(log)

    def build_dataflow(provider: StreamProvider) -> None:
        streams = provider.new_stream().source("s", scripted).generate_epochs("e", lambda m, _: m.value, **options)
        streams[0].inspect_frontier("f", lambda epoch, _: log.append(epoch))
        streams[1].sink("late", late)

    runtime(build_dataflow).execute()
    return list(log[before:]), late.values


def test_the_epoch_of_parts_is_the_least_of_those_that_go_on(runtime: Any, log: Log) -> None:
    script = {
        "ahead": [*[PAUSE] * 3, 10, 20, *[PAUSE] * 12, 30],
        "behind": [1, 2, *[PAUSE] * 6, 3, *[PAUSE] * 3],
        "empty": [],
    }
    assert part_epochs(runtime, script, log) == ([2, 3, 20, 30, MAX], [])
    assert part_epochs(runtime, script, log, per_part=False) == ([1, 2, 10, 20, 30, MAX], [3])


def test_a_part_is_late_by_its_own_epoch_alone(runtime: Any, log: Log) -> None:
    script = {"a": [5, 4, 5, 6], "b": [1, 3, 2, 9, 9]}
    assert sorted(part_epochs(runtime, script, log)[1]) == [2, 4, 5, 9]
    assert sorted(part_epochs(runtime, script, log, per_part=False)[1]) == [1, 2, 3, 4, 5, 9]


class InOrder(ScriptedSource):
    in_order = True


def test_parts_that_were_not_begun_hold_nothing_back_in_order(runtime: Any, log: Log) -> None:
    script = {"b": [1, 2, PAUSE, 3, 4], "empty": [], "a": [5, 2, 6], "late": [6, 7]}
    assert part_epochs(runtime, script, log, source=InOrder) == ([*range(1, 8), MAX], [2, 6])
    late = part_epochs(runtime, {**script, "other": [8, 1]}, log, source=InOrder, per_part=False)[1]
    assert late == [2, 6, 1]


def test_files_are_read_in_order(any_parallelism: Any, tmp_path: Path) -> None:
    for name in "zcba":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {line}\n" for line in range(1000)))
    out: VecSink[Any, Any, Any] = VecSink()
    source = TextFileSource([str(tmp_path / "z.txt"), str(tmp_path / "*.txt")], in_order=True)
    any_parallelism(lambda provider: provider.new_stream().source("s", source).sink("out", out)).execute()
    workers = range(any_parallelism.keywords["parallelism"])
    for worker in workers:
        mine = "zabc"[worker :: len(workers)]
        got = [value for value in out.values if value[0] in mine]
        assert got == [f"{name} {line}" for name in mine for line in range(1000)]
    assert len(out) == 4000


def test_an_incoming_epoch_passes_if_it_is_greater(runtime: Any, log: Log) -> None:
    def build(s: Any) -> Any:
        first, _ = s.generate_epochs("first", lambda m, _: m.value)
        return first.generate_epochs("second", lambda m, _: m.value + 2 if m.value == 1 else None)[0]

    assert epochs_of(runtime, range(6), build, log) == [0, 3, 4, 5, MAX]


def union_epochs(runtime: Any, left: Any, right: Any, log: Log, name: str | None = None) -> list[Any]:
    """Join two streams, whose values are their epochs, and return the epochs after the union, by way of a log."""
    before = len(log)

    def build_dataflow(provider: StreamProvider) -> None:
        one, _ = provider.new_stream().source("l", sis(left)).generate_epochs("le", lambda m, _: m.value)
        two, _ = provider.new_stream().source("r", sis(right)).generate_epochs("re", lambda m, _: m.value)
        one.union(two, name=name).inspect_frontier("f", lambda epoch, _: log.append(epoch))

    runtime(build_dataflow).execute()
    return list(log[before:])


def test_a_union_has_the_lesser_epoch(runtime: Any, log: Log) -> None:
    assert union_epochs(runtime, [42], [15], log) == [15, 42, MAX]
    assert union_epochs(runtime, [10], [125], log) == [10, 125, MAX]


def test_a_union_may_have_a_name(runtime: Any, log: Log) -> None:
    assert union_epochs(runtime, [42], [15], log, "both") == [15, 42, MAX]


def test_the_frontier_grows_when_the_least_does(runtime: Any, log: Log) -> None:
    assert union_epochs(runtime, [42, 1337], [78, 1337], log) == [42, 78, 1337, MAX]
    assert union_epochs(runtime, [], [43], log) == [43, MAX]
    assert union_epochs(runtime, [1337], [1337], log) == [1337, MAX]


def test_max_comes_once_on_every_worker_when_all_sources_have_ended(any_parallelism: Any, log: Log) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        short = provider.new_stream().source("short", sis([1]))
        long = provider.new_stream().source("long", sis(range(10_000)))
        for name, stream in (
            ("a", short),
            ("b", short.key_distribute("k", lambda m: m.value)),
            ("c", short.union(long)),
        ):
            stream.inspect_frontier(name, lambda epoch, ctx, name=name: log.append((name, ctx.worker_id, epoch)))
        long.sink("late", Logging(log))

    any_parallelism(build_dataflow).execute()
    entries = list(log)
    workers = {worker for _, worker, _ in (entry for entry in entries if isinstance(entry, tuple))}
    assert entries[:10_000] == list(range(10_000))
    assert sorted(entries[10_000:]) == [(name, worker, MAX) for name in "abc" for worker in sorted(workers)]


class Logging(StatelessSinkImpl[Any, Any, Any]):
    """A sink that writes the values to a log of more."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def sink(self, msg: Any) -> None:
        self._log.append(msg.value)

    def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
        self._log.extend(values)


@pytest.mark.differs_on_spark(
    "a tick of Spark polls many times, and that a source has ended is known at its end; epochs come late in the first"
)
def test_a_source_that_has_ended_holds_no_union_back(any_parallelism: Any, log: Log) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        parts = dict.fromkeys(range(3), ())  # each worker has one
        short = provider.new_stream().source("short", ScriptedSource(parts))
        on_time, _ = provider.new_stream().source("long", sis(range(10_000))).generate_epochs("e", lambda m, _: m.value)
        joined = short.union(on_time)
        joined.inspect_frontier("f", lambda epoch, _: log.append(("epoch", epoch)))
        joined.sink("out", Logging(log))

    any_parallelism(build_dataflow).execute()
    entries = list(log)
    epochs = [at for at, entry in enumerate(entries) if isinstance(entry, tuple) and entry[1] is not MAX]
    assert len(epochs) == 10_000
    assert epochs[0] < entries.index(9_999)


def test_an_epoch_after_a_greater_one_does_not_show(runtime: Any, log: Log) -> None:
    assert epochs_of(runtime, [42, 15], lambda s: s.generate_epochs("e", lambda m, _: m.value)[0], log) == [42, MAX]


def test_a_stream_without_a_reader_is_discarded(any_parallelism: Any) -> None:
    any_parallelism(lambda provider: provider.new_stream().source("s", sis(range(10))).map("m", str)).execute()


def test_a_worker_without_parts_holds_nobody_back(runtime: Any, log: Log) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        on_time, _ = provider.new_stream().source("s", sis(range(10))).generate_epochs("e", lambda m, _: m.value)
        stream = on_time.key_distribute("all", lambda _: "all")
        stream.inspect_frontier("f", lambda epoch, ctx: log.append((ctx.worker_id, epoch))).sink(
            "sink", StatelessSink(collected)
        )

    runtime(build_dataflow, parallelism=3).execute()
    for worker in range(3):
        assert [epoch for at, epoch in log if at == worker] == [*range(10), MAX]


class NotATime:
    """Compares as the NaT of pandas and numpy does."""

    def __eq__(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "NaT"


NAT = NotATime()

no_moments = pytest.mark.parametrize("moment", [float("nan"), Decimal("nan"), (1, float("nan")), NAT, None], ids=repr)


@pytest.mark.fault("E25")
@no_moments
@pytest.mark.parametrize("first", [0, 5])
def test_invalid_timestamp_is_refused_at_the_record(runtime: Any, moment: Any, first: int) -> None:
    def build(stream: Any) -> Any:
        stamped = stream.assign_timestamps("stamp", lambda m: moment if m.value == first else 1.0 * m.value)
        return stamped.generate_epochs("epochs", limit_out_of_orderness(1))[0]

    with pytest.raises(OperatorError, match=r"value \d+, timestamp .* is not a timestamp") as caught:
        values_of(runtime, range(10), build)
    assert (caught.value.operator, caught.value.value) == ("stamp", first)


@no_moments
def test_a_source_gives_timestamps_that_can_be_compared(moment: Any) -> None:
    def restamp(msg: Any, output: Any) -> None:
        output.send(DataMessage(msg.key, msg.value, moment if msg.value == 3 else msg.value))

    with pytest.raises(OperatorError, match=r"operator 'epochs' failed at .*value 3, .* is not a timestamp"):
        values_of(
            SingleThreadRuntime,
            range(10),
            lambda s: s.stateless_op("restamp", restamp).generate_epochs("epochs", lambda m, _: 1)[0],
        )


@pytest.mark.fault("E25")
@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("epoch", [float("nan"), NAT], ids=repr)
def test_an_epoch_equals_itself(runtime: Any, epoch: Any, first: int) -> None:
    with pytest.raises(OperatorError, match=f"operator 'epochs' failed at .*value {first}, .*which is not an epoch"):
        values_of(
            runtime,
            range(10),
            lambda s: s.generate_epochs("epochs", lambda m, _: epoch if m.value == first else m.value)[0],
        )


NEW_YORK = ZoneInfo("America/New_York")
NIGHT = datetime(2024, 11, 3, 5, 50, tzinfo=UTC)
"""1:50 of summer time in New York; the clock is set back to 1:00 ten minutes later."""


def stamped_by(zone: Any, build: Callable[[Any, Any], Any]) -> Any:
    return lambda s: build(s, lambda m: (NIGHT + timedelta(minutes=20 * m.value)).astimezone(zone))


def assigned(stream: Any, stamp: Any) -> Any:
    bound = limit_out_of_orderness(timedelta(minutes=10))
    return stream.assign_timestamps("stamp", stamp).generate_epochs("epochs", bound)[0]


def restamped(stream: Any, stamp: Any) -> Any:
    def restamp(msg: Any, output: Any) -> None:
        output.send(DataMessage(msg.key, msg.value, stamp(msg)))

    return stream.stateless_op("restamp", restamp).generate_epochs("epochs", lambda m, _: m.timestamp)[0]


@pytest.mark.fault("E26")
def test_times_in_a_zone_whose_offset_changes_are_refused(runtime: Any) -> None:
    with pytest.raises(OperatorError, match=r"America/New_York, whose offset changes: .*\.astimezone\(UTC\)") as caught:
        values_of(runtime, range(3), stamped_by(NEW_YORK, assigned))
    assert (caught.value.operator, caught.value.value) == ("stamp", 0)
    with pytest.raises(OperatorError, match=r"operator 'epochs' failed .* offset changes"):
        values_of(SingleThreadRuntime, range(3), stamped_by(NEW_YORK, restamped))


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("UTC"), timezone(timedelta(hours=-5)), None])
def test_times_in_a_zone_with_one_offset_are_taken(zone: Any) -> None:
    for build in (assigned, restamped):
        if zone is None:
            naive = datetime(2024, 11, 3)
            values = values_of(SingleThreadRuntime, range(3), lambda s: build(s, lambda m: naive.replace(hour=m.value)))  # noqa: B023
        else:
            values = values_of(SingleThreadRuntime, range(3), stamped_by(zone, build))
        assert values == [0, 1, 2]


@pytest.mark.fault("E26")
def test_a_time_without_a_zone_beside_others_is_refused() -> None:
    def stamp(msg: Any) -> datetime:
        return NIGHT.replace(minute=msg.value, tzinfo=None if msg.value == 5 else UTC)

    for debug in (False, True):  # in one batch, and in several
        told = r"has no zone, and (others|earlier ones) have one.*replace\(tzinfo=UTC\)"
        with pytest.raises(OperatorError, match=told) as caught:
            values_of(partial(SingleThreadRuntime, debug=debug), range(10), lambda s: assigned(s, stamp))
        assert caught.value.value == 5


NAIVE = datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("usual", "other", "told"),
    [
        (
            7,
            NAIVE,
            r"datetime\(2024, 1, 1, 0, 0\) is of type datetime, .* of type int, such as 7; .*assign_timestamps\(\)",
        ),
        (NAIVE, 7, r"7 is of type int, .* of type datetime, such as datetime.datetime\(2024.*assign_timestamps\(\)"),
        (7.5, "8", r"'8' is of type str, .* of type float, such as 7.5; .*assign_timestamps\(\)"),
        (NAIVE, NAIVE.date(), r"is of type date, .* of type datetime, such as .*assign_timestamps\(\)"),
        (
            NAIVE,
            NAIVE.replace(tzinfo=UTC),
            r"\+00:00 has a zone, .* have none, such as 2024-01-01 00:00:00; .*replace\(",
        ),
        (
            NAIVE.replace(tzinfo=UTC),
            NAIVE,
            r"00:00:00 has no zone, .* have one, such as 2024-01-01 00:00:00\+00:00; .*replace\(",
        ),
    ],
)
@pytest.mark.parametrize("step", ["assign", "restamp", "event_time"])
def test_times_of_two_kinds_in_one_batch_name_both_at_the_first_record(
    step: str, usual: Any, other: Any, told: str
) -> None:
    def stamp(msg: Any) -> Any:
        return usual if msg.value % 7 < 5 else other  # 5 is the first

    def build(stream: Any) -> Any:
        bound = timedelta(0) if isinstance(usual, datetime) else 0
        stream = stream.flatten("numbers")  # one batch, however slow the machine is
        if step == "event_time":
            return stream.event_time("stamp", stamp, out_of_orderness=bound)
        if step == "restamp":
            return restamped(stream, stamp)
        return stream.assign_timestamps("stamp", stamp).generate_epochs("epochs", limit_out_of_orderness(bound))[0]

    with pytest.raises(OperatorError, match=told) as caught:
        values_of(SingleThreadRuntime, [range(20)], build)
    assert (caught.value.operator, caught.value.value) == ("epochs" if step == "restamp" else "stamp", 5)


def test_times_of_types_that_can_be_compared_are_taken() -> None:
    moments = [1, 2.5, Decimal(3), True, MAX]
    values = values_of(
        SingleThreadRuntime,
        range(5),
        lambda s: s.assign_timestamps("t", lambda m: moments[m.value]).generate_epochs("e", no_epochs)[0],
    )
    assert values == [0, 1, 2, 3, 4]


def test_a_zone_is_looked_for_among_other_moments() -> None:
    moments = [MIN, NIGHT, NIGHT.astimezone(NEW_YORK)]
    with pytest.raises(OperatorError, match=r"value 2,.*offset changes"):
        values_of(
            SingleThreadRuntime,
            range(3),
            lambda s: s.assign_timestamps("t", lambda m: moments[m.value]).generate_epochs("e", no_epochs)[0],
        )


AWARE = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("bound", "timestamp", "told"),
    [
        (
            timedelta(seconds=1),
            3,
            r"the timestamps are int, such as 3, and the bound is timedelta.*change the timestamps",
        ),
        (
            timedelta(seconds=1),
            "2024",
            r"the timestamps are str, such as '2024', and the bound is timedelta.*types=\{'time'",
        ),
        (5, AWARE, r"the timestamps are datetime, such as datetime.datetime\(2024, 1, 1.*a timedelta for datetimes"),
        (1.5, None, "None is not a timestamp"),
    ],
)
def test_a_bound_of_another_kind_names_both_and_what_to_do(bound: Any, timestamp: Any, told: str) -> None:
    def build(stream: Any) -> Any:
        stamped = stream.assign_timestamps("stamp", lambda _: timestamp)
        return stamped.generate_epochs("epochs", limit_out_of_orderness(bound))[0]

    with pytest.raises(OperatorError, match=told) as caught:
        values_of(SingleThreadRuntime, range(3), build)
    if timestamp is not None:
        assert caught.value.operator == "epochs"


@pytest.mark.parametrize(("first", "second"), [(1, AWARE), ("a", 1), ((1, "a"), (1, 2))])
def test_timestamps_of_two_kinds_are_told(runtime: Any, first: Any, second: Any) -> None:
    def build(stream: Any) -> Any:
        stamped = stream.assign_timestamps("stamp", lambda m: second if m.value else first)
        return stamped.generate_epochs("epochs", lambda m, _: m.timestamp)[0]

    with pytest.raises(
        OperatorError, match=r"operator 'epochs' failed at .*value 1.*can't be compared with the previous epoch"
    ) as caught:
        values_of(runtime, range(3), build)
    assert "use one type of timestamp for all records" in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint64", "int64", "float32", "float64"])
@pytest.mark.parametrize("assigned", [True, False])
def test_numbers_of_fixed_width_are_timestamps_like_others(runtime: Any, kind: str, assigned: bool) -> None:
    fixed = getattr(pytest.importorskip("numpy"), kind)
    stamps = [0, 1, 3, 2, 12, 13, 5, 100, 99, 20, 127]
    found = []
    for of in (fixed, int):
        sinks: list[VecSink[Any, Any, Any]] = [VecSink(), VecSink()]

        def build(provider: StreamProvider, of: Any = of, sinks: Any = sinks) -> None:
            stream: Any = provider.new_stream().source("s", ScriptedSource([Timed(at, of(at)) for at in stamps]))
            if assigned:
                stream = stream.assign_timestamps("t", lambda it, of=of: of(it.value))
            streams = stream.generate_epochs("e", limit_out_of_orderness(of(5)))
            for name, it, sink in zip(("on time", "late"), streams, sinks, strict=True):
                it.sink(name, sink)

        runtime(build).execute()
        found.append([[(msg.value, msg.timestamp) for msg in sink] for sink in sinks])
        assert all(type(msg.timestamp) in (int, float) for sink in sinks for msg in sink)
    assert found[0] == found[1] == [[(at, at) for at in (0, 1, 3, 2, 12, 13, 100, 99, 127)], [(5, 5), (20, 20)]]


@pytest.mark.parametrize("kind", ["Timestamp", "Timedelta"])
@pytest.mark.parametrize("assigned", [True, False])
def test_nanoseconds_that_would_be_lost_are_refused(runtime: Any, kind: str, assigned: bool) -> None:
    moment = getattr(pytest.importorskip("pandas"), kind)
    script = [Timed(at, moment(at)) for at in (1_000, 2_000, 2_500)]

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("s", ScriptedSource(script))
        if assigned:
            stream = stream.assign_timestamps("t", lambda msg: moment(msg.value))
        stream.generate_epochs("e", limit_out_of_orderness(timedelta(0)))[0].sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"failed at .*value 2500, .* has nanoseconds, and .* round it"):
        runtime(build).execute()
