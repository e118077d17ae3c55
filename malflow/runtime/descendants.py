"""Processes that a script starts under a command: their calls are known, and run nothing if the command only looks.

An environment variable has the command and the path of a file. A process that inherits both adds a line to the file for
each call of `execute` or `start`. The file exists for as long as the command runs.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from malflow.errors import GraphError

__all__ = ["VARIABLE", "ChildCall", "Descendants", "may_run"]

VARIABLE: Final = "MALFLOW_COMMAND"
"""The environment variable: ``looks`` or ``runs``, the command's process, the path of the file, the command's words."""

_logger = logging.getLogger("malflow")
_commands: list[Descendants] = []  # of this process


class ChildCall(NamedTuple):
    """A call of `execute` or `start` in a process that the script started.

    Attributes:
        process: the process.
        call: the name of the method.
    """

    process: int
    call: str


class Descendants:
    """Learns of the calls in processes that the script of a command starts.

    Args:
        command: the command, such as ``malflow plan``.
        looks: whether it only looks; no such process then runs a dataflow.

    Attributes:
        command: the command.
    """

    def __init__(self, command: str, *, looks: bool) -> None:
        self.command = command
        self._looks = looks
        self._process = os.getpid()
        self._path: Path | None = None
        self._before_the_end: Sequence[ChildCall] | None = None

    @contextmanager
    def told(self) -> Iterator[None]:
        """Within the context, processes that are started here know the command.

        If the command runs, and itself runs below one that only looks, that one's wish remains.
        """
        before = os.environ.get(VARIABLE)
        if not self._looks and before is not None and before.startswith("looks:"):
            yield
            return
        file, path = tempfile.mkstemp(prefix="malflow-", suffix=".calls")
        os.close(file)
        self._path = Path(path)
        os.environ[VARIABLE] = f"{'looks' if self._looks else 'runs'}:{self._process}:{self._path}:{self.command}"
        _commands.append(self)
        try:
            yield
        finally:
            _commands.remove(self)
            if before is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = before
            self.close()

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the command, and not one that the script has forked."""
        return os.getpid() == self._process

    @property
    def calls(self) -> Sequence[ChildCall]:
        """The calls so far, in their order; after the end, those until then."""
        if self._path is None:
            return ()
        if self._before_the_end is not None:
            return self._before_the_end
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return [ChildCall(int(process), call) for process, _, call in (line.partition(" ") for line in lines)]

    def close(self) -> None:
        """Remove the file: a process that calls later learns that the command has ended."""
        if self._path is not None and self.is_here and self._before_the_end is None:
            self._before_the_end = self.calls
            self._path.unlink()


def may_run(call: str) -> bool:
    """Whether a call may run a dataflow here: not in a process that a script started under a command that only looks.

    Args:
        call: the method that was called. The command learns of it.

    Raises:
        GraphError: if the command that only looked has ended, and this process has outlived it.
    """
    told = os.environ.get(VARIABLE)
    if told is None or any(it.is_here for it in _commands):
        return True
    kind, _, rest = told.partition(":")
    process, _, rest = rest.partition(":")
    path, _, command = rest.rpartition(":")
    lives = _added(path, f"{os.getpid()} {call}\n")
    if kind != "looks":
        return True
    if not lives:
        raise GraphError(
            f"{call}() runs nothing in this process; it descends from a script that '{command}' (process {process}) "
            f"only looked at, and that command has ended; to run the dataflow, unset {VARIABLE} in the environment"
        )
    _logger.warning(
        "%s() is left out: this process was started by a script that '%s' only looks at (%s)", call, command, VARIABLE
    )
    return False


def _added(path: str, line: str) -> bool:
    """Add a line to the file of a command; return whether the command still runs."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    except OSError:  # of another user
        return True
    with os.fdopen(file, "wb") as there:
        there.write(line.encode())
    return True
