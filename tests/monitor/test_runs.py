"""Runs are watched and steered through their sockets; also the files that they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, MultiProcessRuntime, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor, client
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.kit.killing import start_child
from tests.kit.waiting import wait_until
from tests.monitor.watching import connected, line_of, monitored, numbers

pytestmark = pytest.mark.slow

PROGRAM = "tests.monitor.programs.watched"


def refused(run: client.FoundRun, do: str, **arguments: Any) -> dict[str, Any]:
    """Return the error that a run answers with."""
    with pytest.raises(client.Refused) as answered:
        client.ask(run, do, **arguments)
    return answered.value.error


def on_spark(*arguments: Any, **options: Any) -> SparkRuntime:
    """Return a runtime on the active session of Spark."""
    return SparkRuntime(*arguments, **options)


def steered(kind: Any, tmp_path: Path) -> None:
    """See and steer a run to its end."""
    with monitored(numbers(), kind, parallelism=2, persistence=FsspecBackend(tmp_path, job="digits")) as handle:
        run = client.find("digits")
        assert client.find(str(os.getpid())) == client.find(run.file.run[:6]) == run
        assert client.find(None).file.runtime == handle.runtime
        wait_until(lambda: client.ask(run, "progress")["polled_per_second"])
        progress = client.ask(run, "progress")
        assert progress["status"] in ("running", "resting")
        assert [(it["name"], it["is"]) for it in progress["operators"]] == [
            ("numbers", "source"),
            ("step", "operator"),
            ("digit", "operator"),
            ("count", "operator"),
            ("out", "sink"),
        ]
        taken = client.ask(run, "snapshot")
        assert (taken["kind"], taken["snapshot"]) == ("done", handle.progress.snapshot)
        if kind is not on_spark:  # where it takes seconds
            assert client.ask(run, "rescale", parallelism=3)["kind"] == "done"
            assert handle.progress.parallelism == 3
        assert client.ask(run, "time")["rows"] == []
        assert client.ask(run, "why", operator="count")["cause"] in ("flows", "silent_source")
        events = client.ask(run, "events")["events"]
        assert [it["event"] for it in events if it["event"] not in ("snapshot_committed", "rescaled")] == [
            "run_started"
        ]
        assert client.ask(run, "events", after=events[-1]["number"])["events"] == []
        assert client.ask(run, "history")["operators"][0]["name"] == "numbers"
        assert client.ask(run, "stop")["kind"] == "accepted"
        handle.await_termination(120)
    [ended] = client.recent_runs()
    assert (ended.file.run, ended.file.status, ended.is_ended) == (run.file.run, "ended", True)
    assert not ended.socket.exists()
    assert client.has_ended(run)
    with pytest.raises(client.NoAnswer, match="does not answer"):
        client.ask(run, "progress")


def test_see_and_steer_a_run(place: Path, tmp_path: Path) -> None:
    steered(SingleThreadRuntime, tmp_path)


@pytest.mark.slow
def test_see_and_steer_processes(place: Path, tmp_path: Path) -> None:
    steered(MultiProcessRuntime, tmp_path)


@pytest.mark.spark
def test_see_and_steer_a_run_on_spark(place: Path, tmp_path: Path, spark: Any) -> None:
    steered(on_spark, tmp_path)


def test_progress_and_requests_during_a_long_tick(place: Path) -> None:
    begun, free = threading.Event(), threading.Event()

    def step(number: int) -> int:
        begun.set()
        free.wait(60)
        return number

    monitor = Monitor()
    handle = SingleThreadRuntime(numbers(step), listeners=[monitor]).start()
    assert begun.wait(60)
    run = client.find(None)
    assert client.ask(run, "progress")["tick"] == 0
    assert client.ask(run, "rescale", parallelism=2, timeout=0)["kind"] == "accepted"
    assert refused(run, "time", timeout=0.05)["kind"] == "Timeout"
    assert client.ask(run, "why", timeout=0.05)["cause"] == "long_tick"
    assert client.ask(run, "stop")["kind"] == "accepted"
    assert client.ask(run, "progress")["status"] == "stopping"
    assert not free.is_set(), "all of these were answered within one tick"
    free.set()
    handle.await_termination(60)


def test_requests_that_a_run_refuses(place: Path) -> None:
    with monitored(numbers()):
        run = client.find(None)
        assert "needs a persistence" in refused(run, "snapshot")["message"]
        assert refused(run, "why", operator="coutn")["kind"] == "UnknownOperator"
        assert refused(run, "replay")["message"] == "replay needs operator"
        assert refused(run, "discard", operator="coutn")["kind"] == "UnknownOperator"
        assert "a list of ids" in refused(run, "replay", operator="out", ids="a")["message"]
        assert "did you mean" in refused(run, "rescal")["message"]


@pytest.mark.fault("M8")
def test_a_run_ends_while_a_request_waits(place: Path) -> None:
    free = threading.Event()

    def step(number: int) -> int:
        free.wait(60)
        return number // 0

    handle = SingleThreadRuntime(numbers(step), listeners=[Monitor()]).start()
    wait_until(client.live_runs)
    run, answers = client.find(None), list[Any]()
    waits = threading.Thread(target=lambda: answers.append(refused(run, "rescale", parallelism=2)))
    waits.start()
    wait_until(lambda: handle._requests.mailbox.has_new)
    free.set()
    with pytest.raises(OperatorError, match="step"):
        handle.await_termination(60)
    waits.join(60)
    assert answers[0]["kind"] in ("RunEnded", "OperatorError")
    assert [it.file.status for it in client.recent_runs()] == ["failed"]


def test_a_run_that_fails_before_its_first_event(place: Path, tmp_path: Path) -> None:
    (tmp_path / "default").write_text("not a folder")
    with pytest.raises(Exception, match="default"):
        SingleThreadRuntime(numbers(), FsspecBackend(tmp_path), listeners=[Monitor()]).execute()
    wait_until(lambda: not client.live_runs())


@pytest.mark.fault("M6")
def test_a_run_continues_with_a_hundred_half_requests(place: Path) -> None:
    with monitored(numbers()) as handle, ExitStack() as stack:
        run = client.find(None)
        for _ in range(100):
            stack.enter_context(connected(run.socket)).sendall(b"{")
        tick = handle.progress.tick
        wait_until(lambda: handle.progress.tick > tick + 10)
        assert client.ask(run, "progress")["tick"] > tick


def test_one_monitor_watches_one_run_at_a_time(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with monitored(numbers()) as handle:
        [monitor] = [it for it in handle._requests.listeners._listeners if isinstance(it, Monitor)]
        three = SingleThreadRuntime(three_numbers, listeners=[monitor])
        three.execute()
        assert three.progress.records["out"] == 3
        assert "a Monitor() of its own" in caplog.text
        assert len(client.recent_runs()) == 1
    three.execute()
    assert [it.file.status for it in client.recent_runs()] == ["ended", "ended"]


def three_numbers(provider: StreamProvider) -> None:
    """Build a dataflow of three records."""
    provider.new_stream().source("numbers", SingleIteratorSource([1, 2, 3])).sink("out", VecSink())


def test_the_environment_asks_for_a_monitor(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wish in ("", "0"):
        monkeypatch.setenv("MALFLOW_CONTROL", wish)
        SingleThreadRuntime(three_numbers).execute()
        assert not place.exists()
        assert not [it for it in threading.enumerate() if it.name.startswith(("malflow-monitor", "malflow-control"))]
    monkeypatch.setenv("MALFLOW_CONTROL", "1")
    SingleThreadRuntime(three_numbers).execute()
    SingleThreadRuntime(three_numbers, listeners=[Monitor()]).execute()
    assert len(client.recent_runs()) == 2, "one for each run, also where it has one of its own"
    monkeypatch.setenv("MALFLOW_CONTROL", "yes")
    with pytest.raises(GraphError, match="must be 1 or 0; got 'yes'"):
        SingleThreadRuntime(three_numbers).execute()


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Within the context, a process of its own runs."""
    process = start_child(PROGRAM, *arguments)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.fault("M1")
