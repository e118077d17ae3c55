"""Several runs in one session, concurrent and sequential: none sees another's workers or files."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from malflow import DataMessage, GraphError, SparkRuntime
from malflow.runtime.spark.tasks.live_workers import RunRegistry
from malflow.sinks import StatelessSink, StatelessSinkImpl, VecSink
from malflow.sources import SingleIteratorSource
from tests.kit.waiting import wait_until
from tests.spark.flows import expected_sums, sums

SECONDS = 120


class Diary(StatelessSinkImpl[Any, Any, Any]):
    """A sink of the user that notes each record and its end, process by process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file: Any = None

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        if self.file is None:
            name = f"{time.monotonic_ns()}-{threading.get_ident()}"
            self.file = (self.folder / name).open("x", encoding="utf-8")
        self.file.write(f"{msg.value}\n")

    def flush(self) -> None:
        if self.file is not None:
            self.file.flush()

    def close(self) -> None:
        if self.file is not None:
            self.file.write("closed\n")
            self.file.close()


def writing(folder: Path, size: int, *, pause: float = 0.0) -> Any:
    """Write numbers to diaries, after an exchange."""
    folder.mkdir()

    def slowly(value: int) -> int:
        time.sleep(pause)
        return value

    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(size)))
        keyed = numbers.map("slowly", slowly).key_distribute("key", lambda m: m.value % 5)
        keyed.stateful_map("same", lambda _key, value, _state: (value, value)).sink("out", StatelessSink(Diary(folder)))

    return build


def assert_written_and_closed_once(folder: Path, size: int) -> None:
    """Check that each sink was closed at the end, and that each number was written."""
    numbers: list[int] = []
    for file in folder.iterdir():
        *lines, last = file.read_text(encoding="utf-8").split()
        assert last == "closed"
        numbers += map(int, lines)
    assert sorted(numbers) == list(range(size))


@pytest.mark.fault("I16")
@pytest.mark.spark
def test_two_runs_at_once_keep_their_sinks_and_workers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    options: dict[str, Any] = {"parallelism": 2, "spark": spark, "max_records_per_tick": 30}
    handles = [
        SparkRuntime(writing(tmp_path / name, size, pause=0.001), **options).start()
        for name, size in (("left", 200), ("right", 300))
    ]
    wait_until(lambda: all(handle.query is not None for handle in handles))
    names = {handle.query.name for handle in handles if handle.query is not None}
    assert len(names) == 2
    assert "malflow" in names
    for handle in handles:
        assert handle.await_termination(SECONDS)
    assert_written_and_closed_once(tmp_path / "left", 200)
    assert_written_and_closed_once(tmp_path / "right", 300)
    assert list(temporary.iterdir()) == []


@pytest.mark.fault("I16")
@pytest.mark.spark
def test_a_name_that_is_taken_is_refused_and_nothing_is_left(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SparkRuntime(sums(10**6), parallelism=1, spark=spark, name="mine", max_records_per_tick=10).start()
    wait_until(lambda: first.progress.tick)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(
        GraphError, match=r"a query named 'mine' is already running in this session; pass another name="
    ):
        SparkRuntime(sums(10), parallelism=1, spark=spark, name="mine").execute()
    assert list(tmp_path.iterdir()) == []
    first.stop()
    assert first.await_termination(SECONDS)


@pytest.mark.fault("I17")
@pytest.mark.spark
def test_sinks_are_closed_while_other_jobs_hold_the_slots(spark: Any, tmp_path: Path) -> None:
    over = tmp_path / "over"

    def hold(_: int) -> None:
        while not over.exists():
            time.sleep(0.05)

    holder = threading.Thread(target=lambda: spark.sparkContext.parallelize([0], 1).foreach(hold))
    holder.start()
    try:
        SparkRuntime(writing(tmp_path / "out", 50), parallelism=2, spark=spark).execute()
    finally:
        over.touch()
        holder.join(SECONDS)
    assert_written_and_closed_once(tmp_path / "out", 50)


@pytest.mark.spark
def test_runs_one_after_the_other_leave_nothing_in_the_processes(spark: Any) -> None:
    def held(_: Any) -> list[int]:
        from malflow.runtime.spark.tasks import live_workers as worker_cache  # noqa: PLC0415 - of that process

        return [
            len(worker_cache.LIVE_WORKERS),
            len(worker_cache.SHARED),
            len(worker_cache._LOADED),
            len(worker_cache._NUMBERS),
        ]

    for size in (10, 20):
        out: VecSink[Any, Any, Any] = VecSink()
        SparkRuntime(sums(size, out), parallelism=2, spark=spark).execute()
        assert {m.key: m.value for m in out} == expected_sums(size)
    assert spark.sparkContext.parallelize(range(2), 2).map(held).collect() == [[0] * 4] * 2


def test_a_run_is_over_when_it_has_begun_and_ended() -> None:
    registry = RunRegistry()
    first, second = registry.begin(), registry.begin()
    registry.end(first)
    live = registry.live
    third = registry.begin()
    assert [live.is_over(number) for number in (first, second, third)] == [True, False, False]
    registry.end(second)
    assert [registry.live.is_over(number) for number in (0, first, second, third)] == [True, True, True, False]
