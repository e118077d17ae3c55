"""Programs in processes of their own, which are killed or suspended at a point, and run again.

A program is a module for ``python -m``. Its points are the failpoints of malflow, and those that it adds itself by
subclasses that call `malflow.store.failpoint.failpoint`; ``point:3`` is the third pass of one. Its job runs by
`tests.kit.running.run_job`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.spark_session import QUICK_JAVA
from tests.kit.waiting import wait_until

__all__ = [
    "DRIVER_POINTS",
    "POINTS",
    "kill_child",
    "parked",
    "run_child",
    "start_child",
    "wake",
]

POINTS = [
    "before-prepare",
    "prepared",
    "data-written",
    "before-manifest",
    "manifest-written",
    "before-commit",
    "committed",
]
"""The points of the engine from the end of a transaction to the next, in order."""

DRIVER_POINTS = [point for point in POINTS if point != "data-written"]
"""Those that a driver on Spark passes; its workers write the data."""

SECONDS = 300
_ROOT = Path(__file__).parents[2]


def start_child(program: str, *arguments: object, point: str = "") -> subprocess.Popen[str]:
    """Start a program.

    Args:
        program: its module.
        arguments: what it is given.
        point: where it is killed, or with ``:stop`` behind the number of the pass, suspended.
    """
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", program, *map(str, arguments)],
        cwd=_ROOT,
        env={
            **os.environ,
            "MALFLOW_FAILPOINT": point,
            "PYTHONDONTWRITEBYTECODE": "1",
            "SPARK_SUBMIT_OPTS": QUICK_JAVA,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_child(program: str, *arguments: object) -> None:
    """Run a program to its end."""
    code, errors = _run(program, *arguments)
    assert code == 0, errors


def kill_child(program: str, *arguments: object, point: str) -> None:
    """Run a program until it is killed at a point."""
    code, errors = _run(program, *arguments, point=point)
    assert code == -signal.SIGKILL, f"it was not killed at {point}: {errors}"


@contextmanager
def parked(program: str, *arguments: object, point: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until it is suspended at a point; it is killed at the end of the block."""
    with start_child(program, *arguments, point=f"{point}:stop" if ":" in point else f"{point}:1:stop") as child:
        try:
            wait_until(lambda: _has_changed(child.pid), SECONDS)
            if _has_changed(child.pid) != os.CLD_STOPPED:
                raise AssertionError(f"it ended before {point}: {child.communicate(timeout=SECONDS)}")
            yield child
        finally:
            child.kill()


def wake(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Continue a suspended program; return its exit code and what it wrote of errors."""
    child.send_signal(signal.SIGCONT)
    _, errors = child.communicate(timeout=SECONDS)
    return child.returncode, errors


def _run(program: str, *arguments: object, point: str = "") -> tuple[int, str]:
    with start_child(program, *arguments, point=point) as child:
        try:
            _, errors = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
    return child.returncode, errors


def _has_changed(pid: int) -> int:
    """Return how a child has stopped or ended, a code of `os`; 0 while it runs."""
    options = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    changed = os.waitid(os.P_PID, pid, options)
    return 0 if changed is None else changed.si_code
