"""Restarts: their number, pauses and snapshots; and runs that are not restarted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, RestartPolicy, SingleThreadRuntime, SparkRuntime, StreamProvider
from malflow.errors import FencedError, OperatorError, RunFailed, SnapshotError, StoreError
from malflow.partitioners import stable_hash
from malflow.runtime.spark.session.session import share_interpreter
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session
from malflow.sources import SingleIteratorSource
from malflow.states.kinds import StateSpec
from tests.kit.backends import kept_states
from tests.kit.nights import at_night
from tests.kit.waiting import wait_until
from tests.spark.flows import backend_at, expected_sums, kept_sums, sums

pytestmark = pytest.mark.spark

SECONDS = 120
AT_ONCE = timedelta(milliseconds=1)


class Away:
    """A persistence that can't be reached for a while.

    Args:
        backend: what is behind it.
        errors: what the first who open it are told.
    """

    is_enabled = True

    def __init__(self, backend: FsspecBackend, *errors: Exception) -> None:
        self.backend = backend
        self.errors = list(errors)
        self.starts: list[RestoreOptions] = []

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Open it, or fail."""
        self.starts.append(start)
        if self.errors:
            raise self.errors.pop(0)
        return self.backend.open(states, start)


def pauses(log: str) -> list[float]:
    return [float(it) for it in re.findall(r"continues from its last snapshot in (\S+) s", log)]


