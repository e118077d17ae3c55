"""Mistakes with operators that drop, hold back or reorder records, and changes of them between two runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, SnapshotError, limit_out_of_orderness
from malflow.patterns import absent, step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource
from malflow.windows import FOREVER
from tests.windows.running import results_of

HALF_A_DAY = timedelta(hours=12)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda keyed: keyed.distinct("it"), "operator 'it' needs within=.* expire .*FOREVER"),
        (lambda keyed: keyed.distinct("it", within=0), "within must be a positive number or timedelta, .*; got 0"),
        (lambda keyed: keyed.distinct("it", within=timedelta(0)), "within must be a positive number or timedelta"),
        (lambda keyed: keyed.distinct("it", 3, within=1), "by must be a plain function; got 3"),
        (lambda keyed: keyed.throttle("it", 0, per=1), "n must be a whole number, at least 1; got 0"),
        (lambda keyed: keyed.throttle("it", 2, per="1 x"), "per must be a positive number or timedelta, .*; got '1 x'"),
        (lambda keyed: keyed.throttle("it", 2, per=1, kind="burst"), "'sliding' or 'bucket' as its kind; got 'burst'"),
        (lambda keyed: keyed.batch("it", 0, within=1), "size must be a whole number, at least 1; got 0"),
        (lambda keyed: keyed.batch("it", 1, within=-1), "within must be a positive number or timedelta, .*; got -1"),
        (lambda keyed: keyed.sample("it", 1.5), "fraction must be a number, from 0 to 1; got 1.5"),
        (lambda keyed: keyed.sample("it", float("nan")), "fraction must be a number, from 0 to 1; got nan"),
        (lambda keyed: keyed.sample("it", True), "fraction must be a number, from 0 to 1; got True"),
    ],
)
def test_wrong_arguments_are_refused(add: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        results_of([], 0, add)


def test_a_span_that_does_not_fit_the_timestamps_is_an_error() -> None:
    with pytest.raises(
        OperatorError,
        match=r"operator 'it' failed at key 'a'.*within=datetime.timedelta.* does not fit the timestamp 1 ",
    ) as caught:
        results_of([("a", 1, 0)], 0, lambda keyed: keyed.distinct("it", within=timedelta(hours=1)))
    assert "window" not in str(caught.value)
    with pytest.raises(OperatorError, match="whole days for dates"):
        results_of([("a", date(2026, 3, 1), 0)], timedelta(0), lambda keyed: keyed.distinct("it", within=HALF_A_DAY))


@pytest.mark.parametrize(
    ("add", "argument"),
    [
        (lambda keyed, span: keyed.throttle("it", 2, per=span)[0], "per"),
        (lambda keyed, span: keyed.throttle("it", 2, per=span, kind="bucket")[0], "per"),
        (lambda keyed, span: keyed.batch("it", 2, within=span), "within"),
        (lambda keyed, span: keyed.distinct("it", within=span), "within"),
        (lambda keyed, span: keyed.asof_join("it", keyed, tolerance=span), "tolerance"),
        (lambda keyed, span: keyed.match("it", step("a").then(step("b")).within(span))[0], "within"),
        (lambda keyed, span: keyed.match("it", step("a").then(step("b"), within=span))[0], "within"),
        (lambda keyed, span: keyed.match("it", absent(step("a"), during=span).then(step("b")))[0], "during"),
    ],
)
@pytest.mark.parametrize(
    ("timestamp", "span"),
    [
        (datetime(2026, 3, 1), 60),
        (datetime(2026, 3, 1, tzinfo=UTC), 1.5),
        (timedelta(1), 60),
        (1, timedelta(hours=1)),
        (1.5, timedelta(hours=1)),
        (date(2026, 3, 1), 1),
        (date(2026, 3, 1), HALF_A_DAY),
    ],
)
def test_a_span_of_another_type_names_the_record_and_the_cure(
    add: Callable[[Any, Any], Any], argument: str, timestamp: Any, span: Any
) -> None:
    bound = timedelta(0) if isinstance(timestamp, date | timedelta) else 0
    with pytest.raises(
        OperatorError,
        match=rf"operator 'it' failed at key 'a', value 'a', timestamp .*{argument}=.* does not fit the timestamp .*"
        rf"{argument}= is a number for numbers, a timedelta for datetimes",
    ):
        results_of([("a", timestamp, "a")], bound, lambda keyed: add(keyed, span))


def test_a_missing_field_names_the_record() -> None:
    with pytest.raises(OperatorError, match=r"operator 'it' failed at key 'a', value {'id': 1}.*'name'"):
        results_of([("a", 1, {"id": 1})], 0, lambda keyed: keyed.changes("it", "name"))


def test_an_id_that_cannot_be_hashed_names_the_record() -> None:
    with pytest.raises(OperatorError, match=r"operator 'it' failed at key 'a', value \[2\].*unhashable"):
        results_of([("a", 1, 1), ("a", 2, [2])], 0, lambda keyed: keyed.distinct("it", within=10))


def test_ids_are_remembered_until_no_record_can_be_near() -> None:
    items = [("a", 9, "x"), ("a", 18, "y"), ("a", 19, "x"), ("a", 18, "x")]
    passed = results_of(items[:2] + items[3:], 7, lambda keyed: keyed.distinct("it", within=10))
    assert [msg.timestamp for msg in passed] == [9, 18], "18 is within 10 of 9, though its pane is the next one"
    assert len(results_of(items[:3], 7, lambda keyed: keyed.distinct("it", within=10))) == 3


def test_none_is_a_value_as_any_other() -> None:
    items = [("a", n, value) for n, value in enumerate([None, None, 1, None])]
    changed = results_of(items, 0, lambda keyed: keyed.changes("it"))
    assert [msg.value for msg in changed] == [None, 1, None]


def test_a_value_that_is_mutated_further_on_still_counts_as_it_was() -> None:
    def add(keyed: Any) -> Any:
        return keyed.changes("it").map("clear", lambda value: value.clear() or "change")

    assert len(results_of([("a", n, [1]) for n in range(3)], 0, add)) == 1


def test_a_limit_is_one_of_each_span() -> None:
    items = [("a", at, at) for at in range(130)]
    passed = results_of(items, 0, lambda keyed: keyed.throttle("it", 10, per=60)[0])
    assert [msg.value for msg in passed] == [*range(10), *range(60, 70), *range(120, 130)]


def test_a_limit_is_one_of_each_span_of_time_out_of_order() -> None:
    items = [("a", at, at) for at in (100, 101, 112, 99, 95, 90, 103)]
    passed = results_of(items, 50, lambda keyed: keyed.throttle("it", 2, per=10)[0])
    assert [msg.value for msg in passed] == [100, 101, 112]
    passed = results_of(items, 50, lambda keyed: keyed.throttle("it", 3, per=10)[0])
    assert [msg.value for msg in passed] == [100, 101, 112, 99], "four newer ones have passed before 90"


def test_bursts_are_followed_by_single_records() -> None:
    items = [("a", at, at) for at in range(7)]
    passed = results_of(items, 0, lambda keyed: keyed.throttle("it", 2, per=6, kind="bucket")[0])
    held_back = results_of(items, 0, lambda keyed: keyed.throttle("it", 2, per=6, kind="bucket")[1])
    assert [msg.value for msg in passed] == [0, 1, 3, 6]
    assert [msg.value for msg in held_back] == [2, 4, 5]


def test_samples_are_stable_and_nested() -> None:
    items = [("a", at, at) for at in range(2000)]

    def sample(fraction: float, workers: int) -> set[Any]:
        return {
            it.value for it in results_of(items, 0, lambda keyed: keyed.sample("it", fraction), parallelism=workers)
        }

    small, large = sample(0.1, 1), sample(0.5, 3)
    assert small < large
    assert 150 < len(small) < 250
    assert 900 < len(large) < 1100
    assert results_of(items, 0, lambda keyed: keyed.sample("it", 0)) == []
    assert len(results_of(items, 0, lambda keyed: keyed.sample("it", 1))) == 2000


def run_twice(folder: Path, *adds: Callable[[Any], Any]) -> list[Any]:
    """Run a job, and then with another operator from its snapshot; return the values of the second run."""
    source = StatefulSource(ScriptedSource([1, 1, END, 1, 2]))
    sink: VecSink[Any, Any, Any] = VecSink()
    for add in adds:
        sink = VecSink()

        def build(provider: Any, add: Callable[[Any], Any] = add, sink: Any = sink) -> None:
            on_time, late = (
                provider.new_stream().source("source", source).generate_epochs("epochs", limit_out_of_orderness(0))
            )
            late.sink("late", VecSink())
            add(on_time.key_distribute("all", lambda msg: "all")).sink("results", sink)

        SingleThreadRuntime(build, persistence=FsspecBackend(str(folder))).execute()
    return list(sink.values)


def test_ids_are_remembered_by_the_next_run(tmp_path: Path) -> None:
    add: Callable[[Any], Any] = lambda keyed: keyed.distinct("it", within=FOREVER)  # noqa: E731 - short
    assert run_twice(tmp_path, add, add) == [2]


def test_another_span_is_refused_with_both_sides(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"is distinct within 20, but .* distinct within 10; .*version="):
        run_twice(
            tmp_path, lambda keyed: keyed.distinct("it", within=10), lambda keyed: keyed.distinct("it", within=20)
        )


def test_another_span_of_a_new_version_starts_without_ids(tmp_path: Path) -> None:
    values = run_twice(
        tmp_path,
        lambda keyed: keyed.distinct("it", within=10),
        lambda keyed: keyed.distinct("it", within=20, version=2),
    )
    assert values == [1, 2]


def test_another_limit_of_a_new_version_starts_with_full_buckets(tmp_path: Path) -> None:
    def limit(n: int, **options: Any) -> Callable[[Any], Any]:
        return lambda keyed: keyed.throttle("it", n, per=100, **options)[0]

    with pytest.raises(SnapshotError, match=r"is at most 3 per 100, but .* at most 1 per 100"):
        run_twice(tmp_path / "refused", limit(1), limit(3))
    assert run_twice(tmp_path / "same", limit(1), limit(1)) == []
    assert run_twice(tmp_path / "started", limit(1), limit(2, version=2)) == [1, 2]


def test_limits_of_both_kinds_resume_from_each_other(tmp_path: Path) -> None:
    def limit(kind: str) -> Callable[[Any], Any]:
        return lambda keyed: keyed.throttle("it", 3, per=100, kind=kind)[0]

    for first, second in (("bucket", "sliding"), ("sliding", "bucket")):
        assert run_twice(tmp_path / first, limit(first), limit(second)) == [1], "two of three had passed"


def test_waiting_records_are_migrated(tmp_path: Path) -> None:
    values = run_twice(
        tmp_path,
        lambda keyed: keyed.sort("it"),
        lambda keyed: keyed.sort("it", version=2, migrate=lambda row, _version: (row[0], -row[1])),
    )
    assert sorted(values) in ([-1, 1, 2], [1, 2])
