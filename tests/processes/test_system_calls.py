"""Disks that fill up and fail, kills between two system calls, and the order in which things become durable.

System calls are watched, made to fail and made to kill by strace; without it, or the right to trace, nothing is tested
here. (A2, A4, A12, C1, C2.)
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from malflow.snapshot import fsck, snapshots
from tests.kit.disks import make_room, small_disk
from tests.kit.nights import at_night
from tests.processes.children import assert_exact, assert_plausible, backend_of, finish, newest, run
from tests.processes.programs.counting import Options

CALLS = ("write", "fsync", "linkat")
SMALL = Options(size=70, retain=100, growth=1_000, writes=False)


class Call(NamedTuple):
    """A system call that touched the job's folder.

    Attributes:
        thread: who called.
        name: which.
        nth: its number among the calls of this name by this thread, wherever they went; strace counts so.
        path: the file or folder, below the job's folder; what a link makes.
        failed: whether it failed.
    """

    thread: str
    name: str
    nth: int
    path: str
    failed: bool


def strace(log: Path, *injected: str) -> list[str]:
    """Return the command that traces system calls and tampers with some of them."""
    injections = [word for injection in injected for word in ("-e", f"inject={injection}")]
    return ["strace", "-f", "-y", "-s0", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *injections]


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    command = [*strace(Path("/dev/null"), "fsync:error=EIO:when=1"), "true"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace")]


def calls(log: Path) -> list[Call]:
    """Read what strace wrote."""
    found, numbers = [], Counter[tuple[str, str]]()
    for line in log.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(\d+) +(write|fsync|linkat)\((.*)\) += (-?\d+)", line)
        if match is None:
            continue
        thread, name, arguments, result = match.groups()
        numbers[thread, name] += 1
        folder = re.findall(r"/state/counting(?:/([^>]*))?>", arguments)
        if folder:
            linked = re.findall(r'"([^"]*)"', arguments)
            path = "/".join(filter(None, (folder[-1], linked[-1] if name == "linkat" else "")))
            found.append(Call(thread, name, numbers[thread, name], path, result == "-1"))
    return found


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Watch an undisturbed run of several snapshots."""
    folder = tmp_path_factory.mktemp("trace")
    assert run(folder, SMALL, under=strace(folder / "log")) == (0, "")
    return calls(folder / "log")


def target(trace: list[Call], name: str, path: str, snapshot: int = 2) -> int:
    """Return strace's number of a call that the background thread makes on a path and the main thread never."""
    main = trace[0].thread
    most = max(call.nth for call in trace if call.thread == main and call.name == name)
    numbers = [
        call.nth for call in trace if call.thread != main and call.name == name and re.fullmatch(path, call.path)
    ]
    return [number for number in numbers if number > most][snapshot]


PATHS = {
    "data file": r"d/\.tmp-.*",
    "data folder": r"d",
    "manifest": r"m/\.tmp-.*",
    "manifest folder": r"m",
}


def temporary(folder: Path) -> list[Path]:
    return list(folder.rglob(".tmp-*"))


def was_injected(log: Path) -> bool:
    return "(INJECTED)" in log.read_text(encoding="utf-8")


@pytest.mark.fault("A12")
def test_objects_are_synced_before_names_and_data_before_manifests(trace: list[Call]) -> None:
    durable: set[str] = set()
    linked: dict[str, set[str]] = {"d": set(), "m": set()}
    synced: set[str] = set()
    for call in trace:
        if call.failed:
            continue
        folder, _, name = call.path.rpartition("/")
        if call.name == "write":
            assert name.startswith(".tmp-"), "nothing is written under its own name"
            synced.discard(call.path)
        elif call.name == "fsync" and name.startswith(".tmp-"):
            synced.add(call.path)
        elif call.name == "fsync":
            durable |= linked.get(call.path, set())
        elif folder in linked:
            temps = [path for path in synced if path.startswith(f"{folder}/.tmp-{name}-")]
            assert len(temps) == 1, f"{call.path} was linked before it was synced"
            if folder == "m" and linked["d"]:
                assert linked["d"] <= durable, "a manifest was linked before its data were durable"
                assert linked["m"] <= durable, "a manifest was linked before the one before it was durable"
            linked[folder].add(call.path)
    assert len(linked["m"]) > len(linked["d"]) > 5
    assert linked["m"] | linked["d"] == durable, "the run ended before all was durable"


@pytest.mark.fault("C2")
@pytest.mark.parametrize("place", ["data file", "data folder", "manifest"])
def test_a_disk_that_fails_to_sync_costs_a_snapshot_and_no_number(
    tmp_path: Path, trace: list[Call], place: str
) -> None:
    nth = target(trace, "fsync", PATHS[place])
    log = tmp_path / "log"
    code, errors = run(tmp_path, SMALL, under=strace(log, f"fsync:error=EIO:when={nth}"))
    assert code == 0
    assert was_injected(log)
    assert ("a snapshot of job 'counting' failed and will be retried" in errors) == (place != "data folder")
    assert_exact(tmp_path, SMALL.size, outputs=False)
    assert temporary(tmp_path) == []
    failed = [call.path for call in calls(log) if call.failed and call.name == "fsync"]
    assert len(failed) == 1
    again = [call for call in calls(log) if call.path == failed[0] and not call.failed and call.name == "fsync"]
    assert not again or place == "data folder", "a file that failed to sync is never synced again"


@pytest.mark.fault("C2")
def test_manifest_whose_folder_fails_to_sync_is_found_by_the_next_run(tmp_path: Path, trace: list[Call]) -> None:
    log = tmp_path / "log"
    nth = target(trace, "fsync", PATHS["manifest folder"])
    code, errors = run(tmp_path, SMALL, under=strace(log, f"fsync:error=EIO:when={nth}"))
    assert code == 1
    assert was_injected(log)
    assert "malflow.errors.CommitUnknown: the store did not confirm whether 'm/" in errors
    assert fsck(backend_of(tmp_path)).problems == ()
    assert_plausible(tmp_path)
    finish(tmp_path, SMALL.size)
    assert_exact(tmp_path, SMALL.size, outputs=False)


@pytest.mark.fault("C1")
@pytest.mark.parametrize("name", at_night(["write", "fsync", "linkat"], but=["write"]))
@pytest.mark.parametrize("place", ["data file", "manifest"])
def test_a_disk_that_is_full_for_a_while_costs_snapshots_and_no_number(
    tmp_path: Path, trace: list[Call], name: str, place: str
) -> None:
    path = PATHS[place] if name != "linkat" else PATHS[place].replace(r"\.tmp-", "")
    nth = target(trace, name, path, snapshot=1)
    log = tmp_path / "log"
    code, errors = run(tmp_path, SMALL, under=strace(log, f"{name}:error=ENOSPC:when={nth}..{nth + 2}"))
    assert code == 0
    assert was_injected(log)
    assert any(call.failed and re.fullmatch(path, call.path) for call in calls(log))
    if name != "write":  # what is said is written, too
        assert "No space left on device; free some space" in errors
    assert_exact(tmp_path, SMALL.size, outputs=False)
    assert temporary(tmp_path) == []


def test_disk_that_stays_full_fails_the_run_at_its_end(tmp_path: Path, trace: list[Call]) -> None:
    nth = target(trace, "fsync", PATHS["data file"], snapshot=1)
    log = tmp_path / "log"
    code, errors = run(tmp_path, SMALL, under=strace(log, f"fsync:error=ENOSPC:when={nth}+"))
    assert code == 1
    assert re.search(r"malflow\.errors\.StoreError: '.*/state/counting/d/.*' could not be written: No space", errors)
    assert newest(tmp_path) > 0
    assert fsck(backend_of(tmp_path)).unused == ()
    assert temporary(tmp_path) == []
    assert_plausible(tmp_path)
    finish(tmp_path, SMALL.size)
    assert_exact(tmp_path, SMALL.size, outputs=False)


@pytest.mark.fault("C1")
def test_full_disk_leaves_whole_snapshots_and_room_lets_the_job_resume(tmp_path: Path) -> None:
    options = Options(size=1_000, retain=1_000)
    with small_disk(tmp_path / "state", 256) as disk:
        code, errors = run(tmp_path, options)
        assert code == 1
        assert "No space left on device; free some space" in errors
        assert len(list(snapshots(backend_of(tmp_path)))) > 3
        assert fsck(backend_of(tmp_path)).problems == ()
        assert temporary(disk) == []
        assert_plausible(tmp_path)
        make_room(disk)
        finish(tmp_path, options.size)
        assert_exact(tmp_path, options.size)


@pytest.mark.fault("A2", "A4")
@pytest.mark.parametrize(
    ("name", "nth"),
    at_night(
        [
            *(("write", n) for n in (4, 5)),
            *(("fsync", n) for n in (1, 5, 9, 10, 11, 12, 13)),
            *(("linkat", n) for n in (3, 4, 5)),
        ],
        but=[("fsync", 10), ("linkat", 4)],
    ),
)
def test_a_kill_between_two_system_calls_costs_no_number(tmp_path: Path, name: str, nth: int) -> None:
    log = tmp_path / "log"
    code, errors = run(tmp_path, SMALL, under=strace(log, f"{name}:signal=SIGKILL:when={nth}"))
    assert (code, errors) == (-signal.SIGKILL, "")
    if newest(tmp_path):
        assert_plausible(tmp_path)
    finish(tmp_path, SMALL.size)
    assert_exact(tmp_path, SMALL.size, outputs=False)
    assert fsck(backend_of(tmp_path)).unused == ()
