"""The files by which runs are found: only ours are believed, and nothing about them ends a run."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor, client, run_files
from malflow.monitor.run_files import NoPlace, RunFile, clear_away, found_runs, socket_of, write
from malflow.runtime.owners import Owner
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.words import iso
from tests.kit.disks import small_disk


def a_file(run: str = "0123abcd", **changes: str | None) -> RunFile:
    """Return the content of the file of a run of this process."""
    plain = RunFile(run, "orders", "single", str(Owner.here()), iso(datetime.now(UTC)))
    return replace(plain, **changes)  # type: ignore[arg-type] # texts


def ids() -> list[str]:
    """Return the ids of the runs that are found."""
    return [content.run for _, content in found_runs()]


def run_three() -> SingleThreadRuntime:
    """Run a dataflow of three records with a monitor."""

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource([1, 2, 3])).sink("out", VecSink())

    runtime = SingleThreadRuntime(build_dataflow, listeners=[Monitor()])
    runtime.execute()
    return runtime


def test_files_are_private_and_complete(place: Path) -> None:
    folder = run_files.place()
    write(folder, a_file())
    [path] = folder.iterdir()
    assert folder == place
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    content = json.loads(path.read_bytes())
    assert content == {
        "malflow": 1,
        "kind": "run_file",
        "run": "0123abcd",
        "job": "orders",
        "runtime": "single",
        "owner": str(Owner.here()),
        "started": content["started"],
        "script": None,
        "page": None,
        "state": None,
        "ended": None,
        "status": None,
    }
    assert found_runs() == [(folder, RunFile(**{k: v for k, v in content.items() if k not in ("malflow", "kind")}))]


@pytest.mark.fault("M1")
def test_runs_of_dead_processes_are_noted_as_killed_and_others_stay(place: Path) -> None:
    folder, here = run_files.place(), Owner.here()
    write(folder, a_file("00000001"))
    write(folder, a_file("00000002", owner=str(replace(here, started=here.started + 1))))  # the pid has another owner
    write(folder, a_file("00000003", owner=str(replace(here, machine="ab" * 8, pid=1))))  # in another container
    ended = timedelta(minutes=59), timedelta(minutes=61)
    for number, age in enumerate(ended, 4):
        write(folder, a_file(f"0000000{number}", ended=iso(datetime.now(UTC) - age), status="ended"))
    socket_of(folder, "00000002").touch()
    assert ids() == ["00000001", "00000002", "00000003", "00000004"]
    assert [it.file.run for it in client.live_runs()] == ["00000001", "00000003"]
    assert [it.file.status for it in client.recent_runs() if it.file.run == "00000002"] == ["killed"]
    assert sorted(it.name for it in folder.iterdir()) == [f"0000000{it}.json" for it in (1, 2, 3, 4)]
    assert client.find("1").file.run == "00000003"
    assert client.find("1").is_elsewhere


@pytest.mark.fault("M1")
def test_leftovers_of_killed_processes_are_cleared_away(place: Path) -> None:
    folder = run_files.place()
    old = time.time() - 3600
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        for end, name in ((dead, "00000001.sock"), (alive, "00000002.sock")):
            end.bind(str(folder / name))
            os.utime(folder / name, (old, old))
        alive.listen()
        dead.close()
        for name in (".00000003.new", "mine.sock", "notes.txt"):
            (folder / name).touch()
            os.utime(folder / name, (old, old))
        (folder / "00000004.sock").touch()  # of a run that begins just now
        clear_away()
        left = sorted(it.name for it in folder.iterdir())
    assert left == ["00000002.sock", "00000004.sock", "mine.sock", "notes.txt"]


@pytest.mark.fault("M3")
def test_other_files_are_skipped_with_a_warning(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = run_files.place()
    write(folder, a_file())
    whole = (folder / "0123abcd.json").read_bytes()
    wrong = {
        "00000001": whole[: len(whole) // 2],
        "00000002": b"",
        "00000003": b"\xff\x00\x80",
        "00000004": whole,  # of another run
        "00000005": b"[" * 60_000,
        "00000006": b" " * 70_000 + whole,
        "00000007": b"null",
        "00000008": whole.replace(b"0123abcd", b"00000008").replace(b'"orders"', b"7"),
        "00000009": whole.replace(b"0123abcd", b"00000009").replace(b'"page": null', b'"page": [1]'),
    }
    for run, data in wrong.items():
        (folder / f"{run}.json").write_bytes(data)
    os.mkfifo(folder / "0000000a.json")
    (folder / "0000000b.json").symlink_to(folder / "0123abcd.json")
    (folder / "0000000c.json").mkdir()
    names = {*wrong, "0000000a", "0000000b", "0000000c"}
    with caplog.at_level(logging.WARNING, "malflow.monitor"):
        assert ids() == ["0123abcd"]
        assert ids() == ["0123abcd"], "told once, however often runs are looked for"
    [record] = caplog.records
    assert "00000001.json: " in record.getMessage()
    assert record.getMessage().endswith("; and 9 more")
    assert len(list(folder.iterdir())) == len(names) + 1, "nothing of others is removed"


def wrong_folders(runtime: Path, kind: str) -> None:
    """Make both folders in which runs could have files unusable."""
    for folder in (runtime / "malflow", runtime / f"malflow-{os.geteuid()}"):
        match kind:
            case "file":
                folder.touch()
            case "open":
                folder.mkdir(mode=0o755)
            case "link":
                (runtime / "elsewhere").mkdir(mode=0o700, exist_ok=True)
                folder.symlink_to(runtime / "elsewhere")
            case "foreign":
                folder.mkdir(mode=0o700)
                os.chown(folder, 12345, 12345)


@pytest.mark.fault("M2")
@pytest.mark.parametrize("kind", ["file", "open", "link", "foreign"])
def test_a_run_continues_without_a_place_for_its_files(
    place: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "foreign" and os.geteuid() != 0:
        pytest.skip("this user may not give a folder to another one")
    wrong_folders(place.parent, kind)
    before = sorted(place.parent.rglob("*"))
    with caplog.at_level(logging.WARNING, "malflow.monitor"):
        assert run_three().progress.records["out"] == 3
    [record] = caplog.records
    assert "can't find this run, which continues" in record.getMessage()
    assert sorted(place.parent.rglob("*")) == before
    assert client.recent_runs() == []


@pytest.mark.fault("M2")
def test_the_temporary_folder_serves_where_the_runtime_folder_does_not(place: Path) -> None:
    place.symlink_to("/")
    run_three()
    assert [it.folder.name for it in client.recent_runs()] == [f"malflow-{os.geteuid()}"]


@pytest.mark.fault("M2")
def test_a_path_that_is_too_long_for_a_socket(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deep = place.parent / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert run_files.place() == place.parent / f"malflow-{os.geteuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(NoPlace, match="too long for a socket"):
        run_files.place()
    with caplog.at_level(logging.WARNING, "malflow.monitor"):
        assert run_three().progress.records["out"] == 3
    assert len(caplog.records) == 1


def fill(disk: Path) -> None:
    """Fill a disk."""
    with (disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
        while True:
            rest.write(b"x" * 512)


@pytest.mark.fault("M2")
def test_a_full_disk(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(place.parent / "disk", 8) as disk, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(disk))
        folder = run_files.place()
        fill(disk)
        with caplog.at_level(logging.WARNING, "malflow.monitor"):
            assert run_three().progress.records["out"] == 3
        assert "No space" in caplog.text
        assert list(folder.iterdir()) == []


@pytest.mark.fault("M2")
def test_a_file_that_can_not_be_written_as_a_whole(place: Path) -> None:
    folder = run_files.place()
    before, limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(folder, a_file())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert list(folder.iterdir()) == []


def test_names_of_runs(place: Path) -> None:
    folder = run_files.place()
    for run, job in (("aa000001", "orders"), ("aa000002", "orders"), ("ab000003", "bb"), ("bb000004", "lines")):
        write(folder, a_file(run, job=job))
    write(folder, a_file("cc000005", job="past", ended=iso(datetime.now(UTC)), status="ended"))
    assert client.find("aa000002").file.run == "aa000002"
    assert client.find("ab").file.run == "ab000003"
    assert client.find("bb").file.run == "ab000003", "a job before an id"
    assert client.find("lines").file.run == "bb000004"
    with pytest.raises(client.AmbiguousRun, match=r"aa000001.*aa000002"):
        client.find("orders")
    with pytest.raises(client.AmbiguousRun, match="several runs"):
        client.find(None)
    with pytest.raises(client.AmbiguousRun, match="names several"):
        client.find(str(os.getpid()))
    for name in ("past", "", "nothing\x1b[2J"):
        with pytest.raises(client.NoSuchRun, match="no run has the job") as found:
            client.find(name)
        assert "\x1b" not in str(found.value)
