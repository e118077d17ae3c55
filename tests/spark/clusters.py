"""The driver of a cluster in a process of its own, and the processes of the cluster."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from malflow import MissingDependency
from malflow.runtime.spark.session.session import _check_java, check_spark
from tests.kit.spark_session import INTERPRETED, QUICK_JAVA

__all__ = ["CLUSTER", "SECONDS", "Driver", "need_spark", "users_environment"]

CLUSTER = "local-cluster[2,1,1024]"
SECONDS = 300
_ROOT = Path(__file__).parents[2]


def need_spark() -> None:
    """Skip the test where there is no pyspark or no Java."""
    try:
        check_spark()
        _check_java()
    except MissingDependency as error:
        pytest.skip(str(error))


def users_environment(folder: Path) -> dict[str, str]:
    """Return a user's environment, but with a Java that starts faster; a folder gets settings for short queries."""
    settings = {**INTERPRETED, "spark.executor.extraJavaOptions": QUICK_JAVA}
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    java = {"SPARK_SUBMIT_OPTS": QUICK_JAVA, "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
    return {**environment, **java, "SPARK_CONF_DIR": str(folder / "conf")}


class Driver:
    """A driver, which can be asked for runs, one after the other.

    Args:
        folder: where Spark has its files.
        master: what it is a driver of.
        program: the module of the driver.
        environment: more of the environment.
    """

    def __init__(
        self, folder: Path, master: str = CLUSTER, *, program: str = "tests.spark.programs.cluster", **environment: str
    ) -> None:
        self.local, self.work = folder / "local", folder / "work"
        for name in ("local", "work", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        places = {"SPARK_WORKER_DIR": str(folder / "work"), "TMPDIR": str(folder / "tmp")}
        self._said = b""
        self._errors = folder / "errors"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", program, str(folder), master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                start_new_session=True,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **places, **environment},
            )

    def __enter__(self) -> Driver:
        self.answer()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and all that it has started."""
        for pid in [self.process.pid, *self.processes("")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=SECONDS)

    def ask(self, do: str, **how: Any) -> dict[str, Any]:
        """Run a command in the process and return its result."""
        self.tell(do, **how)
        return self.answer()

    def tell(self, do: str, **how: Any) -> None:
        """Send a command without waiting for its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **how}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for an answer."""
        stream = self.process.stdout
        assert stream is not None
        deadline = time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._said:
                assert selector.select(deadline - time.monotonic()), f"no answer within {SECONDS} seconds"
                data = os.read(stream.fileno(), 1 << 16)
                assert data, f"it ended: {self._errors.read_text(errors='replace')[-3000:]}"
                self._said += data
        line, _, self._said = self._said.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, **options: Any) -> dict[str, Any]:
        """Run to the end."""
        self.ask("start", **options)
        return self.wait()

    def wait(self) -> dict[str, Any]:
        """Wait for the end of the run."""
        answer = self.ask("wait", seconds=SECONDS - 10)
        assert answer["ended"], answer
        return answer

    def executors(self) -> list[int]:
        """Find the executors."""
        return self.processes("CoarseGrainedExecutorBackend")

    def processes(self, word: str) -> list[int]:
        """Find the processes that it has started whose command has a word."""
        return [pid for pid in _numbers(Path("/proc")) if self._is_own(pid, word)]

    def _is_own(self, pid: int, word: str) -> bool:
        try:
            return os.getsid(pid) == self.process.pid and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False


def _numbers(folder: Path) -> list[int]:
    return [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()]
