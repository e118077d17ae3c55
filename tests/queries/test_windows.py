"""Live windows equal an interpreter's that keeps all records, open or kept, on both kinds of hosts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, agg
from malflow.windows import FOREVER, Timing, counting, session, sliding, tumbling
from tests.kit.backends import in_memory
from tests.kit.threads_host import ThreadsRuntime
from tests.queries.asking import SECONDS, Asker, records_by_tick
from tests.reading.test_windows import BOUND, ENDS, HOUR, RECORDS, START, arriving, floor_of, flow
from tests.windows.model import parted, sessions, sliding_windows, windowed

seldom = settings(max_examples=max(settings().max_examples // 5, 3))

RUNTIMES = pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
EARLY, FINAL = Timing.EARLY, Timing.FINAL


def answers(kind: Any, records: list[Any], add: Any, workers: int, bound: Any = BOUND, **ask: Any) -> list[Any]:
    """Ask for the windows of each key after each tick; return the records until then with the answer."""
    runtime: Any = None

    def every_key() -> dict[Any, Any]:
        return {key: runtime.windows("sums").get(key, **ask) for key in "abc"}

    asker = Asker(every_key)
    runtime = kind(flow(records, add, bound), in_memory(), parallelism=workers, at_end="keep", listeners=[asker])
    runtime.execute()
    found = [
        (records[: records_by_tick(asker, it)], key, it.result(0)) for key, it in asker.asked if not it.exception(0)
    ]
    assert len(found) > len(records)
    return found


def of_key(windows: dict[Any, list[Any]], key: str, epoch: Any, kept: Callable[[Any], bool]) -> list[Any]:
    """Return the sums of the windows of a key that are open or kept, in order."""
    return [
        (start, end, sum(values), EARLY if epoch is None or end - 1 > epoch else FINAL)
        for (own, start, end), values in sorted(windows.items())
        if own == key and (epoch is None or end - 1 > epoch or kept(end))
    ]


def nothing(_end: Any) -> bool:
    return False


@pytest.mark.slow
@RUNTIMES
@seldom
@given(rows=RECORDS, workers=st.integers(1, 3), size=st.integers(1, 7), step=st.integers(1, 7))
def test_open_time_windows_have_the_records_so_far(kind: Any, rows: Any, workers: int, size: int, step: int) -> None:
    step = min(size, step)
    windows = tumbling(size) if step == size else sliding(size, step)
    add = lambda keyed, _: keyed.window(windows).aggregate("sums", agg.sum())  # noqa: E731
    for records, key, found in answers(kind, arriving(rows), add, workers):
        on_time, _, epoch = parted(records, BOUND)
        expected = windowed(on_time, lambda at: sliding_windows(size, step, 0, at))
        assert [*map(tuple, found)] == of_key(expected, key, epoch, nothing)


@pytest.mark.slow
@RUNTIMES
@seldom
@given(rows=RECORDS, workers=st.integers(1, 2))
def test_open_sessions_have_the_records_so_far(kind: Any, rows: Any, workers: int) -> None:
    add = lambda keyed, _: keyed.window(session(2)).aggregate("sums", agg.sum())  # noqa: E731
    for records, key, found in answers(kind, arriving(rows), add, workers):
        on_time, _, epoch = parted(records, BOUND)
        assert [*map(tuple, found)] == of_key(sessions(on_time, 2), key, epoch, nothing)


@pytest.mark.slow
@RUNTIMES
@seldom
@given(rows=RECORDS.map(lambda rows: [(key, abs(step), value) for key, step, value in rows]), until=st.integers(1, 9))
def test_windows_kept_for_late_records_are_final(kind: Any, rows: Any, until: int) -> None:
    def add(keyed: Any, late: Any) -> Any:
        late = late.key_distribute("late key", lambda msg: msg.value[0]).map("late value", lambda value: value[1])
        return tuple(keyed.window(tumbling(4)).allow_late(late, until).aggregate("sums", agg.sum()))

    for records, key, found in answers(kind, arriving(rows), add, 2):
        on_time, _, epoch = parted(records, BOUND)
        windows = windowed(on_time, lambda at: sliding_windows(4, 4, 0, at))
        kept = lambda end: end - 1 + until > epoch  # noqa: B023, E731
        assert [*map(tuple, found)] == of_key(windows, key, epoch, kept)


@pytest.mark.slow
@RUNTIMES
@seldom
@given(rows=RECORDS, unit=st.sampled_from([*ENDS]), at=st.none() | st.integers(0, 40))
def test_closed_and_open_windows_of_a_rollup(kind: Any, rows: Any, unit: str, at: int | None) -> None:
    def add(keyed: Any, _late: Any) -> Any:
        keep = {"hour": FOREVER, "day": FOREVER}
        return tuple(keyed.rollup("sums", ["hour", "day", "month"], agg.sum(), keep=keep).values())

    time = None if at is None else START + at * HOUR
    moment = timedelta(microseconds=1)
    for records, key, found in answers(kind, arriving(rows, START, 7 * HOUR), add, 2, BOUND * HOUR, unit=unit, at=time):
        on_time, _, epoch = parted(records, BOUND * HOUR)
        windows = windowed(on_time, lambda at: [(floor_of(at, unit), ENDS[unit](floor_of(at, unit)))])
        expected = [
            (start, end, sum(values), FINAL if epoch is not None and end - moment <= epoch else EARLY)
            for (own, start, end), values in sorted(windows.items())
            if own == key and (time is None or start <= time < end)
        ]
        assert [*map(tuple, found)] == [it for it in expected if unit != "month" or it[3] is EARLY]


@RUNTIMES
def test_count_windows_that_are_not_full_have_the_records_so_far(kind: Any) -> None:
    records = [("a", at, 10 * at) for at in range(7)] + [("b", 9, 1)]
    add = lambda keyed, _: keyed.window(counting(4, 2)).aggregate("sums", agg.sum())  # noqa: E731
    found = answers(kind, records, add, 1)
    assert [*map(tuple, next(it for so_far, key, it in found if (len(so_far), key) == (7, "a")))] == [
        (4, 7, 40 + 50 + 60, EARLY),
        (6, 7, 60, EARLY),
    ]


@pytest.mark.parametrize(("at", "start"), [(0, 0), (4, 0), (5, 5), (9, 5)])
def test_a_window_includes_its_start_and_not_its_end(at: int, start: int) -> None:
    add = lambda keyed, _: keyed.window(tumbling(5)).aggregate("sums", agg.sum())  # noqa: E731
    records = [("a", 1, 1), ("a", 6, 2), ("b", 1, 3)]
    found = answers(SingleThreadRuntime, records, add, 1, bound=20, at=at)
    assert [it.start for it in next(it for so_far, key, it in found if (len(so_far), key) == (3, "a"))] == [start]


@RUNTIMES
def test_an_answer_changes_no_accumulator(kind: Any) -> None:
    def added(state: list[int], value: int) -> list[int]:
        state.append(value)
        return state

    lists: Any = agg.fold(list, added, merge=lambda one, other: one + other)

    def add(keyed: Any, _: Any) -> Any:
        return keyed.window(sliding(4, 2)).aggregate("sums", lists)

    for records, key, found in answers(kind, [("a", at // 2, at) for at in range(9)], add, 1):
        for it in found:
            assert it.value == [value for own, at, value in records if own == key and it.start <= at < it.end]
            it.value.clear()


@pytest.mark.fault("K8")
@RUNTIMES
@pytest.mark.parametrize(
    ("aggregator", "ask", "error", "said"),
    [
        (
            agg.sum(),
            {"at": "noon"},
            GraphError,
            "'sums' has windows such as 0 to 5, which can't be compared with at='noon'",
        ),
        (
            agg.fold(lambda: 0, lambda state, value: state + value, result=lambda state: 1 / (state - 1)),
            {},
            OperatorError,
            "operator 'sums' failed at the result of key 'a'",
        ),
    ],
)
def test_an_answer_that_fails_does_not_end_the_run(
    kind: Any, aggregator: Any, ask: Any, error: type[Exception], said: str
) -> None:
    runtime: Any = None
    asker = Asker(lambda: {"a": runtime.windows("sums").get("a", **ask)})
    build = flow([("a", 1, 1)], lambda keyed, _: keyed.window(tumbling(5)).aggregate("sums", aggregator))
    runtime = kind(build, in_memory(), at_end="keep", listeners=[asker])
    runtime.execute()
    with pytest.raises(error, match=said):
        asker.asked[0][1].result(SECONDS)