def test_a_killed_run_is_not_listed_and_a_stopped_one_has_ended(place: Path, tmp_path: Path) -> None:
    with child("monitor") as killed, child("monitor", tmp_path) as stopped:
        assert {it.file.pid for it in client.live_runs()} == {killed.pid, stopped.pid}
        run = client.find(str(killed.pid))
        assert client.ask(run, "progress")["pid"] == killed.pid
        assert run.file.script is not None
        assert run.file.script.endswith("watched.py")
        killed.kill()
        killed.wait()
        assert [it.file.pid for it in client.live_runs()] == [stopped.pid]
        assert not run.socket.exists()
        with pytest.raises(client.NoSuchRun):
            client.find(run.file.run)
        client.ask(client.find("digits"), "stop")
        assert stopped.wait(60) == 0
        assert {it.file.pid: it.file.status for it in client.recent_runs()} == {
            killed.pid: "killed",
            stopped.pid: "ended",
        }
        assert FsspecBackend(tmp_path, job="digits").manifest_log().find() is not None


@pytest.mark.slow
@pytest.mark.fault("M7")
def test_a_forked_child_removes_nothing(place: Path) -> None:
    with child("forks") as process:
        run = client.find(None)
        wait_until(lambda: not _children_of(process.pid))
        assert client.ask(run, "progress")["pid"] == process.pid
        assert run.socket.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def _children_of(pid: int) -> bool:
    """Whether a process has children that run."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    states = [Path(f"/proc/{it}/stat").read_text().rpartition(")")[2].split()[0] for it in children]
    return any(state != "Z" for state in states)


@pytest.mark.slow
def test_a_run_whose_process_ends_before_it(place: Path) -> None:
    with child("left") as process:
        assert process.wait(60) == 0
        assert [it.file.status for it in client.recent_runs()] == ["abandoned"]


def test_a_summary_of_a_run_that_is_silent(place: Path) -> None:
    with monitored(numbers()):
        run = client.find(None)
        assert client.summary(run)["status"] == "running"
        run.socket.unlink()
        assert client.summary(run)["status"] == "silent"
    assert [client.summary(it)["status"] for it in client.recent_runs()] == ["ended"]


def test_the_socket_knows_who_asks(place: Path) -> None:
    with monitored(numbers()), connected(client.find(None).socket) as end:
        end.sendall(b'{"malflow": 1, "do": "progress"}\n')
        assert line_of(end)["kind"] == "progress"
