"""The commands that see and steer runs, on runs of this process and of others."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from malflow import FencedError, MultiProcessRuntime, SingleThreadRuntime, StreamProvider
from malflow.cli import cli
from malflow.monitor import Monitor, client, run_files
from malflow.monitor.run_files import write
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import PAUSE, ScriptedSource
from tests.cli.conftest import Malflow, malflow, process
from tests.kit.waiting import wait_until
from tests.monitor.test_run_files import a_file
from tests.monitor.watching import monitored, numbers

pytestmark = pytest.mark.slow

__all__ = ["malflow"]


def test_no_run(place: Path, malflow: Malflow) -> None:
    done = malflow("ps")
    assert (done.code, done.out) == (0, "")
    assert "no run of this user is found" in done.err
    for command in (
        ["stop", "orders"],
        ["top"],
        ["why", "orders"],
        ["rescale", "orders", 2],
        ["snapshots", "take", "orders"],
    ):
        done = malflow(*command)
        assert (done.code, done.out) == (11, "")
        assert "none runs" in done.err
    assert json.loads(malflow("stop", "orders", "--json").err)["error"]["message"].startswith("no run has the job")


def test_commands_on_a_run(place: Path, malflow: Malflow, tmp_path: Path) -> None:
    with monitored(numbers(), parallelism=2, persistence=FsspecBackend(tmp_path, job="digits")) as handle:
        listed = malflow("ps")
        assert listed.code == 0
        heading, row = listed.out.splitlines()
        assert heading.split()[:5] == ["job", "run", "pid", "runtime", "status"]
        assert row.split()[0] == "digits"
        assert str(os.getpid()) in row
        assert malflow("snapshots", "take", "digits").out.endswith(f"has snapshot {handle.progress.snapshot}\n")
        assert malflow("rescale", "digits", 3).out.endswith("has 3 workers\n")
        assert handle.progress.parallelism == 3
        assert "records" in malflow("why", "digits", "out").out
        assert malflow("why", "digits", "coutn").code == 2
        assert malflow("graph", "digits", "--format", "mermaid").out.startswith("flowchart")
        assert {it["name"] for it in json.loads(malflow("graph", "digits", "--json").out)["nodes"]} >= {"step", "out"}
        parts = malflow("graph", "digits", "--parts").out.splitlines()
        assert parts == ["worker 0: 1 part", "  numbers  NoKey", "worker 1: none", "worker 2: none"]
        line = malflow("top", "digits", "--count", 1).out
        assert line.startswith("digits  single x3  r")
        assert "snapshot" in line
        stopped = malflow("stop", "digits")
        assert (stopped.code, stopped.out) == (0, f"{client.recent_runs()[0]} has ended\n")
    assert malflow("ps").out == ""
    assert malflow("ps", "--all").out.splitlines()[1].split()[4] == "ended"


@pytest.mark.fault("P5")
def test_restore_fences_a_run_and_says_so(place: Path, malflow: Malflow, tmp_path: Path) -> None:
    monitor = Monitor()
    runtime = SingleThreadRuntime(numbers(), FsspecBackend(tmp_path, job="digits"), listeners=[monitor])
    handle = runtime.start()
    wait_until(lambda: monitor.watch is not None and handle.progress.tick > 0)
    first = handle.snapshot().result(60)
    handle.snapshot().result(60)
    done = malflow("snapshots", "restore", tmp_path, first, "--yes")
    assert f"the run of job {client.find('digits')} is alive: if its state is this one, it is fenced" in done.err
    assert done.out == f"snapshot {first} is the latest of job 'digits'; the next run resumes from it\n"
    handle.snapshot()
    with pytest.raises(FencedError):
        handle.await_termination(60)


def test_documents_of_the_commands(place: Path, malflow: Malflow, tmp_path: Path) -> None:
    with monitored(numbers(), persistence=FsspecBackend(tmp_path, job="digits")):
        found = {
            command[0]: json.loads(malflow(*command, "--json").out)
            for command in (
                ["ps"],
                ["top", "--count", 1],
                ["why", "digits"],
                ["snapshots", "take", "digits"],
                ["stop", "digits"],
            )
        }
    assert [(name, it["malflow"], it["kind"]) for name, it in found.items()] == [
        ("ps", 1, "run"),
        ("top", 1, "progress"),
        ("why", 1, "why"),
        ("snapshots", 1, "done"),
        ("stop", 1, "stopped"),
    ]
    assert set(found["ps"]) == {
        *("malflow", "kind", "run", "job", "name", "runtime", "pid", "started", "ended", "status", "script", "page"),
        *("tick", "parallelism", "polled_per_second", "snapshot"),
    }
    assert found["stop"]["status"] == "ended"


def test_errors_of_a_run_have_their_exit_codes(place: Path, malflow: Malflow) -> None:
    with monitored(numbers()):
        done = malflow("snapshots", "take", str(os.getpid()))
        assert (done.code, done.out) == (3, "")
        assert "needs a persistence" in done.err
        assert malflow("rescale", "default", 0).code == 2
        run = client.find(None)
        run.socket.unlink()
        done = malflow("why", "default")
        assert done.code == 11
        assert "does not answer" in done.err


def test_an_ambiguous_name(place: Path, malflow: Malflow) -> None:
    for run in ("aa000001", "aa000002"):
        write(run_files.place(), a_file(run))
    done = malflow("stop", "orders")
    assert done.code == 2
    assert "aa000001" in done.err
    assert "aa000002" in done.err


def test_hostile_texts_in_files_are_text_on_the_terminal(place: Path, malflow: Malflow) -> None:
    write(run_files.place(), a_file("aa000001", job="a\x1b[2Jb\nc", runtime="\u202e", started="yesterday"))
    done = malflow("ps")
    assert not set(done.out + done.err) & set("\x1b\u202e")
    assert len(done.out.splitlines()) == 2


def test_a_stop_that_takes_longer_and_a_run_that_fails(place: Path, malflow: Malflow) -> None:
    free, begun = threading.Event(), threading.Event()

    def step(number: int) -> int:
        begun.set()
        free.wait(60)
        return number // 0

    handle = SingleThreadRuntime(numbers(step), listeners=[Monitor()]).start()
    assert begun.wait(60)
    done = malflow("stop", "default", "--timeout", "200ms")
    assert (done.code, done.out) == (11, "")
    assert "has not ended within 0.2 s" in done.err
    threading.Timer(0.3, free.set).start()
    done = malflow("stop", "default")
    assert done.code == 8
    assert "(failed)" in done.err
    with pytest.raises(Exception, match="step"):
        handle.await_termination(60)


def test_completion_offers_the_jobs_that_run(place: Path) -> None:
    write(run_files.place(), a_file())
    names = BashComplete(cli, {}, "malflow", "_MALFLOW_COMPLETE").get_completions(["stop"], "or")
    assert [it.value for it in names] == ["orders"]


@pytest.mark.slow
def test_runs_of_the_command_line_are_found(
    place: Path, tmp_path: Path, malflow: Malflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.py").write_text(
        "from malflow.sinks import StdOutSink\n"
        "from malflow.testing import PAUSE, ScriptedSource\n"
        "import os, signal, subprocess, sys\n"
        "def build_dataflow(provider):\n"
        "    provider.new_stream().source('numbers', ScriptedSource([1, PAUSE] * 99_000)).inspect('see', see)\n"
        "seen = []\n"
        "def see(_msg, _context):\n"
        "    if not seen:\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "        stop = [sys.executable, '-m', 'malflow', 'stop', 'default', '--timeout', '1ms']\n"
        "        seen.append(subprocess.run(stop).returncode)\n"
    )
    done = process("run", "flow.py")
    assert done.code == 0
    assert "has not ended within 0.001 s" in done.err
    assert "default  single x1  " in done.err, "at the signal"
    [ended] = client.recent_runs()
    assert ended.file.status == "ended"
    assert ended.file.script == str(tmp_path / "flow.py")
    monkeypatch.setenv("MALFLOW_CONTROL", "0")
    assert "none runs" in process("run", "flow.py", "--count", 1).err
    assert len(client.recent_runs()) == 1


def test_dead_letters_of_a_run(place: Path, malflow: Malflow, tmp_path: Path) -> None:
    mended: list[bool] = []

    def parse(text: str) -> int:
        return len(text) if mended and text != "two" else int(text)

    def build_dataflow(provider: StreamProvider) -> None:
        texts = provider.new_stream().source("texts", ScriptedSource(["one", "two", "three", *[PAUSE] * 100_000]))
        texts.map("parse", parse, on_error="dead_letter").sink("out", VecSink())

    backend = FsspecBackend(tmp_path, job="texts")
    handle = SingleThreadRuntime(build_dataflow, backend, listeners=[Monitor()]).start()
    try:
        wait_until(lambda: handle.progress.counts.get("parse", {}).get("letters") == 3)
        handle.snapshot().result(60)
        first, _, third = (it.id for it in dead_letters(backend))
        for place_or_job in ("texts", str(tmp_path / "texts")):
            listed = [json.loads(it) for it in malflow("errors", "ls", place_or_job, "--json").out.splitlines()]
            assert [(it["operator"], it["value"]) for it in listed] == [
                ("parse", it) for it in ("'one'", "'two'", "'three'")
            ]
        limited = malflow("errors", "ls", "texts", "--limit", 1)
        assert limited.out.splitlines()[1].split()[:2] == ["parse", first]
        assert "2 more; --limit shows them" in limited.err
        assert malflow("errors", "ls", "texts", "--match", "thr").out.count("parse") == 1
        assert malflow("errors", "ls", "texts", "--operator", "two").code == 2
        shown = malflow("errors", "show", "texts", third)
        assert shown.code == 0
        assert "value 'three'" in shown.out
        assert "invalid literal for int()" in shown.out
        assert __file__ in shown.out, "with the user's lines"
        assert json.loads(malflow("errors", "show", "texts", third, "--json").out)["id"] == third
        assert malflow("errors", "show", "texts", "0-0-0").code == 6
        assert malflow("errors", "ls", "texts", "--at", 1).code == 2
        unknown = malflow("errors", "ls", "texst")
        assert unknown.code == 6
        assert "no folder 'texst', and no run has the job" in unknown.err
        done = malflow("errors", "rm", "texts", "parse", "--id", third)
        assert (done.code, done.out) == (0, "1 dead letter of operator 'parse' removed\n")
        mended.append(True)
        replayed = json.loads(malflow("errors", "replay", "texts", "parse", "--json").out)
        assert (replayed["kind"], replayed["do"], replayed["done"]) == ("letters_done", "replay", 2)
        handle.snapshot().result(60)
        assert [(it.value, it.attempts) for it in dead_letters(backend)] == [("two", 2)]
        unknown = malflow("errors", "replay", "texts", "pasre")
        assert (unknown.code, unknown.out) == (2, "")
    finally:
        handle.stop()
        handle.await_termination(60)
    assert malflow("errors", "replay", "texts", "parse").code == 11


@pytest.mark.parametrize("runtime", [SingleThreadRuntime, pytest.param(MultiProcessRuntime, id="processes")])
def test_states_of_a_run_that_lives(place: Path, malflow: Malflow, runtime: Any) -> None:
    with monitored(numbers(), runtime, parallelism=2):
        job = client.live_runs()[0].file.run
        wait_until(lambda: malflow("state", "get", "count", "1", "--live", job).out.strip().isdigit())
        listed = malflow("state", "ls", "--live", job)
        assert [line.split()[0] for line in listed.out.splitlines()] == ["operator", "count"]
        assert "as of tick" in listed.err
        keys = malflow("state", "keys", "count", "--values", "--live", job, "--json").out.splitlines()
        assert json.loads(keys[0])["kind"] == "value"
        assert malflow("state", "get", "count", "none", "--live", job).code == 6
        assert malflow("state", "get", "step", "1", "--live", job).code == 2
        assert malflow("state", "get", "count", "1", "kept", "--live", job).code == 2
        assert malflow("state", "get", "count", "1").code == 2
