"""Launching of worker processes by a new interpreter each, as multiprocessing's ``spawn`` does.

The script that starts a run is not imported again, so it needs no ``if __name__ == "__main__"``: its functions and
classes travel with the program.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["flags_of_interpreter", "spawn"]

_PROGRAM = """
import json, sys
sys.path[:], numbers = json.loads(sys.argv[1])
from malflow.runtime.processes.worker_process import main
main(*numbers)
"""


def spawn(descriptors: Sequence[int], peers: int) -> subprocess.Popen[bytes]:
    """Launch a worker process.

    Args:
        descriptors: the file descriptors that its `main` takes.
        peers: the number of other worker processes.

    Raises:
        OSError: if it can't be launched.
    """
    arguments = json.dumps(([*map(str, sys.path)], [*descriptors, peers]))
    command = [sys.executable, *flags_of_interpreter(), "-c", _PROGRAM, arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)  # noqa: S603 - our own program


def flags_of_interpreter() -> list[str]:
    """Return the options of this interpreter, such as ``-W error`` and ``-O``."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags
