"""Snapshots of every format that was ever written are read, and runs continue from them.

A format version once released is read for ever: the folders ``format-*`` beside this file are never written again, and
neither they nor the dataflows in `tests.golden.program` (formats 1 and 2) and `tests.golden.windowed` may change. The
same holds for the folders ``rollups``, ``patterns``, ``limits``, ``tables``, ``broadcasts`` and ``statements``, with
`tests.golden.rolled_up`, `tests.golden.matched`, `tests.golden.limited`, `tests.golden.tabled`,
`tests.golden.everywhere` and `tests.golden.stated`, of kinds of state that came after their format, and for ``moments``
and ``members``, with `tests.golden.moments` and `tests.golden.members`, whose keys had other places. ``parts`` and
``dealt`` are of one dataflow, `tests.golden.parted`: before the parts of sources were dealt, their hash placed them.
``packed`` has data files of version 2.
Whoever changes what is written (manifests, data files, how codecs write) raises the format's number, teaches the
readers both, and writes the new folder, once, by ``python -m tests.golden.write``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    MultiProcessRuntime,
    SingleThreadRuntime,
    StreamProvider,
    TableChange,
    limit_out_of_orderness,
    rendezvous_select,
)
from malflow.engine.compiler import compile_graph
from malflow.engine.state_specs import states_of
from malflow.graph import Graph
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.snapshot.files import data_file
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol import manifest
from tests.golden.everywhere import build_broadcasts
from tests.golden.limited import build_limits
from tests.golden.matched import build_patterns
from tests.golden.members import build_members
from tests.golden.moments import build_moments, build_plain_moments
from tests.golden.parted import ROWS, build_parts
from tests.golden.program import VALUES, Parts, build_dataflow, events
from tests.golden.rolled_up import build_rollups
from tests.golden.stated import build_statements
from tests.golden.tabled import build_tables
from tests.golden.windowed import START, build_windows
from tests.golden.write import JOBS, PACKED, PLACED, Job, backend_of, run, run_windows
from tests.kit.backends import kept, kept_states
from tests.kit.nights import at_night

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
FORMATS = sorted(path.name for path in FOLDER.glob("format-*"))

LATEST: dict[Any, Any] = {
    **VALUES,
    "changing": 11,
    "gone 11": 11,
    "dropped and set again": 2,
    "y": "the second run",
}
BEFORE: dict[Any, Any] = {**VALUES, "changing": 11, "gone 11": 11, "dropped and set again": 1}
AT_LAST: dict[Any, Any] = {
    **VALUES,
    "": "not empty",
    "changing": 99,
    "dropped and set again": 2,
    "y": "the last run",
}
Sinks = dict[str, VecSink[Any, Any, Any]]
"""The sinks of a run, by name."""

KINDS = Counter(type(value).__name__ for value in VALUES.values())


def in_processes(count: int) -> partial[Any]:
    """Return a runtime with a worker process for each worker."""
    return partial(MultiProcessRuntime, parallelism=count, processes=count, start_method="forkserver")


@pytest.fixture(params=product(FORMATS[:2], JOBS), ids=lambda param: f"{param[0]}-{param[1].name}")
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Job, FsspecBackend]:
    """Return a job, and a backend on a copy of its files."""
    version, job = request.param
    shutil.copytree(FOLDER / version / job.name, tmp_path / job.name)
    return job, backend_of(job, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Sequence[Sinks]]:
    """Return a function that gives the sinks of two runs of a new job, one after the other, on one thread."""

    @cache
    def runs(job: Job, build: Any, **options: Any) -> Sequence[Sinks]:
        backend = backend_of(job, tmp_path_factory.mktemp("new"))
        return [run_windows(job, backend, build, **options) for _ in range(2)]

    return runs


def alike(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Assert that keys and values are equal, and of the same types."""
    assert found == expected
    types = {key: (type(key), type(value)) for key, value in expected.items()}
    assert {key: (type(key), type(value)) for key, value in found.items()} == types


def test_there_are_golden_files_of_the_format_that_is_written() -> None:
    assert f"format-{manifest.FORMAT}" in FORMATS
    assert f"format-{data_file.FORMAT}" in FORMATS
    assert FORMATS == ["format-1", "format-2", "format-3"]
    for version in FORMATS:
        assert sorted(path.name for path in (FOLDER / version).iterdir()) == sorted(job.name for job in JOBS)


