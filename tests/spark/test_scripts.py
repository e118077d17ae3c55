"""Users' scripts, each in a process of its own with a session that malflow creates."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from malflow.snapshot import FsspecBackend, snapshots
from tests.kit.waiting import wait_until
from tests.spark.clusters import SECONDS, users_environment

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from dataclasses import dataclass
from datetime import timedelta

from malflow import SparkRuntime
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition


@dataclass(frozen=True)
class Key:
    parity: int

    def __stable_key__(self):
        return self.parity


@dataclass(slots=True)
class Total:
    count: int = 0


class Numbers(StatefulSourceImpl):
    def list_parts(self):
        return ["all"]

    def build_part(self, part, state):
        return Part(state or 0)


class Part(StatefulSourcePartition):
    def __init__(self, at):
        self.at = at

    def poll(self):
        self.at += 1
        return self.at, self.at

    def snapshot(self):
        return self.at

    def is_finished(self):
        return False


def add(key, number, total):
    return None, Total(total.count + 1)


def build(provider):
    numbers = provider.new_stream().source("numbers", StatefulSource(Numbers()))
    numbers.key_distribute("parity", lambda msg: Key(msg.value % 2)).stateful_map("total", add, default=Total)


class Conf:
    setting = None

    def on_event(self, event):
        from pyspark import SparkContext

        self.setting = SparkContext._active_spark_context.getConf().get("spark.flow.setting")


if __name__ == "__main__":
    backend, conf = FsspecBackend(sys.argv[1], job="totals"), Conf()
    print("begins", flush=True)
    SparkRuntime(
        build,
        backend,
        timedelta(seconds=0.2),
        parallelism=2,
        max_records_per_tick=100,
        conf={"spark.flow.setting": "mine"},
        listeners=[conf],
    ).execute()
    print("went on with", conf.setting)
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """Start the script the way a user does, with a folder for all that is temporary."""
    script = folder / "flow.py"
    script.write_text(SCRIPT, encoding="utf-8")
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / "state")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**users_environment(folder), "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    )


COUNTS = """
import sys

import flow
from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states

backend = FsspecBackend(sys.argv[1], job="totals")
print(sum(total.count for total in kept_states(backend, "total").values()), kept_states(backend, "numbers")["all"])
"""


def counted(folder: Path) -> int:
    """Return the total count, read in a process that has imported the script."""
    command = [sys.executable, "-c", COUNTS, str(folder / "state")]
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    out = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}, timeout=SECONDS
    ).stdout
    counts, position = map(int, out.split())
    assert counts == position
    return counts


@pytest.mark.fault("I19")
@pytest.mark.nightly
def test_script_with_own_classes_stops_at_a_signal_and_resumes_quietly(
    tmp_path: Path,
) -> None:
    backend = FsspecBackend(str(tmp_path / "state"), job="totals")
    before, so_far = 0, 0
    for number in (signal.SIGTERM, signal.SIGINT):
        process = started(tmp_path)
        wait_until(lambda: process.poll() is not None or len([*snapshots(backend)]) > before + 1)  # noqa: B023 - at once
        os.killpg(process.pid, number)  # as a terminal does, timeout, and many a scheduler
        out, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, out) == (0, "begins\nwent on with mine\n")
        expected = ("stopping: ", "1 part of source 'numbers' feeds 2 workers")  # the first one if the tick is long
        (told,) = [it for it in errors.splitlines() if not it.startswith(expected)]
        assert told.startswith("operator 'total' keeps objects of class Key, which is defined in the script that runs")
        assert counted(tmp_path) > so_far
        assert [*(tmp_path / "tmp").glob("malflow-*")] == []
        before, so_far = len([*snapshots(backend)]), counted(tmp_path)


def java(folder: Path, version: str) -> str:
    """Make a Java of some version, as far as it tells."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program.parent)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, r"Spark needs Java 17 or later; there is none on the PATH; install it (apt install openjdk-17"),
        ("1.8.0_392", "Spark needs Java 17 or later; '{java}' is Java 8; set JAVA_HOME"),
        ("11.0.21", "Spark needs Java 17 or later; '{java}' is Java 11; set JAVA_HOME"),
    ],
)
def test_a_java_that_is_missing_or_too_old_is_named(version: str | None, message: str, tmp_path: Path) -> None:
    path = str(tmp_path) if version is None else java(tmp_path, version)
    script = "from malflow import SparkRuntime\nSparkRuntime(lambda provider: None).execute()"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PATH": path},
        timeout=SECONDS,
    )
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith(f"malflow.errors.MissingDependency: {message.format(java=Path(path, 'java'))}")