def test_a_run_is_started_again_as_often_as_told_and_the_pause_doubles(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = Away(backend_at(tmp_path), *[StoreError(f"away {number}") for number in range(9)])
    policy = RestartPolicy(3, AT_ONCE)
    with pytest.raises(StoreError, match="away 3"):
        SparkRuntime(sums(10), away, spark=spark, restart=policy).execute()
    assert pauses(caplog.text) == [0.001, 0.002, 0.004]
    caplog.clear()
    with pytest.raises(StoreError, match="away 4"):
        SparkRuntime(sums(10), away, spark=spark, restart=RestartPolicy(0)).execute()
    assert pauses(caplog.text) == []
    away.errors = [StoreError("away")]
    handle = SparkRuntime(sums(10), away, parallelism=2, spark=spark, restart=policy).start()
    assert handle.await_termination(SECONDS)
    assert handle.progress.restarts == 1
    assert kept_sums(away.backend) == expected_sums(10)


@pytest.mark.fault("I20")
def test_request_to_a_run_that_waits_for_its_restart(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away, numbers = Away(backend_at(tmp_path), StoreError("away")), 3_000
    policy = RestartPolicy(1, timedelta(seconds=1))
    runtime = SparkRuntime(sums(numbers), away, parallelism=2, spark=spark, max_records_per_tick=300, restart=policy)
    handle = runtime.start()
    asked: list[Future[Any]] = [handle.snapshot()]
    wait_until(lambda: pauses(caplog.text))
    asked += [handle.rescale(3), handle.snapshot()]
    assert isinstance(asked[0].result(SECONDS), int)
    assert asked[1].result(SECONDS) is None
    assert isinstance(asked[2].result(SECONDS), int)
    assert (handle.progress.restarts, handle.progress.parallelism) == (1, 3)
    handle.stop()
    assert handle.await_termination(SECONDS)
    SingleThreadRuntime(sums(numbers), away.backend).execute()
    assert kept_sums(away.backend) == expected_sums(numbers)
    with pytest.raises(SnapshotError, match="the run has ended"):
        handle.snapshot()


def test_run_without_restore_begins_empty_even_after_a_failed_start(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path)
    SingleThreadRuntime(sums(50), backend).execute()
    away = Away(backend, StoreError("away"))
    SparkRuntime(sums(30), away, parallelism=2, spark=spark, restore=None, restart=RestartPolicy(1, AT_ONCE)).execute()
    assert [it.restore for it in away.starts] == [None, None]
    assert kept_sums(backend) == expected_sums(30)


def removing(folder: Path, always: bool) -> Callable[[Any], Any]:
    """Remove the changes of all ticks before, and continue."""

    def remove(value: int) -> int:
        files = [it for it in folder.rglob("*") if it.is_file()]
        if value == 150 and (always or not (folder / "removed").exists()):
            for file in files:
                file.unlink()
            (folder / "removed").touch()
        return value

    return lambda provider: sums(400)(Through(provider, remove))


class Through:
    """A provider whose sources go through a function first."""

    def __init__(self, provider: Any, mapper: Callable[[Any], Any]) -> None:
        self._provider, self._mapper = provider, mapper

    def new_stream(self) -> Through:
        return Through(self._provider.new_stream(), self._mapper)

    def source(self, name: str, source: Any) -> Any:
        return self._provider.source(name, source).map("through", self._mapper)


def test_missing_changes_at_a_snapshot_restart_the_run(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend, folder = backend_at(tmp_path), tmp_path / "scratch"
    folder.mkdir()
    handle = SparkRuntime(
        removing(folder, always=False),
        backend,
        parallelism=2,
        spark=spark,
        max_records_per_tick=200,
        scratch=str(folder),
        restart=RestartPolicy(2, AT_ONCE),
    ).start()
    assert handle.await_termination(SECONDS)
    assert handle.progress.restarts == 1
    assert "is missing from the scratch folder" in caplog.text
    assert kept_sums(backend) == expected_sums(400)
    assert fsck(backend).problems == ()


def test_a_run_that_keeps_nothing_ends_with_what_failed(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(RunFailed, match="replace the file or symbolic link"):
        SparkRuntime(sums(50), parallelism=2, spark=spark, scratch=str(place)).execute()


@pytest.mark.fault("I4")
def test_a_run_is_not_started_again_after_user_code_or_fencing(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = backend_at(tmp_path)
    with pytest.raises(OperatorError):
        SparkRuntime(sums(50, fails_at=7), backend, parallelism=2, spark=spark).execute()
    with pytest.raises(FencedError):
        SparkRuntime(sums(50), Away(backend, FencedError("another")), parallelism=2, spark=spark).execute()
    assert pauses(caplog.text) == []


@pytest.mark.fault("I12")
def test_older_of_two_runs_of_a_job_in_one_session_is_fenced(spark: Any, tmp_path: Path) -> None:
    backend, scratch = backend_at(tmp_path), str(tmp_path / "scratch")
    often = timedelta(milliseconds=50)
    shared: dict[str, Any] = {"spark": spark, "scratch": scratch, "max_records_per_tick": 60}
    older = SparkRuntime(sums(20_000), backend, often, 2, name="older", **shared).start()
    wait_until(lambda: older.progress.snapshot)
    shared["max_records_per_tick"] = 30_000
    newer = SparkRuntime(sums(20_000), backend, often, 2, name="newer", **shared).start()
    with pytest.raises(FencedError):
        older.await_termination(SECONDS)
    assert newer.await_termination(SECONDS)
    assert newer.progress.restarts == older.progress.restarts == 0
    assert kept_sums(backend) == expected_sums(20_000)
    assert fsck(backend).problems == ()


@pytest.mark.parametrize(("setting", "value"), [("spark.speculation", "true"), ("spark.python.worker.reuse", "false")])
def test_a_setting_that_would_break_a_promise_is_refused(spark: Any, setting: str, value: str) -> None:
    conf = spark.sparkContext._conf
    before = conf.get(setting, {"true": "false", "false": "true"}[value])
    conf.set(setting, value)
    try:
        with pytest.raises(GraphError, match=f"{setting}={value}"):
            SparkRuntime(sums(1), spark=spark).execute()
    finally:
        conf.set(setting, before)


@pytest.mark.fault("I11")
def test_memory_of_one_process_is_refused_as_scratch(spark: Any) -> None:
    with pytest.raises(GraphError, match=r"scratch='memory://x' is in the memory of one process"):
        SparkRuntime(sums(1), spark=spark, scratch="memory://x").execute()


@pytest.mark.fault("I9")
def test_a_module_that_the_workers_lack_is_named_at_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "only_on_the_driver.py").write_text("def double(value):\n    return 2 * value\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_on_the_driver  # type: ignore[import-not-found] # noqa: PLC0415 - it was just written

    monkeypatch.setattr(sys, "path", [it for it in sys.path if it != str(tmp_path)])
    out: VecSink[Any, Any, Any] = VecSink()
    with pytest.raises(GraphError, match=r"No module named 'only_on_the_driver'.*--py-files"):
        SparkRuntime(
            lambda provider: sums(10, out)(Through(provider, only_on_the_driver.double)),
            backend_at(tmp_path),
            parallelism=1,
            spark=spark,
        ).execute()
    assert pauses(caplog.text) == []
    assert out.values == []


class NoComeBack:
    """A value or state that can be pickled, and not be read again."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


class NoGo:
    """A value that can't be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("can't go")


def travelling(value: Any, state: Any) -> Any:
    """Send values through an exchange, and keep states."""

    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(9)))
        keyed = numbers.map("make", lambda _: value()).key_distribute("key", lambda m: m.timestamp % 2)
        keyed.stateful_map("keep", lambda _key, _value, _state: (1, state())).sink("out", VecSink())

    return build


@pytest.mark.fault("I15")
@pytest.mark.parametrize(
    ("value", "state", "message"),
    [
        (NoGo, int, "operator 'key' failed at key 0: its value .* of type NoGo can't be sent .*ValueError: can't go"),
        (NoComeBack, int, "operator 'key' failed at key [01]: its value .* of type int can't be read .*ValueError"),
        (int, NoComeBack, "operator 'keep' failed at key [01]: its state .* of type int can't be read .*ValueError"),
    ],
)
def test_unpicklable_object_is_an_operator_error_without_a_restart(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any, state: Any, message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        SparkRuntime(travelling(value, state), backend_at(tmp_path), parallelism=2, spark=spark).execute()
    assert pauses(caplog.text) == []


def test_processes_of_python_are_kept_from_run_to_run(spark: Any) -> None:
    share_interpreter(spark)
    told = dict(spark.sparkContext.environment)
    SparkRuntime(sums(1), parallelism=1, spark=spark).execute()
    assert spark.sparkContext.environment == told


def hashes(keys: Sequence[Any]) -> list[int]:
    return [stable_hash(key) for key in keys]


@pytest.mark.fault("I10")
def test_keys_have_one_place_whatever_the_seed_of_hashes(spark: Any) -> None:
    share_interpreter(spark)
    keys = ["a", ("b", 1), b"c", 4, None, True, 2.5, frozenset({"x", "y"})]
    seeds = spark.sparkContext.parallelize([0], 1).map(lambda _: (os.environ.get("PYTHONHASHSEED"), hashes(keys)))
    ((seed, there),) = seeds.collect()
    source = f"from malflow.partitioners import stable_hash; print([stable_hash(key) for key in {keys!r}])"
    for other in ("1", "2"):
        assert seed != other
        done = subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": other},
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        assert done.stdout.strip() == str(there)


def anew(folder: Path, numbers: int, always: bool) -> Callable[[Any], Any]:
    """Sum numbers of a source without positions; the changes of all ticks before are removed, once or ever again."""

    def remove(value: int) -> int:
        if value % 40 == 30 and value >= 150 and (always or not (folder / "removed").exists()):
            for file in [it for it in folder.rglob("*") if it.is_file()]:
                file.unlink(missing_ok=True)
            (folder / "removed").touch()
        return value

    def build(provider: Any) -> None:
        source = provider.new_stream().source("numbers", SingleIteratorSource(range(numbers)))
        keyed = source.map("through", remove).key_distribute("key", lambda msg: msg.value % 4)
        keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), int)

    return build


@pytest.mark.fault("I2")
@pytest.mark.parametrize(
    "keeps", at_night([True, False], but=[True]), ids=["with_a_snapshot_in_between", "from_the_beginning"]
)
def test_a_restart_that_would_count_records_twice_is_refused(spark: Any, tmp_path: Path, keeps: bool) -> None:
    backend, folder = backend_at(tmp_path), tmp_path / "scratch"
    folder.mkdir()
    numbers = 20_000 if keeps else 400  # a snapshot may have read the changes before they go, but not every time
    handle = SparkRuntime(
        anew(folder, numbers, always=keeps),
        backend,
        timedelta(microseconds=1) if keeps else None,
        2,
        spark=spark,
        max_records_per_tick=40,
        scratch=str(folder),
        restart=RestartPolicy(2, AT_ONCE),
    ).start()
    if keeps:
        with pytest.raises(SnapshotError, match="source 'numbers' has no positions, so the run can't be restarted"):
            handle.await_termination(SECONDS)
        return
    assert handle.await_termination(SECONDS)
    assert handle.progress.restarts == 1
    assert kept_states(backend, "sum") == {key: sum(range(key, 400, 4)) for key in range(4)}


@pytest.fixture
def small_results(spark: Any) -> Iterator[None]:
    """Limit the results that the driver of Spark takes to a megabyte."""
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get("spark.driver.maxResultSize", "1g")
    settings.set("spark.driver.maxResultSize", "1m")
    yield
    settings.set("spark.driver.maxResultSize", before)


@pytest.mark.usefixtures("small_results")
def test_records_that_are_too_large_for_the_driver_name_the_settings(spark: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", SingleIteratorSource([os.urandom(3 << 20)] * 4))
        texts.sink("out", VecSink())

    with pytest.raises(RunFailed, match=r"bigger than spark\.driver\.maxResultSize") as raised:
        SparkRuntime(build_dataflow, spark=spark, restart=RestartPolicy(0)).execute()
    told = str(raised.value)
    assert all(it in told for it in ("spark.driver.memory", "spark.driver.maxResultSize for", "max_records_per_tick="))
