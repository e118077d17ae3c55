"""A run whose Java is going to die; it prints the outcome as JSON.

``python -m tests.spark.programs.java FOLDER WHOSE WHEN``: the session is "ours" or the "users"; Java dies when the run
"goes on", which is for the test to see to, or when it "starts". See `tests.spark.test_java`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import RestartPolicy, SparkRuntime
from malflow.errors import SnapshotError
from malflow.snapshot.persistence import RestoredState, Session
from tests.kit.spark_session import started_session
from tests.spark.flows import backend_at, sums

SIZE = 4_000
_SECONDS = 60


def java() -> int:
    """Return the process of this one's Java."""
    from pyspark import SparkContext  # noqa: PLC0415 - only the extra has it

    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


class Deadly:
    """A persistence that kills Java when it is opened."""

    is_enabled = True

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def open(self, *how: Any) -> tuple[Session, RestoredState | None]:
        """Open it, and kill Java."""
        os.kill(java(), signal.SIGKILL)
        opened: tuple[Session, RestoredState | None] = self.backend.open(*how)
        return opened


def ask(runtime: SparkRuntime, answers: list[Future[Any]]) -> None:
    """Ask for one thing after the other, until the run has ended."""
    is_told = False
    with suppress(SnapshotError):
        for number in range(10**6):
            time.sleep(0.05)
            progress = None if runtime._slot.last is None else runtime._slot.last.progress
            if progress is not None:
                answers.append(runtime.rescale(number % 2 + 2) if number in (0, 60) else runtime.snapshot())
            if progress is not None and progress.snapshot and progress.tick > 5 and not is_told:
                is_told = True
                print(json.dumps({"java": java()}), flush=True)


def raised(call: Callable[[], object]) -> list[str]:
    """Call something, and return what it raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is told
        return [type(error).__name__, str(error)]
    return []


def ended(answer: Future[Any]) -> str:
    """Return the outcome of a future."""
    try:
        return type(answer.exception(_SECONDS)).__name__
    except CancelledError:
        return "CancelledError"


def main() -> None:
    folder, whose, when = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = started_session(folder / "warehouse") if whose == "users" else None
    backend = backend_at(folder)
    runtime = SparkRuntime(
        sums(SIZE),
        backend if when == "goes on" else Deadly(backend),
        timedelta(seconds=0.2),
        2,
        spark=spark,
        max_records_per_tick=60,
        restart=RestartPolicy(2, timedelta(milliseconds=1)),
    )
    answers: list[Future[Any]] = []
    asking = threading.Thread(target=_asking, args=(runtime, answers), daemon=True)
    asking.start()
    error = raised(runtime.execute)
    asking.join(_SECONDS)
    print(
        json.dumps(
            {
                "error": error,
                "asks": asking.is_alive(),
                "answers": [ended(answer) for answer in answers],
                "again": raised(runtime.execute),
            }
        ),
        flush=True,
    )


def _asking(runtime: SparkRuntime, answers: list[Future[Any]]) -> None:
    while runtime._slot.last is None:
        time.sleep(0.01)
    ask(runtime, answers)


if __name__ == "__main__":
    main()
