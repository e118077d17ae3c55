"""A process of another version of malflow, whose measurements alternate with those of this version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "other_version", "serve"]

ROOT = Path(__file__).parents[2]

Measure = Callable[..., Any]


@contextmanager
def other_version(script: str, folder: Path) -> Iterator[Measure]:
    """Yield a function that runs the measurement of a script in a process of another version.

    Args:
        script: the file, which calls `serve`.
        folder: a checkout of that version.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "benchmarks")])}
    command = [sys.executable, str(Path(script).resolve())]
    place = {"env": environment, "cwd": folder}  # Spark's processes look for modules in this folder first
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, **place) as child:  # noqa: S603 - itself
        asks: Any = child.stdin
        answers: Any = child.stdout

        def measure(*arguments: Any) -> Any:
            print(json.dumps(arguments), file=asks, flush=True)
            return json.loads(answers.readline())

        try:
            yield measure
        finally:
            asks.close()


def serve(measure: Measure) -> None:
    """Answer each line of standard input, a list of arguments, with a measurement."""
    for line in sys.stdin:
        print(json.dumps(measure(*json.loads(line))), flush=True)
