"""The death of Java: the error says so, all requests are answered, and the next process continues."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, SparkRuntime
from malflow.snapshot import fsck
from tests.kit.nights import only_nightly
from tests.spark.clusters import SECONDS, need_spark, users_environment
from tests.spark.flows import backend_at, expected_sums, kept_sums, sums
from tests.spark.programs.java import SIZE

pytestmark = pytest.mark.spark

GONE = re.compile(r"the Java of this Spark session is gone: .* the last snapshot is intact: run the program again")


def started(folder: Path, whose: str, when: str) -> subprocess.Popen[str]:
    need_spark()
    (folder / "tmp").mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.programs.java", str(folder), whose, when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**users_environment(folder), "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a program says of its end, which no traceback of PySpark's or of a thread accompanies."""
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    return said


def kill_java(_group: int, java: int) -> None:
    os.kill(java, signal.SIGKILL)


def end_group(group: int, _java: int) -> None:
    os.killpg(group, signal.SIGTERM)


def assert_told(end: dict[str, Any], whose: str) -> None:
    """Check that the run that Java left and the next one in its process say so, and nobody is left waiting."""
    for kind, text in (end["error"], end["again"]):
        assert kind == "RunFailed"
        assert GONE.match(text) or "in a new process" in text
    assert GONE.match(end["error"][1])
    assert ("without spark=" in end["error"][1]) == (whose == "users")
    assert not end["asks"]
    assert set(end["answers"]) <= {"NoneType", "CancelledError", "RunFailed", "SnapshotError"}


@pytest.mark.fault("I19")
@pytest.mark.parametrize(
    ("whose", "end"),
    [
        pytest.param("ours", kill_java, id="ours"),
        pytest.param("users", kill_java, id="users", marks=only_nightly),
        pytest.param("users", end_group, id="group", marks=only_nightly),
    ],
)
@pytest.mark.nightly
def test_a_run_whose_java_dies(tmp_path: Path, whose: str, end: Callable[[int, int], None]) -> None:
    with started(tmp_path, whose, "goes on") as process:
        assert process.stdout is not None
        end(process.pid, json.loads(process.stdout.readline())["java"])
        assert_told(told(process), whose)
    assert [*(tmp_path / "tmp").glob("malflow-*")] == []
    backend = backend_at(tmp_path)
    assert 0 < sum(kept_sums(backend).values()) < sum(expected_sums(SIZE).values())
    SingleThreadRuntime(sums(SIZE), backend).execute()
    assert kept_sums(backend) == expected_sums(SIZE)
    assert fsck(backend).problems == ()


@pytest.mark.fault("I19")
@pytest.mark.nightly
def test_a_run_whose_java_dies_at_its_start(spark: Any, tmp_path: Path) -> None:
    with started(tmp_path, "users", "starts") as process:
        assert_told(told(process), "users")
    assert [*(tmp_path / "tmp").glob("malflow-*")] == []
    backend = backend_at(tmp_path)
    SparkRuntime(sums(100), backend, parallelism=2, spark=spark).execute()
    assert kept_sums(backend) == expected_sums(100)


KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from malflow import SparkRuntime
from malflow.events import SnapshotCommitted
from tests.spark.flows import backend_at, sums
from tests.spark.programs.java import java

class Deadly:
    def on_event(self, event):
        if isinstance(event, SnapshotCommitted):
            os.kill(java(), signal.SIGKILL)

backend = backend_at(Path(sys.argv[1]))
SparkRuntime(sums(4_000), backend, timedelta(seconds=0.2), 2, max_records_per_tick=60, listeners=[Deadly()]).execute()
"""


@pytest.mark.fault("I19")
@pytest.mark.nightly
def test_the_error_of_a_run_whose_java_dies_is_all_that_is_written(tmp_path: Path) -> None:
    need_spark()
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=users_environment(tmp_path),
        cwd=Path(__file__).parents[2],
        timeout=SECONDS,
    )
    traceback, *frames, error = run.stderr.splitlines()
    assert traceback == "Traceback (most recent call last):"
    assert GONE.search(error)
    assert len(frames) < 30, run.stderr
    assert not [line for line in frames if not line.startswith("  ")]


@pytest.mark.fault("I19")
@pytest.mark.nightly
def test_a_session_whose_java_ends_at_once(tmp_path: Path) -> None:
    need_spark()
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    environment = {name: value for name, value in users_environment(tmp_path).items() if name != "JAVA_HOME"}
    run = subprocess.run(
        [sys.executable, "-c", "from malflow import SparkRuntime\nSparkRuntime(lambda provider: None).execute()"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PATH": f"{tmp_path}:{environment['PATH']}"},
        timeout=SECONDS,
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("malflow.errors.RunFailed: Spark could not create a session: ")
