"""A standalone cluster of Spark on this machine: a master, and workers that can be killed and come back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.campaign.attack import descendants
from tests.kit.spark_session import QUICK_JAVA
from tests.kit.waiting import wait_until
from tests.servers.server import free_ports

__all__ = ["Standalone"]

_HOST = "127.0.0.1"


class Standalone:
    """A master and workers of one core each.

    Args:
        folder: where they keep their files.
        workers: how many workers there are.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._port = free_ports(1)
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """What a driver connects to."""
        return f"spark://{_HOST}:{self._port}"

    def __enter__(self) -> Standalone:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._master = self._java("master.Master", "--port", str(self._port))
        wait_until(lambda: b"I have been elected leader" in self._log("master.Master"), 60)
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self._workers, *([] if self._master is None else [self._master])]:
            for pid in [process.pid, *descendants(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait()

    def workers(self) -> list[int]:
        """Return the workers that are alive; a killed one takes its executors with it."""
        return [worker.pid for worker in self._workers if worker.poll() is None]

    def executors(self) -> list[int]:
        """Return what the workers have started for drivers."""
        return self._started(b"CoarseGrainedExecutorBackend")

    def processes(self) -> list[int]:
        """Return the processes of Python that run tasks."""
        return self._started(b"pyspark.worker") or self._started(b"pyspark.daemon") or self._started(b"spark_daemon")

    def go_on(self) -> None:
        """Start as many workers as are missing."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < self._count:
            place = ("--work-dir", str(self._folder / "work"), "--cores", "1", "--memory", "1g")
            self._workers.append(self._java("worker.Worker", *place, self.address))

    def _started(self, word: bytes) -> list[int]:
        found = []
        for pid in [pid for worker in self.workers() for pid in descendants(worker)]:
            with suppress(OSError):
                if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = str(Path(pyspark.__file__).parent)
        java: Sequence[str] = ["java", *QUICK_JAVA.split(), "-Xmx256m", "-cp", f"{home}/jars/*"]
        own = ("--host", _HOST, "--webui-port", "0")
        with (self._folder / name).open("ab") as log:
            return subprocess.Popen(
                [*java, f"org.apache.spark.deploy.{name}", *own, *arguments],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13"},
            )

    def _log(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()
