"""Windows and aggregates behave the same on every runtime, in snapshots too."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from malflow import OperatorError, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import Timing, WindowResult, calendar, counting, session, sliding, tumbling
from tests.conformance.dataflow import messages_of, values_of

READINGS: list[dict[str, Any]] = [{"sensor": f"s{n % 3}", "at": n * 7 % 50 + n, "value": n / 10} for n in range(60)]


def stamped(stream: Any, bound: Any = 50) -> Any:
    """Key readings by their sensor, with epochs."""
    timed = stream.assign_timestamps("at", lambda msg: msg.value["at"])
    on_time, _ = timed.generate_epochs("epochs", limit_out_of_orderness(bound))
    return on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])


def counts(windows: Any) -> dict[tuple[Any, Any, Any], int]:
    """Return how many readings are in each of the windows."""
    found: dict[tuple[Any, Any, Any], int] = {}
    for reading in READINGS:
        for start, end in windows(reading["at"]):
            found[reading["sensor"], start, end] = found.get((reading["sensor"], start, end), 0) + 1
    return found


def test_tumbling_windows(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream).window(tumbling(10)).aggregate("counts", agg.count())

    results = messages_of(any_parallelism, READINGS, build)
    found = {(it.key, it.value.start, it.value.end): it.value.value for it in results}
    assert len(found) == len(results)
    assert found == counts(lambda at: [(at // 10 * 10, at // 10 * 10 + 10)])
    assert all(it.timestamp == it.value.end - 1 for it in results)


def test_windows_of_ints_with_many_records_of_few_keys(any_parallelism: Any) -> None:
    """Records are added up before they are sent, where there are several workers; nobody can see it."""
    parts = {part: [Timed((n * n + part) % 5, n // 3) for n in range(3_000)] for part in range(3)}
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(parts))
        timed = numbers.event_time("times", lambda msg: msg.timestamp, out_of_orderness=50, every=20)
        windows = timed.key_distribute("odd", lambda msg: msg.value % 2).window(tumbling(100))
        windows.aggregate("sums", agg.count(), agg.sum(of=int), agg.max(), agg.mean(of=int)).sink("sink", sink)

    run = any_parallelism(build)
    run.execute()
    found = {(it.key, it.value.start): it.value.value for it in sink}
    held: dict[tuple[int, int], list[int]] = {}
    for it in (it for script in parts.values() for it in script):
        held.setdefault((it.value % 2, it.timestamp // 100 * 100), []).append(it.value)
    assert found == {place: (len(them), sum(them), max(them), sum(them) / len(them)) for place, them in held.items()}
    assert len(found) == len(sink)
    assert run.progress.records["sums"] == 9_000


def test_sliding_windows(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream).window(sliding(12, 4)).aggregate("counts", agg.count())

    results = messages_of(any_parallelism, READINGS, build)
    found = {(it.key, it.value.start, it.value.end): it.value.value for it in results}
    assert len(found) == len(results)
    assert found == counts(lambda at: [(at // 4 * 4 - back, at // 4 * 4 - back + 12) for back in (0, 4, 8)])


def test_early_results(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream, 0).window(tumbling(30), early=10).aggregate("counts", agg.count())

    results = messages_of(runtime, READINGS, build)
    early = [it for it in results if it.value.timing is Timing.EARLY]
    assert early
    assert all((it.timestamp + 1 - it.value.start) % 10 == 0 for it in early)
    for it in early:
        assert it.timestamp < it.value.end - 1
        (last,) = [its.value.value for its in results if its.key == it.key and its.timestamp == it.value.end - 1]
        assert 1 <= it.value.value <= last


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 5), session(4)], ids=["tumbling", "sliding", "session"])
def test_late_records_are_in_open_windows_or_too_late(runtime: Any, windows: Any) -> None:
    def build(stream: Any) -> Any:
        timed = stream.assign_timestamps("at", lambda msg: msg.value["at"])
        on_time, late = timed.generate_epochs("epochs", limit_out_of_orderness(3))
        keyed = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
        late_ones = late.key_distribute("late sensor", lambda msg: msg.value["sensor"])
        results, revised, too_late = keyed.window(windows).allow_late(late_ones).aggregate("all", agg.collect("at"))
        return results.union(revised, too_late.map("lost", lambda reading: ("lost", reading["at"])))

    found = values_of(runtime, READINGS, build)
    lost = sorted(at for what, at in (it for it in found if it[0] == "lost"))
    inside = [at for it in found if isinstance(it, WindowResult) for at in it.value]
    assert lost
    if windows != sliding(10, 5):
        assert sorted(inside + lost) == sorted(it["at"] for it in READINGS)
    assert {*inside, *lost} == {it["at"] for it in READINGS}


def test_sessions(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream).window(session(5)).aggregate("visits", agg.count(), agg.max("at"))

    expected = set()
    for sensor in ("s0", "s1", "s2"):
        times = sorted(it["at"] for it in READINGS if it["sensor"] == sensor)
        starts = [at for at, before in zip(times, [-100, *times], strict=False) if at - before >= 5]
        for start, end in zip(starts, [*starts[1:], 1000], strict=True):
            inside = [at for at in times if start <= at < end]
            expected.add((sensor, start, inside[-1] + 5, (len(inside), inside[-1])))
    results = messages_of(any_parallelism, READINGS, build)
    assert len(results) == len(expected) > 3
    assert {(it.key, *it.value[:3]) for it in results} == expected
    assert all(it.timestamp == it.value.end - 1 for it in results)


def test_windows_of_a_number_of_records(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream).window(counting(6, 4)).aggregate("groups", agg.sum("at"))

    expected = []
    for sensor in ("s0", "s1", "s2"):
        times = [it["at"] for it in READINGS if it["sensor"] == sensor]
        groups = [times[start : start + 6] for start in range(0, len(times), 4)]
        expected += [(sensor, it[0], it[-1] + 1, sum(it), len(it) == 6) for it in groups]
    results = messages_of(any_parallelism, READINGS, build)
    found = [(it.key, *it.value[:3], it.value.timing is Timing.FINAL) for it in results]
    assert sorted(found) == sorted(expected)


def test_windows_of_the_calendar(runtime: Any) -> None:
    days = [datetime(2026, 3, day, hour, tzinfo=UTC) for day in (28, 29, 30) for hour in range(24)]

    def build(stream: Any) -> Any:
        timed = stream.assign_timestamps("at", lambda msg: msg.value)
        on_time, _ = timed.generate_epochs("epochs", limit_out_of_orderness(timedelta(0)))
        keyed = on_time.key_distribute("all", lambda msg: "all")
        return keyed.window(calendar("day", "Europe/Berlin")).aggregate("hours", agg.count())

    results = values_of(runtime, days, build)
    assert [it.value for it in results] == [23, 23, 24, 2]
    assert [str(it.start) for it in results[1:3]] == ["2026-03-29 00:00:00+01:00", "2026-03-30 00:00:00+02:00"]
    assert [it.timing for it in results] == [Timing.FINAL, Timing.FINAL, Timing.FINAL, Timing.END]


def test_rollups(any_parallelism: Any) -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)

    def build(stream: Any) -> Any:
        timed = stream.assign_timestamps("time", lambda msg: start + timedelta(minutes=20 * msg.value["at"]))
        on_time, _ = timed.generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=17)))
        keyed = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
        levels = keyed.rollup("levels", ["hour", "day", "month"], agg.count(), agg.max("at"), zone="Europe/Berlin")
        first, *others = (it.map(f"tag {unit}", tagged(unit)) for unit, it in levels.items())
        return first.union(*others)

    def tagged(unit: str) -> Any:
        return lambda result: (unit, result)

    def direct(unit: str) -> Any:
        def windows(stream: Any) -> Any:
            timed = stream.assign_timestamps("time", lambda msg: start + timedelta(minutes=20 * msg.value["at"]))
            on_time, _ = timed.generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=17)))
            keyed = on_time.key_distribute("sensor", lambda msg: msg.value["sensor"])
            return keyed.window(calendar(unit, "Europe/Berlin")).aggregate("direct", agg.count(), agg.max("at"))

        return windows

    found = messages_of(any_parallelism, READINGS, build)
    for unit in ("hour", "day", "month"):
        level = sorted((it.key, it.value[1][:3], it.timestamp) for it in found if it.value[0] == unit)
        windows = messages_of(any_parallelism, READINGS, direct(unit))
        assert level == sorted((it.key, it.value[:3], it.timestamp) for it in windows)
    assert sum(it.value[1].value[0] for it in found if it.value[0] == "day") == len(READINGS)


def test_aggregates_without_windows(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        return stream.key_distribute("parity", lambda msg: msg.value % 2).aggregate("so far", agg.count(), agg.sum())

    assert values_of(runtime, [1, 2, 3, 4], build) == [(1, 1), (1, 2), (2, 4), (2, 6)]


def test_windows_are_chained(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        minutes = stamped(stream).window(tumbling(10)).aggregate("small", agg.count())
        return minutes.window(tumbling(50)).aggregate("large", agg.sum("value"))

    results = values_of(runtime, READINGS, build)
    assert sum(it.value for it in results) == len(READINGS)
    assert WindowResult(0, 50, 14, Timing.FINAL) in results or all(it.end % 50 == 0 for it in results)


def test_a_record_behind_its_window_is_an_error(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        back = stamped(stream, 0).stateful_op("back", lambda msg, state, output: output.send(_older(msg)) or 1)
        return back.window(tumbling(10)).aggregate("counts", agg.count())

    with pytest.raises(OperatorError, match=r"operator 'counts' .*epoch .* has already closed its window") as caught:
        values_of(runtime, READINGS, build)
    assert ".assign_timestamps()" in str(caught.value)


def test_windows_of_a_number_over_datetimes_ask_for_a_timedelta(runtime: Any) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def build(stream: Any) -> Any:
        timed = stream.event_time("times", lambda _: start, out_of_orderness=timedelta(0), per_part=False)
        return timed.key_distribute("key", lambda msg: 1).window(tumbling(60)).aggregate("counts", agg.count())

    with pytest.raises(
        OperatorError, match=r"operator 'counts' .*windows of 60 don't fit .*; use a timedelta as the size"
    ):
        values_of(runtime, READINGS, build)


def _older(msg: Any) -> Any:
    return type(msg)(msg.key, msg.value, msg.timestamp - 30)


def test_windows_close_while_only_some_workers_have_records_left(runtime: Any) -> None:
    script = {"short": [1, PAUSE, 2], "long": [item for at in range(0, 60, 3) for item in (Timed(at, at), PAUSE)]}
    results: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", StatefulSource(ScriptedSource(script)))
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(10)).aggregate("counts", agg.count()).sink("results", results)

    runtime(build, parallelism=2).execute()
    found = {it.value.start: it.value for it in results}
    assert [found[start].value for start in (0, 10, 20, 30, 40, 50)] == [6, 3, 3, 4, 3, 3]
    assert all(found[start].timing is Timing.FINAL for start in (0, 10, 20, 30, 40))


@pytest.mark.parametrize("lengths", [(30, 100), (100, 30), (0, 50)])
def test_windows_of_windows_whichever_source_ends_first(any_parallelism: Any, lengths: tuple[int, int]) -> None:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        counts = []
        for name, length in zip("ab", lengths, strict=True):
            stream = provider.new_stream().source(name, SingleIteratorSource(range(length)))
            on_time, _ = stream.generate_epochs(f"epochs {name}", limit_out_of_orderness(0))
            keyed = on_time.key_distribute(f"key {name}", lambda msg: msg.value % 2)
            counts.append(keyed.window(tumbling(7)).aggregate(f"counts {name}", agg.count()))
        both = counts[0].union(counts[1]).map("count", lambda result: result.value)
        both.key_distribute("all", lambda msg: 0).window(tumbling(20)).aggregate("sums", agg.sum()).sink("out", out)

    any_parallelism(build).execute()
    ends = Counter((number // 7 * 7 + 6) // 20 * 20 for length in lengths for number in range(length))
    assert {result.start: result.value for result in out.values} == ends
