"""`read_windows`: the results of open and kept windows, against an interpreter that keeps all records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.errors import GraphError, OperatorError, SnapshotError
from malflow.reading import read_windows
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE
from malflow.windows import FOREVER, Timing, WindowResult, counting, session, sliding, tumbling
from tests.golden.rolled_up import build_rollups
from tests.golden.test_golden import FOLDER
from tests.golden.windowed import build_windows, readings
from tests.golden.write import JOBS, backend_of
from tests.kit.jobs import StoreBackend
from tests.kit.memory_store import MemoryStore
from tests.windows.model import parted, sessions, sliding_windows, windowed
from tests.windows.running import source_of

pytestmark = pytest.mark.slow

BOUND = 3
RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 4), st.integers(1, 9)), min_size=1, max_size=25)
Add = Callable[[Any], Any]


def arriving(rows: Any, start: Any = 20, unit: Any = 1) -> list[Any]:
    """Return records whose timestamps advance by the steps of the rows."""
    records = []
    for key, step, value in rows:
        start += step * unit
        records.append((key, start, value))
    return records


def flow(records: list[Any], add: Any, bound: Any = BOUND) -> Callable[[StreamProvider], None]:
    """Return a dataflow that adds an operator to keyed records; a tick for each."""
    script = [item for record in records for item in (record, PAUSE)]

    def build(provider: StreamProvider) -> None:
        stamped = provider.new_stream().source("source", source_of(script))
        on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(bound), per_part=False)
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0]).map("value", lambda value: value[1])
        made = add(keyed, late)
        for number, stream in enumerate(made if isinstance(made, tuple) else (made,)):
            stream.sink(f"results {number}", VecSink())

    return build


def kept(records: list[Any], add: Any, workers: int, bound: Any = BOUND) -> tuple[Any, FsspecBackend]:
    """Run the dataflow, and keep its windows open; return what builds it, and the backend."""
    build, backend = flow(records, add, bound), StoreBackend(MemoryStore())
    SingleThreadRuntime(build, backend, parallelism=workers, at_end="keep").execute()
    return build, backend


def found(build: Any, backend: FsspecBackend, **options: Any) -> dict[Any, Any]:
    """Read the windows of operator "sums", by key, start and end."""
    results = list(read_windows(build, backend, "sums", **options))
    by_window = {(key, it.start, it.end): it for key, it in results}
    assert len(by_window) == len(results)
    return by_window


def summed(windows: dict[Any, list[Any]], epoch: Any) -> dict[Any, Any]:
    """Return the sums of the open windows."""
    return {at: sum(values) for at, values in windows.items() if at[2] - 1 > epoch}


@given(rows=RECORDS, workers=st.integers(1, 3), size=st.integers(1, 7), step=st.integers(1, 7))
def test_open_time_windows_have_the_records_so_far(rows: Any, workers: int, size: int, step: int) -> None:
    step = min(size, step)
    records = arriving(rows)
    windows = tumbling(size) if step == size else sliding(size, step)
    build, backend = kept(records, lambda keyed, _: keyed.window(windows).aggregate("sums", agg.sum()), workers)
    on_time, _, epoch = parted(records, BOUND)
    expected = summed(windowed(on_time, lambda at: sliding_windows(size, step, 0, at)), epoch)
    read = found(build, backend)
    assert {at: it.value for at, it in read.items()} == expected
    assert {it.timing for it in read.values()} <= {Timing.EARLY}
    for key in "abc":
        assert found(build, backend, key=key) == {at: it for at, it in read.items() if at[0] == key}


@given(rows=RECORDS, workers=st.integers(1, 2))
def test_open_sessions_have_the_records_so_far(rows: Any, workers: int) -> None:
    records = arriving(rows)
    build, backend = kept(records, lambda keyed, _: keyed.window(session(2)).aggregate("sums", agg.sum()), workers)
    on_time, _, epoch = parted(records, BOUND)
    assert {at: it.value for at, it in found(build, backend).items()} == summed(sessions(on_time, 2), epoch)


def test_count_windows_that_are_not_full_have_the_records_so_far() -> None:
    records = [("a", at, 10 * at) for at in range(7)] + [("b", 9, 1)]
    build, backend = kept(records, lambda keyed, _: keyed.window(counting(4, 2)).aggregate("sums", agg.sum()), 1)
    assert [(key, it.start, it.end, it.value) for key, it in read_windows(build, backend, "sums")] == [
        ("a", 4, 7, 40 + 50 + 60),
        ("a", 6, 7, 60),
        ("b", 9, 10, 1),
    ]


@given(rows=RECORDS, workers=st.integers(1, 3), until=st.integers(1, 9))
def test_windows_kept_for_late_records_are_final(rows: Any, workers: int, until: int) -> None:
    def add(keyed: Any, late: Any) -> Any:
        late = late.key_distribute("late key", lambda msg: msg.value[0]).map("late value", lambda value: value[1])
        made = keyed.window(tumbling(4)).allow_late(late, until).aggregate("sums", agg.sum())
        return tuple(made)

    records = arriving(rows)
    build, backend = kept(records, add, workers)
    _, _, epoch = parted(records, BOUND)
    for (_, _, end), it in found(build, backend).items():
        assert it.timing is (Timing.FINAL if end - 1 <= epoch else Timing.EARLY)
        assert end - 1 + until > epoch
    on_time, late, _ = parted(records, BOUND)
    if not late:
        windows = windowed(on_time, lambda at: sliding_windows(4, 4, 0, at))
        expected = {at: sum(values) for at, values in windows.items() if at[2] - 1 + until > epoch}
        assert {at: it.value for at, it in found(build, backend).items()} == expected


HOUR, START = timedelta(hours=1), datetime(2026, 3, 27, 20, tzinfo=UTC)


def floor_of(at: datetime, unit: str) -> datetime:
    """Return the start of the unit that contains a time."""
    at = at.replace(minute=0, second=0)
    at = at if unit == "hour" else at.replace(hour=0)
    return at.replace(day=1) if unit == "month" else at


ENDS: dict[str, Callable[[datetime], datetime]] = {
    "hour": lambda start: start + HOUR,
    "day": lambda start: start + 24 * HOUR,
    "month": lambda start: (start + 32 * 24 * HOUR).replace(day=1),
}


@given(rows=RECORDS, workers=st.integers(1, 3), keep=st.sampled_from([None, FOREVER]))
def test_a_rollup_has_all_records_so_far_in_each_unit(rows: Any, workers: int, keep: Any) -> None:
    def add(keyed: Any, _late: Any) -> Any:
        kept_for = {"hour": keep, "day": keep} if keep else {}
        return tuple(keyed.rollup("sums", ["hour", "day", "month"], agg.sum(), keep=kept_for).values())

    records = arriving(rows, START, 7 * HOUR)
    build, backend = kept(records, add, workers, BOUND * HOUR)
    on_time, _, epoch = parted(records, BOUND * HOUR)
    for unit, end_of in ENDS.items():
        windows = windowed(on_time, lambda at: [(floor_of(at, unit), end_of(floor_of(at, unit)))])  # noqa: B023
        is_kept = keep is not None and unit != "month"
        expected = {
            at: (sum(values), Timing.FINAL if at[2] - timedelta(microseconds=1) <= epoch else Timing.EARLY)
            for at, values in windows.items()
            if is_kept or at[2] - timedelta(microseconds=1) > epoch
        }
        read = found(build, backend, unit=unit)
        assert {at: (it.value, it.timing) for at, it in read.items()} == expected
    assert len(list(read_windows(build, backend, "sums"))) >= len(expected)


def test_windows_of_golden_files_are_read() -> None:
    def build(provider: StreamProvider) -> None:
        build_windows(provider, readings(), {})

    for job in JOBS[:2]:
        backend = backend_of(job, FOLDER / "format-3")
        for name in ("days", "halves", "slides", "stays", "groups", "revised", "grouped"):
            results = list(read_windows(build, backend, name))
            assert {key for key, _ in results} <= {f"s{n}" for n in range(5)}
            assert all(type(it) is WindowResult and it.start < it.end for _, it in results)
            assert results or name == "halves", name
        levels = list(
            read_windows(lambda it: build_rollups(it, readings(), {}), backend_of(job, FOLDER / "rollups"), "levels")
        )
        assert sum(it.timing is Timing.FINAL for _, it in levels) == 5 * 5, "five hours of five sensors are kept"


@pytest.mark.fault("K5")
@pytest.mark.parametrize(
    ("name", "options", "error", "said"),
    [
        ("sum", {}, GraphError, r"no operator 'sum' with windows; did you mean 'sums'\?"),
        ("nothing", {}, GraphError, r"no operator 'nothing' with windows; there is 'sums'"),
        ("total", {}, GraphError, r"'total' is a aggregate, which has no windows; use read_state\(\)"),
        ("sums", {"unit": "day"}, GraphError, "'sums' is a window; only a rollup has units"),
        ("sums", {"key": [1]}, GraphError, "'sums' can't be read by key: "),
        ("sums", {"at": 99}, SnapshotError, "no snapshot with the id 99"),
    ],
)
def test_mistakes_are_named(name: str, options: Any, error: type[Exception], said: str) -> None:
    def add(keyed: Any, _: Any) -> Any:
        return keyed.window(tumbling(5)).aggregate("sums", agg.sum()), keyed.aggregate("total", agg.sum())

    build, backend = kept([("a", 1, 1)], add, 1)
    with pytest.raises(error, match=said):
        read_windows(build, backend, name, **options)


@pytest.mark.fault("K5")
def test_a_program_that_has_changed_is_not_read_by() -> None:
    def program(windows: Any, aggregator: Any, **options: Any) -> Any:
        return lambda keyed, _: keyed.window(windows).aggregate("sums", aggregator, **options)

    _, backend = kept([("a", 1, 1)], program(tumbling(5), agg.sum()), 1)
    for add, said in [
        (program(tumbling(5), agg.max()), "'sums' is .*max.* but in snapshot 2 it is .*sum"),
        (
            program(tumbling(6), agg.sum(), version=2),
            "'sums' is .* but in snapshot 2 it is .*; read it with the program",
        ),
        (program(session(6), agg.sum(), version=2), "'sums' is a session, but in snapshot 2 it is a window"),
    ]:
        with pytest.raises(SnapshotError, match=said):
            read_windows(flow([], add), backend, "sums")
    build = flow([], program(tumbling(5), agg.max(), version=2, migrate=lambda old, _: old + 100))
    assert [(key, it.value) for key, it in read_windows(build, backend, "sums")] == [("a", 101)]

    def rollup(keyed: Any, _: Any) -> Any:
        return tuple(keyed.rollup("sums", ["hour", "day"], agg.sum()).values())

    build, backend = kept([("a", START, 1)], rollup, 1, HOUR)
    with pytest.raises(GraphError, match="'sums' has no unit 'dya'; it has 'hour', 'day'"):
        read_windows(build, backend, "sums", unit="dya")


def test_an_aggregator_that_fails_is_named_with_the_key() -> None:
    mean: Any = agg.fold(lambda: 0, lambda state, value: state + value, result=lambda state: 1 / (state - 1))
    build, backend = kept([("a", 1, 1)], lambda keyed, _: keyed.window(tumbling(5)).aggregate("sums", mean), 1)
    with pytest.raises(OperatorError, match="operator 'sums' failed at the result of key 'a'"):
        list(read_windows(build, backend, "sums"))