def test_golden_files_are_whole(golden: tuple[Job, FsspecBackend]) -> None:
    job, backend = golden
    report = fsck(backend)
    assert report.problems == report.unused == ()
    older, newest = snapshots(backend)
    assert (older.id, newest.id) == (14, 16)
    assert older.parallelism == newest.parallelism == job.parallelism
    assert newest.kind == "increment"
    assert newest.files == 7, "a base, increments that were folded, and increments that were not"


@pytest.mark.fault("G10", "G11")
def test_golden_states_are_read(golden: tuple[Job, FsspecBackend]) -> None:
    _, backend = golden
    alike(kept_states(backend, "latest"), LATEST)
    assert kept_states(backend, "events") == {"x": 70, "y": 19}
    assert kept_states(backend, "count") == KINDS + Counter(int=12 + 12 + 1 + 1, str=11 + 1 + 1)
    assert kept_states(backend, "written") == {"str": 206, "int": 3, "tuple": 2, "float": 1, "bytes": 1}
    seen = kept_states(backend, "recent")
    assert seen["y"].get("y") == "the second run"
    assert [seen["x"].get(f"gone {n}") for n in (0, 2, 11)] == [None, "drop the key", 11]
    epochs = [state for by_worker in kept(backend).states["epochs"].values() for state in by_worker.items()]
    assert ("epoch", 47) in epochs


def test_the_golden_snapshot_before_is_read(golden: tuple[Job, FsspecBackend]) -> None:
    _, backend = golden
    alike(kept_states(backend, "latest", 14), BEFORE)
    assert kept_states(backend, "events", 14) == {"x": 65, "y": 17}


@pytest.mark.fault("G10")
@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_run_goes_on_from_golden_files(golden: tuple[Job, FsspecBackend], workers: int) -> None:
    job, backend = golden
    sink = Parts()
    run(job, backend, sink, parallelism=workers or job.parallelism)
    alike(kept_states(backend, "latest"), AT_LAST)
    assert kept_states(backend, "count") == KINDS + Counter(int=12 + 12 + 1 + 1 + 1, str=11 + 1 + 1 + 3)
    assert sink.written == {"str": 206 + 3 * 4}
    assert kept_states(backend, "written") == {"str": 218, "int": 3, "tuple": 2, "float": 1, "bytes": 1}
    seen = kept_states(backend, "recent")
    assert {name: seen["x"].get(name) for name in ("", "changing", "gone 10", "dropped and set again")} == {
        "": "not empty",
        "changing": 99,
        "gone 10": None,
        "dropped and set again": 2,
    }
    assert fsck(backend).problems == ()


