"""Leftovers of killed runs are removed by a later run; those that may belong to a live run stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.errors import FencedError
from malflow.graph import Graph
from malflow.runtime import owners
from malflow.runtime.owners import Owner
from malflow.runtime.spark.changelog import leftovers
from malflow.runtime.spark.changelog.changelog import RUNS, Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, pack_entry
from malflow.runtime.spark.changelog.leftovers import (
    OF_QUERY,
    OF_SCRATCH,
    Claimed,
    Sweep,
    owner_of_run,
    owner_of_temporary,
    run_name,
    temporary_folder,
)
from malflow.snapshot import FsspecBackend, snapshots
from malflow.snapshot.persistence import RestoreOptions
from tests.kit.backends import at_once
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.waiting import wait_until
from tests.spark.clusters import SECONDS, users_environment
from tests.spark.flows import sums
from tests.spark.programs.endless import endless
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEY = b"k" * 32
ELSEWHERE = f"{'ab' * 8}-{'cd' * 8}-17-4711"
"""The name of a run of another machine."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def place(tmp_path: Path) -> ScratchFolder:
    return ScratchFolder(str(tmp_path / "scratch"), {}, run_name(), KEY)


@contextmanager
def living(place: ScratchFolder, *claimed: object) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has a run's folders; it ends at the end, and is reaped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.programs.live", place.url, *map(str, claimed or ("job", 1))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def folders_of(process: subprocess.Popen[str], place: ScratchFolder) -> list[Path]:
    """Wait until the process has its folders, and return them."""
    assert process.stdout is not None
    run, *folders = process.stdout.readline().split()
    wait_until(Path(place.url, RUNS, run, "claim").exists)
    return [Path(place.url, RUNS, run), *map(Path, folders)]


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process; it stays a zombie."""
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def swept(place: ScratchFolder, claimed: Claimed | None = None) -> None:
    """Sweep to the end."""
    sweep = Sweep(place, is_temporary=False)
    sweep.start(claimed)
    assert sweep._thread is not None
    sweep._thread.join(SECONDS)
    sweep.close()


def written(place: ScratchFolder, run: str, job: str = "job", epoch: int = 1, tick: int = 1) -> Path:
    """Write what a run writes; return its folder, where it is on this machine."""
    Changelog(replace(place, run=run), 1).write(0, 0, pack_entry(ChangelogEntry(tick, NEVER, {})))
    note = Path(place.url, RUNS, run, "claim")
    note.write_text(json.dumps({"job": job, "epoch": epoch}), encoding="utf-8")
    return note.parent


def test_names_tell_whether_their_owner_is_dead() -> None:
    here = Owner.here()
    assert owner_of_run(run_name()) == here == owner_of_temporary(Path(temporary_folder(OF_QUERY)).name)
    assert here.is_here
    assert not here.is_dead
    assert replace(here, started=here.started + 1).is_dead, "the number was given to another process"
    assert not replace(here, machine="ab" * 8, pid=1, started=1).is_dead, "nobody here knows"
    assert not replace(here, machine="0" * 16, started=1).is_dead, "nobody knows"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = owners._found(process.pid)
        assert found is not None
        owner = replace(here, pid=process.pid, started=found[1])
        assert not owner.is_dead
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead, "also as a zombie"
        process.wait()
        assert owner.is_dead


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ab" * 8,
        "../" + ELSEWHERE,
        ELSEWHERE + "-",
        ELSEWHERE.replace("-17-", "-0-"),
        ELSEWHERE.replace("-17-", "--1-"),
        ELSEWHERE.replace("-17-", "-99999999999-"),
        ELSEWHERE.upper(),
        f"{OF_QUERY}-{ELSEWHERE}",
        f"{OF_QUERY}-abcdefgh",
        f"{OF_SCRATCH}-of-the-user",
    ],
)
def test_other_names_have_no_owner(name: str) -> None:
    assert owner_of_run(name) is None
    assert owner_of_temporary(name) is None


@pytest.mark.fault("I21")
def test_a_killed_process_loses_its_folders_and_a_live_one_keeps_them(place: ScratchFolder) -> None:
    with living(place) as dead, living(place) as alive:
        left, kept = folders_of(dead, place), folders_of(alive, place)
        killed(dead)
        swept(place)
        assert [it.exists() for it in left] == [False] * 3
        assert [it.exists() for it in kept] == [True] * 3
        swept(place, Claimed("job", 2))
        assert [it.exists() for it in kept] == [True] * 3, "also where another run has its job"
        assert Changelog(replace(place, run=kept[0].name), 1).find(0, 0, 1) is not None


def test_a_run_removes_nothing_but_folders_of_runs(place: ScratchFolder, temporary: Path) -> None:
    dead = replace(Owner.here(), started=0)
    name = f"{OF_QUERY}-{dead}-abcdefgh"
    target = temporary / "target"
    target.mkdir()
    (temporary / name).symlink_to(target)
    (temporary / f"{OF_SCRATCH}-{dead}-abcdefgh").write_text("a file", encoding="utf-8")
    (temporary / f"{OF_SCRATCH}-older").mkdir()
    old = Path(place.url, "ab" * 8, "1")
    old.mkdir(parents=True)
    strange = Path(place.url, RUNS, "strange")
    strange.mkdir(parents=True)
    before = {*temporary.iterdir()}
    swept(place, Claimed("job", 2))
    assert {*temporary.iterdir()} == before
    assert target.is_dir()
    assert old.is_dir()
    assert strange.is_dir()


def test_folders_of_other_users_stay(place: ScratchFolder, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = replace(Owner.here(), started=0)
    folder = temporary / f"{OF_QUERY}-{dead}-abcdefgh"
    folder.mkdir()
    run = written(place, f"{'ab' * 8}-{dead}")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    swept(place)
    assert folder.is_dir()
    assert run.is_dir()
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    swept(place)
    assert not folder.exists()
    assert not run.exists()


@pytest.mark.fault("I21")
@pytest.mark.parametrize(
    ("job", "epoch", "goes"), [("job", 1, True), ("job", 2, False), ("job", 3, False), ("another", 1, False)]
)
def test_a_silent_run_elsewhere_that_lost_its_job_goes(
    job: str, epoch: int, goes: bool, place: ScratchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_SILENCE", 0.01)
    run = written(place, ELSEWHERE, job, epoch)
    swept(place)
    assert run.is_dir(), "who keeps nothing has no job"
    swept(place, Claimed("job", 2))
    assert run.is_dir() is not goes


@pytest.mark.fault("I21")
def test_a_run_elsewhere_that_is_not_silent_stays(place: ScratchFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_SILENCE", 600.0)
    run = written(place, ELSEWHERE)
    sweep = Sweep(place, is_temporary=False)
    looking = threading.Event()
    monkeypatch.setattr(sweep._over, "wait", lambda _: looking.set() or written(place, ELSEWHERE, tick=2) is None)
    sweep.start(Claimed("job", 2))
    assert looking.wait(SECONDS)
    sweep.close()
    assert run.is_dir()
    run_note = run / "claim"
    run_note.write_text("[" * 5000, encoding="utf-8")
    monkeypatch.setattr(leftovers, "_SILENCE", 0.0)
    swept(place, Claimed("job", 3))
    assert run.is_dir(), "who can't be understood is left alone"


@pytest.mark.fault("I21")
def test_on_s3_runs_are_swept_and_what_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_SILENCE", 0.01)
    dead = f"{'ef' * 8}-{replace(Owner.here(), started=0)}"
    with FaultyS3() as server:
        place = ScratchFolder(f"s3://{server.bucket}/scratch", server.options, run_name(), KEY)
        filesystem = server.filesystem()
        for run in (place.run, dead, ELSEWHERE):
            Changelog(replace(place, run=run), 1).write(0, 0, pack_entry(ChangelogEntry(1, NEVER, {})))
        filesystem.pipe(f"{place.url}/{RUNS}{ELSEWHERE}/claim", b'{"job": "job", "epoch": 1}')
        server.inject("403", "GET")
        swept(place, Claimed("job", 2))
        assert len(filesystem.find(place.url)) > 3
        swept(place)
        filesystem.rm_file(f"{place.url}/{RUNS}{place.run}/claim")
        swept(place, Claimed("job", 2))
        left = {it.partition(RUNS)[2].partition("/")[0] for it in filesystem.find(place.url)}
    assert left == {place.run}


@pytest.mark.fault("I22")
def test_a_fenced_run_whose_changes_are_gone_does_not_claim_its_job_back(tmp_path: Path) -> None:
    """Another run may have removed its folder, as it was silent for long."""
    graph, backend = Graph(), at_once(tmp_path / "state", job="sums")
    sums(50)(StreamProvider(graph))
    scratch = tmp_path / "scratch"

    def supersede(job: object, _gate: object) -> None:
        if len([*snapshots(backend)]) == 1:
            session, _ = backend.open((), RestoreOptions(allow_dropped_state=("numbers", "sum")))
            session.close()
            leftovers.remove_run(job.scratch, job.scratch.run)  # type: ignore[attr-defined] # a Job

    plans = [Plan(asks=True), *(Plan(places=(tick,)) for tick in range(1, 9))]
    with simulated(), pytest.raises(FencedError, match="was claimed by another run"):
        Cluster(plans, supersede).run(compile_graph(graph), settings_at(str(scratch), backend), 2)


def newest(state: Path, job: str) -> int:
    """Return the id of the newest snapshot of a job."""
    return max((it.id for it in snapshots(FsspecBackend(str(state), job=job))), default=0)


@contextmanager
def killed_driver(state: Path, scratch: Path) -> Iterator[None]:
    """Start a driver with two runs, wait until both have snapshots of their own; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.programs.endless", str(state), str(scratch)],
        cwd=ROOT,
        env={**users_environment(state.parent), "TMPDIR": tempfile.gettempdir()},
    )
    try:
        jobs = ("killed", "also-killed")
        wait_until(lambda: process.poll() is not None or all(newest(state, job) > 1 for job in jobs))
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(spark: Any, state: Path, job: str, scratch: Path) -> Iterator[None]:
    """Start a run of a job, and wait until it has a snapshot of its own; stop it at the end."""
    before = newest(state, job)
    handle = endless(str(state), job, spark, str(scratch)).start()
    try:
        wait_until(lambda: handle.has_ended or newest(state, job) > before)
        assert not handle.has_ended
        yield
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)


@pytest.mark.fault("I21")
@pytest.mark.spark
@pytest.mark.nightly
def test_the_next_run_sweeps_what_a_killed_driver_left(
    spark: Any, tmp_path: Path, place: ScratchFolder, temporary: Path
) -> None:
    state, scratch = tmp_path / "state", Path(place.url)

    def folders() -> set[Path]:
        runs = scratch / RUNS
        return {*temporary.glob("malflow-*"), *(runs.iterdir() if runs.is_dir() else ())}

    with living(place) as alive:
        others = {*folders_of(alive, place)}
        with killed_driver(state, scratch):
            left = folders() - others
        assert folders() >= left
        assert len(left) == 4, "two of queries, one of changes, one in the scratch folder"
        with running(spark, state, "live", scratch):
            wait_until(lambda: not folders() & left)
            kept = folders()
            assert len(kept - others) == 2, "one of its query, one of its changes"
            with running(spark, state, "killed", scratch):
                assert folders() > kept
            assert folders() == kept, "a live run keeps its own, one that ends leaves nothing"
        assert folders() == others, "the process that is alive keeps all of its own"
