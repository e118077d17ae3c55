"""Scripts as users have them: each a process of its own, with a session that malflow makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from malflow.snapshot import FsspecBackend, snapshots
from tests.kept import kept_states
from tests.spark.clusters import SECONDS, poll

pytestmark = pytest.mark.spark

HEAD = """
import sys
from dataclasses import dataclass
from datetime import timedelta

from malflow import SparkRuntime
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource

backend = FsspecBackend(sys.argv[1], job="totals")
"""

CLASSES = f"""{HEAD}
@dataclass(frozen=True)
class Key:
    parity: int

    def __stable_key__(self):
        return self.parity


@dataclass
class Total:
    sum: int = 0


def add(key, value, total):
    return (key.parity, total.sum + value), Total(total.sum + value)


def build(provider):
    numbers = provider.new_stream().source("numbers", ScriptedSource({{"a": list(range(int(sys.argv[2])))}}))
    keyed = numbers.key_distribute("parity", lambda msg: Key(msg.value % 2))
    keyed.stateful_map("total", add, default=Total).sink("out", StdOutSink())


if __name__ == "__main__":
    SparkRuntime(build, backend, parallelism=2).execute()
    print("done")
"""

ENDLESS = f"""{HEAD}
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition


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
        return 1, self.at

    def snapshot(self):
        return self.at

    def is_finished(self):
        return False


def build(provider):
    keyed = provider.new_stream().source("numbers", StatefulSource(Numbers())).key_distribute("one", lambda msg: 1)
    keyed.stateful_map("count", lambda key, one, count: (None, count + one), default=int)


if __name__ == "__main__":
    SparkRuntime(build, backend, timedelta(seconds=0.2), parallelism=1, max_records_per_tick=100).execute()
    print("went on")
"""


def started(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script the way a user does, with a folder for all that is temporary."""
    script = folder / "flow.py"
    script.write_text(text, encoding="utf-8")
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / "state"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=SECONDS)
    return process.returncode, out, errors


def totals_below(first: int, size: int) -> list[str]:
    sums, lines = [0, 0], []
    for number in range(size):
        sums[number % 2] += number
        if number >= first:
            parity, total = number % 2, sums[number % 2]
            lines.append(f"{{ key: Key(parity={parity}), value: ({parity}, {total}), timestamp: {number} }}")
    return sorted(lines)


def test_a_script_with_classes_of_its_own_goes_on_where_it_was_and_says_its_own_words_only(tmp_path: Path) -> None:
    for first, size in ((0, 30), (30, 50)):
        code, out, errors = ended(started(tmp_path, CLASSES, str(size)))
        assert (code, errors) == (0, "")
        *lines, done = out.splitlines()
        assert done == "done"
        assert sorted(lines) == totals_below(first, size)
    assert [*(tmp_path / "tmp").glob("malflow-*")] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_tick_and_keeps_its_state(number: signal.Signals, tmp_path: Path) -> None:
    backend: Any = FsspecBackend(str(tmp_path / "state"), job="totals")
    process = started(tmp_path, ENDLESS)
    poll(lambda: process.poll() is not None or len([*snapshots(backend)]) > 1)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)  # as a terminal does
    assert ended(process) == (0, "went on\n", "")
    count = kept_states(backend, "count")[1]
    assert count > 0
    assert kept_states(backend, "numbers") == {"all": count}
    assert [*(tmp_path / "tmp").glob("malflow-*")] == []


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
        (None, r"Spark needs Java 17 or later, and there is none on the PATH; install one (apt install openjdk-17"),
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