def test_hidden_states_are_found_under_their_former_names(golden: tuple[Job, FsspecBackend]) -> None:
    _, backend = golden
    graph = Graph()
    build_dataflow(StreamProvider(graph), events(), Parts())
    specs = states_of(compile_graph(graph))
    manifest_log = backend.manifest_log()
    assert manifest_log.find()
    former = {entry.name: entry.keys for entry in manifest_log.manifest(16).operators if entry.kind == "frontier"}
    session, restored = backend.open(specs, RestoreOptions())
    assert restored is not None
    found = {spec.name: sum(map(len, restored.states[spec.name].values())) for spec in specs if spec.kind.may_be_lost}
    assert list(found.values()) == list(former.values())
    assert list(zip(former, found, strict=True)) == [
        ("by key-distribute", "by key/exchange"),
        ("by kind-distribute", "by kind/exchange"),
        ("\n(epochs + epochs[1])", "(epochs + epochs[1])/union"),
        ("by part-distribute", "by part/exchange"),
        ("\n(latest + count + recent)", "(latest + count + recent)/union"),
        ("written-distribute", "written/exchange"),
    ]
    assert session.needs_full_snapshot(restored.parallelism), (
        "increments over files with the former names would be lost"
    )
    session.close()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("malflow.message", "DataMessage"),
        ("malflow.message", "MAX"),
        ("malflow.operators.ttl", "ExpireMap"),
        ("malflow.partitioners", "rendezvous_select"),
    ],
)
def test_names_in_old_snapshots_can_be_imported(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_golden_files_of_format_3_have_the_kinds_that_came_with_it(job: Job, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "format-3" / job.name, tmp_path / job.name)
    manifest_log = backend_of(job, tmp_path).manifest_log()
    assert manifest_log.find()
    found = {entry.kind for entry in manifest_log.manifest(2).operators if entry.keys}
    windows = {"window", "session", "count_window", "aggregate", "join"}
    others = {"timers", "distinct", "changes", "throttle", "sort", "batch"}
    assert found == {"source", "epochs", "frontier", "stateful_op"} | windows | others


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_golden_files_of_rollups_have_open_and_kept_windows(job: Job, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "rollups" / job.name, tmp_path / job.name)
    units = Counter(slot % 8 for slot, _ in kept_states(backend_of(job, tmp_path), "levels"))
    hours = 3 + 5  # open and kept
    assert units == {2: 5 * hours, 3: 5, 5: 5}, "hours, days and months of each of five sensors"


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_golden_files_of_patterns_have_partial_matches(job: Job, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "patterns" / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    each, silence, first = (kept_states(backend, name) for name in ("each", "silence", "first"))
    assert len(each) == len(silence) == len(first) == 5
    partials = {len(runs) // 2 for _, _, runs, _, _, _ in each.values()}
    assert partials == {3}
    assert all(waiting for _, _, _, waiting, _, _ in silence.values())
    assert all(since is not None for *_, since in first.values())


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_golden_files_of_tables_have_rows_and_their_expiries(job: Job, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "tables" / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    latest, early, rare, expiries = (kept_states(backend, name) for name in ("latest", "early", "rare", "rare/timers"))
    assert sorted(latest) == sorted(early) == [f"s{n}" for n in range(5)]
    assert latest["s0"] == {"sensor": "s0", "value": 50.0, "half": 25.0}
    assert early["s3"] == 39.3
    assert {key: row["value"] for key, row in rare.items()} == {f"s{n}": 48 + n / 10 for n in range(5)}
    assert set(expiries.values()) == {START + timedelta(hours=53)}
    assert kept_states(backend, "last")["s1"] == TableChange(
        {**latest["s1"], "value": 49.1, "half": 24.55}, latest["s1"]
    )
    assert set(kept_states(backend, "both")) == {(side, key) for side in (0, 1) for key in latest}
    assert [rows for _, rows in kept_states(backend, "in time").values() if None in rows] == []


RUNTIMES = {
    "one worker": partial(SingleThreadRuntime, parallelism=1),
    "two workers": partial(SingleThreadRuntime, parallelism=2),
    "processes": in_processes(2),
}


@pytest.mark.parametrize(
    ("job", "runtime"),
    at_night(product(JOBS, RUNTIMES), but=[*product(JOBS, [*RUNTIMES][:2]), (JOBS[2], "processes")]),
    ids=lambda it: it.name if isinstance(it, Job) else it,
)
@pytest.mark.parametrize(
    ("folder", "build"),
    [
        ("format-3", build_windows),
        ("rollups", build_rollups),
        ("patterns", build_patterns),
        ("limits", build_limits),
        ("tables", build_tables),
        ("broadcasts", build_broadcasts),
        ("statements", build_statements),
    ],
)
def test_readings_continue_from_golden_files(
    job: Job,
    runtime: str,
    folder: str,
    build: Any,
    tmp_path: Path,
    undisturbed: Callable[..., Sequence[Sinks]],
) -> None:
    first, again = undisturbed(job, build)
    shutil.copytree(FOLDER / folder / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    assert fsck(backend).problems == ()
    found = run_windows(job, backend, build, RUNTIMES[runtime].func, **RUNTIMES[runtime].keywords)
    for name, sink in again.items():
        assert Counter(map(repr, found[name])) == Counter(map(repr, sink))
        assert len(sink) > 0
        assert len(first[name]) > 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("job", PACKED, ids=lambda job: job.name)
def test_readings_continue_from_files_of_other_compressions(
    job: Job, workers: int, tmp_path: Path, undisturbed: Callable[..., Sequence[Sinks]]
) -> None:
    shutil.copytree(FOLDER / "packed" / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    assert {path.read_bytes()[8:10] for path in tmp_path.rglob("*.mfs")} == {b"\0\2"}
    assert fsck(backend).problems == ()
    found = run_windows(job, backend, parallelism=workers)
    for name, sink in undisturbed(job, build_windows)[1].items():
        assert Counter(map(repr, found[name])) == Counter(map(repr, sink))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_sliding_limits_continue_from_golden_buckets(job: Job, tmp_path: Path) -> None:
    two_hours = limit_out_of_orderness(timedelta(hours=2))

    def build(provider: Any, source: Any, sinks: dict[str, VecSink[Any, Any, Any]]) -> None:
        timed, _ = provider.new_stream().source("readings", source).generate_epochs("epochs", two_hours)
        keyed = timed.key_distribute("sensor", lambda msg: msg.value["sensor"])
        passed, _ = keyed.throttle("throttled", 2, per=timedelta(hours=5))
        passed.sink("passed results", sinks.setdefault("passed", VecSink()))

    shutil.copytree(FOLDER / "format-3" / job.name, tmp_path / job.name)
    backend = backend_of(job, tmp_path)
    buckets, others = kept_states(backend, "throttled"), kept(backend).states.keys() - {"throttled"}
    found = run_windows(job, backend, build, allow_dropped_state=others)["passed"]
    assert len(buckets) == 5
    assert {type(times) for times in kept_states(backend, "throttled").values()} == {list}
    for key, (looked_at, debt) in buckets.items():
        missing = [looked_at] * ceil(debt / timedelta(hours=5))
        times = missing + [msg.timestamp for msg in found if msg.key == key]
        assert len(times) > 5
        assert all(late - early >= timedelta(hours=5) for early, late in zip(times, times[2:], strict=False))


@pytest.mark.fault("E10")
@pytest.mark.parametrize(
    ("folder", "build"), [("moments", build_moments), ("moments", build_plain_moments), ("members", build_members)]
)
@pytest.mark.parametrize(
    "runtime",
    [*(partial(SingleThreadRuntime, parallelism=workers) for workers in (1, 2, 3, 4)), in_processes(3)],
    ids=["1", "2", "3", "4", "processes"],
)
def test_keys_that_had_another_place_are_found_again(
    folder: str, build: Any, runtime: partial[Any], tmp_path: Path
) -> None:
    shutil.copytree(FOLDER / folder, tmp_path, dirs_exist_ok=True)
    backend = backend_of(PLACED, tmp_path)
    states = kept(backend).states["count"]
    elsewhere = [key for at, keys in states.items() for key in keys if rendezvous_select(key, range(3)) != at]
    assert len(elsewhere) > 10
    read = run_windows(PLACED, backend, build, runtime.func, **runtime.keywords)
    counts = kept_states(backend, "count")
    assert len(counts) == 24
    assert sum(counts.values()) == 72 * 5
    assert len(read["counts"]) == 21 * 5
    assert fsck(backend).problems == ()


@pytest.mark.parametrize("folder", ["parts", "dealt"])
@pytest.mark.parametrize(
    "runtime",
    [
        *(partial(SingleThreadRuntime, parallelism=workers) for workers in (1, 2, 3, 4)),
        in_processes(3),
        pytest.param(partial(SparkRuntime, parallelism=3), marks=[pytest.mark.spark, pytest.mark.nightly]),
        pytest.param(partial(SparkRuntime, parallelism=4), marks=pytest.mark.spark),
    ],
    ids=["1", "2", "3", "4", "processes", "spark, 3", "spark, 4"],
)
def test_states_of_parts_are_found_where_the_parts_are_dealt(
    folder: str,
    runtime: partial[Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    undisturbed: Callable[..., Sequence[Sinks]],
) -> None:
    options = {"spark": request.getfixturevalue("spark")} if runtime.func is SparkRuntime else {}
    shutil.copytree(FOLDER / folder, tmp_path / "kept")
    backend = backend_of(PLACED, tmp_path / "kept")
    assert set(kept_states(backend, "count").values()) == {12}
    read = run_windows(PLACED, backend, build_parts, runtime.func, **runtime.keywords, **options)
    assert sorted((it.key, it.value) for it in read["counts"]) == [
        (part, count) for part, rows in ROWS.items() for count in range(13, rows + 1)
    ]
    alone = undisturbed(PLACED, build_parts, parallelism=1)
    windows = {(it.key, it.value.start): it.value.value for run in alone for it in run["windows"]}
    found = [((it.key, it.value.start), it.value.value) for it in read["windows"]]
    assert len(dict(found)) == len(found)
    assert dict(found).items() <= windows.items()
    last = {key: max(start for other, start in windows if other == key) for key in ROWS}
    assert {*last.items()} <= {*dict(found)}
    assert sorted(map(repr, read["late"])) == sorted(map(repr, alone[1]["late"]))
    assert len(read["late"]) == len(ROWS)
    assert fsck(backend).problems == ()
