"""Runs with readings in columns continue from snapshots of records, and the reverse, on each runtime.

The snapshots of records are the golden files, written before there were columns.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime, SparkRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.columns import Column, Frame
from malflow.sinks import VecSink
from malflow.snapshot import fsck
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import sliding, tumbling
from tests.columns.drawn_flows import zoneless
from tests.golden.windowed import build_windows, readings
from tests.golden.write import JOBS, Job, backend_of, run_windows
from tests.kit.backends import kept

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent

BY_KERNELS = {"halves", "so far"}
"""The operators of the dataflow that have a form for arrays."""

TWO_HOURS = timedelta(hours=2)

_DEMOTED = re.compile(r"operator '(.*)' adds records one by one")

Sinks = dict[str, VecSink[Any, Any, Any]]


class Framed(StatefulSourceImpl[Any, Any, Any, int]):
    """The golden readings as columns, with the positions of the script."""

    def __init__(self) -> None:
        self._script = readings().impl

    def list_parts(self) -> Sequence[Any]:
        return [*self._script.list_parts()]

    def build_part(self, part: Any, state: int | None) -> StatefulSourcePartition[Any, Any, int]:
        return FramedPart(self._script.build_part(part, state))


class FramedPart(StatefulSourcePartition[Any, Any, int]):
    """A reader of the script."""

    def __init__(self, script: Any) -> None:
        self._script = script

    def poll(self) -> Any:
        raise NotImplementedError

    def poll_batch(self, limit: int) -> tuple[Any, Any]:
        values, stamps = self._script.poll_batch(limit)
        if not values:
            return values, stamps
        return Frame(pa.RecordBatch.from_pylist(values)), Column(pa.array(stamps, pa.timestamp("us", "UTC")))

    def is_finished(self) -> bool:
        return bool(self._script.is_finished())

    def snapshot(self) -> int:
        return int(self._script.snapshot())


def build_in_columns(provider: StreamProvider, _readings: Any, sinks: Sinks) -> None:
    """Build the dataflow over columns."""
    build_windows(provider, StatefulSource(Framed()), sinks, "sensor")


FORMS = {"records": build_windows, "columns": build_in_columns}
RUNTIMES: dict[str, partial[Any]] = {
    "one worker": partial(SingleThreadRuntime, parallelism=1),
    "two workers": partial(SingleThreadRuntime, parallelism=2),
    "processes": partial(MultiProcessRuntime, parallelism=2, processes=2, start_method="forkserver"),
    "spark": partial(SparkRuntime, parallelism=2),
}


def on(name: str, request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """Return a runtime and its options."""
    runtime = RUNTIMES[name]
    more = {"spark": request.getfixturevalue("spark")} if name == "spark" else {}
    return runtime.func, {**runtime.keywords, **more}


@pytest.fixture(scope="module")
def second_half(tmp_path_factory: pytest.TempPathFactory) -> Sinks:
    """Return what the second run gives by records, after the first."""
    backend = backend_of(JOBS[0], tmp_path_factory.mktemp("records"))
    first, second = (run_windows(JOBS[0], backend) for _ in range(2))
    assert all(len(first[name]) > 0 < len(second[name]) for name in BY_KERNELS)
    return second


def assert_same(found: Sinks, expected: Sinks) -> None:
    """Assert that two runs gave the same; the order between workers is free."""
    for name, sink in expected.items():
        assert Counter(map(_told, found[name])) == Counter(map(_told, sink)), name


def cases(all_of_them: Iterable[tuple[Any, ...]], by_day: Callable[[tuple[Any, ...]], bool]) -> list[Any]:
    """Return the cases of a test, those on Spark and most others marked for the night."""
    found = []
    for case in all_of_them:
        on_spark = "spark" in str(case)
        marks = [pytest.mark.spark] * on_spark + [pytest.mark.nightly] * (on_spark or not by_day(case))
        found.append(pytest.param(*case, marks=marks, id=", ".join(getattr(it, "name", it) for it in case)))
    return found


@pytest.mark.fault("G10")
@pytest.mark.parametrize(
    ("job", "runtime"), cases(product(JOBS, RUNTIMES), lambda case: case[1] != "processes" or case[0] is JOBS[2])
)
def test_columns_continue_from_golden_files(
    job: Job,
    runtime: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    second_half: Sinks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(FOLDER / "format-3" / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    runs, options = on(runtime, request)
    with caplog.at_level("INFO", "malflow"):
        assert_same(run_windows(job, backend, build_in_columns, runs, **options), second_half)
    assert not demoted(caplog) & BY_KERNELS
    assert fsck(backend).problems == ()


def build_plain(provider: StreamProvider, source: Any, sinks: Sinks, sensor: Any) -> None:
    """Take over the states of windows with early and revised results by windows without, and so by arrays."""
    timed = (
        provider.new_stream().source("readings", source).generate_epochs("epochs", limit_out_of_orderness(TWO_HOURS))
    )
    keyed: Any = timed.on_time.key_distribute("sensor", sensor)
    value = agg.sum("value"), agg.count(), agg.mean("value")
    for name, windows in {"slides": sliding(3 * TWO_HOURS, TWO_HOURS), "revised": tumbling(6 * TWO_HOURS)}.items():
        results = keyed.window(windows).aggregate(name, *value)
        results.sink(f"{name} results", sinks.setdefault(name, VecSink()))


@pytest.mark.fault("G10")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("workers", [1, 3])
def test_windows_that_share_panes_continue_as_arrays(
    job: Job, workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found: dict[str, Sinks] = {}
    for form, source, sensor in (
        ("records", readings(), lambda msg: msg.value["sensor"]),
        ("columns", StatefulSource(Framed()), "sensor"),
    ):
        shutil.copytree(FOLDER / "format-3" / job.name, tmp_path / form / job.name)
        backend = backend_of(job, tmp_path / form)
        dropped = kept(backend).states.keys() - {"readings", "epochs", "slides", "revised"}

        def build(provider: StreamProvider, _: Any, sinks: Sinks, source: Any = source, sensor: Any = sensor) -> None:
            build_plain(provider, source, sinks, sensor)

        with caplog.at_level("INFO", "malflow"):
            found[form] = run_windows(job, backend, build, parallelism=workers, allow_dropped_state=dropped)
    assert_same(found["columns"], found["records"])
    assert all(len(sink) > 5 for sink in found["columns"].values())
    assert demoted(caplog) == set()


def demoted(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return the operators that went on without arrays."""
    return {found[1] for it in caplog.records if (found := _DEMOTED.match(it.getMessage()))}


def _told(msg: Any) -> str:
    return zoneless(repr(msg))


BY_DAY = [
    ("columns one worker", "records processes"),
    ("records processes", "columns two workers"),
    ("columns two workers", "columns one worker"),
]


@pytest.mark.fault("G10")
@pytest.mark.parametrize(
    ("first", "second"),
    cases(
        (
            (f"{one} {runs}", f"{other} {goes_on}")
            for runs, goes_on in product(RUNTIMES, RUNTIMES)
            for one, other in (("records", "columns"), ("columns", "records"), ("columns", "columns"))
        ),
        lambda case: case in BY_DAY,
    ),
)
def test_each_form_continues_from_snapshots_of_the_other(
    first: str, second: str, tmp_path: Path, request: pytest.FixtureRequest, second_half: Sinks
) -> None:
    backend = backend_of(JOBS[0], tmp_path)
    found: Sinks = {}
    for run in (first, second):
        form, _, name = run.partition(" ")
        runs, options = on(name, request)
        found = run_windows(JOBS[0], backend, FORMS[form], runs, **options)
    assert_same(found, second_half)
    assert fsck(backend).problems == ()
