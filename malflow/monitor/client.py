"""Finding the runs of this user on this machine, and asking them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from malflow.monitor.documents import LONGEST_ANSWER, Document, as_json
from malflow.monitor.run_files import RunFile, found_runs, socket_of

__all__ = [
    "AmbiguousRun",
    "FoundRun",
    "NoAnswer",
    "NoSuchRun",
    "Refused",
    "ask",
    "find",
    "has_ended",
    "live_runs",
    "recent_runs",
    "summary",
]

_SECONDS: Final = 5.0
"""The seconds to wait for an answer; a run answers on a thread of its own, so only a hung or overloaded one takes
longer. Half of it gives up on loaded machines, double makes a hung run hold up a command."""

_CONNECT_SECONDS: Final = 0.5
"""The seconds to wait for a connection; the system makes it even if the run is busy. A longer wait delays lists of runs
at each dead one."""


class NoSuchRun(Exception):
    """No run has that name, or none runs; exit code 11."""


class AmbiguousRun(Exception):
    """Several runs have that name; exit code 2."""


class NoAnswer(Exception):
    """The run did not answer; exit code 11."""


class Refused(Exception):
    """The run answered with an error.

    Attributes:
        error: its facts: ``kind``, ``message``, ``operator``, ``key`` and ``location``.
    """

    def __init__(self, error: Document) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that was found.

    Attributes:
        file: the content of its file.
        folder: where that is.
    """

    file: RunFile
    folder: Path

    @property
    def is_ended(self) -> bool:
        """Whether it has ended."""
        return self.file.ended is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether its process is in another container or on another machine; it may then be gone."""
        process = self.file.process
        return process is None or not process.is_here

    @property
    def socket(self) -> Path:
        """The path of its control socket."""
        return socket_of(self.folder, self.file.run)

    def __str__(self) -> str:
        return f"{self.file.name!r} (run {self.file.run}, pid {self.file.pid})"


def recent_runs() -> list[FoundRun]:
    """Return the runs of this user on this machine that run or ended within an hour, the oldest first."""
    return [FoundRun(content, folder) for folder, content in found_runs()]


def live_runs() -> list[FoundRun]:
    """Return those that run."""
    return [run for run in recent_runs() if not run.is_ended]


def find(name: str | None) -> FoundRun:
    """Return the run with a name.

    Args:
        name: its job, its pid, or the beginning of its id; None if there is only one.

    Raises:
        NoSuchRun: if no run has that name.
        AmbiguousRun: if there are several.
    """
    runs = live_runs()
    matching = runs if name is None else _matching(name, runs)
    if not matching:
        there = f"; there {'is' if len(runs) == 1 else 'are'} {', '.join(map(str, runs))}" if runs else "; none runs"
        wanted = "no run" if name is None else f"no run has the job, pid or id {name!r}"
        raise NoSuchRun(f"{wanted}{there}. Runs are found that were started by malflow run, or with a Monitor()")
    if len(matching) > 1:
        wanted = "several runs are" if name is None else f"{name!r} names several runs, which are"
        raise AmbiguousRun(f"{wanted} {', '.join(map(str, matching))}; name one by its id or pid")
    return matching[0]


def _matching(name: str, runs: Sequence[FoundRun]) -> list[FoundRun]:
    """Return the runs with a name, by the first kind of name that any has."""
    by_job = [run for run in runs if name in (run.file.job, run.file.name)]
    by_pid = [run for run in runs if str(run.file.pid) == name]
    by_id = [run for run in runs if name and run.file.run.startswith(name)]
    return by_job or by_pid or by_id


def ask(run: FoundRun, do: str, *, patience: float = _SECONDS, **arguments: Any) -> Document:
    """Return the answer of a run.

    Args:
        run: the run.
        do: the word, such as ``progress``.
        patience: the seconds to wait for the answer, beyond the timeout among the arguments.
        arguments: the arguments of the request; those that are None are left out.

    Raises:
        NoAnswer: if it does not answer.
        Refused: if it answers with an error.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    deadline = time.monotonic() + patience + float(given.get("timeout", 0))
    line = _exchanged(run, as_json({"malflow": 1, "do": do, **given}), deadline)
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("kind"), str):
        raise NoAnswer(f"{run} answered with something else than a document")
    if answer["kind"] == "error" and isinstance(answer.get("error"), dict):
        raise Refused(answer["error"])
    return answer


def _exchanged(run: FoundRun, request: bytes, deadline: float) -> bytes:
    try:
        with _connected(run.socket) as end:
            with suppress(BrokenPipeError):  # it may have answered before it has read everything
                end.sendall(request)
            return b"".join(_received(end, deadline))
    except (OSError, ValueError) as error:
        where = " It may be in another container." if run.is_elsewhere else ""
        raise NoAnswer(f"{run} does not answer: {error or type(error).__name__}.{where}") from error


@contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(_CONNECT_SECONDS)
        end.connect(str(path))
        end.settimeout(_SECONDS)
        yield end


def _received(end: socket.socket, deadline: float) -> Iterator[bytes]:
    """Yield the bytes of a line.

    Raises:
        OSError: if it does not arrive in time.
        ValueError: if it is too long, or has no end.
    """
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        end.settimeout(left)
        got = end.recv(1 << 16)
        size += len(got)
        if not got:
            raise ValueError("it closed the connection")
        if size > LONGEST_ANSWER:
            raise ValueError("its answer is too long")
        yield got
        if got.endswith(b"\n"):
            return


def has_ended(run: FoundRun) -> bool:
    """Whether a run has ended since it was found."""
    return not any(it.file.run == run.file.run for it in live_runs())


def summary(run: FoundRun) -> Document:
    """Return a run's row in a list: the content of its file, and its progress if it answers.

    Its ``status`` is ``silent`` if it does not answer, and ``unknown`` if it is elsewhere besides.
    """
    file = run.file
    content: Document = {
        "run": file.run,
        "job": file.job,
        "name": file.name,
        "runtime": file.runtime,
        "pid": file.pid,
        "started": file.started,
        "ended": file.ended,
        "status": file.status,
        "script": file.script,
        "page": file.page,
        "tick": None,
        "parallelism": None,
        "polled_per_second": None,
        "snapshot": None,
    }
    if run.is_ended:
        return content
    try:
        progress = ask(run, "progress")
    except (NoAnswer, Refused):
        return {**content, "status": "unknown" if run.is_elsewhere else "silent"}
    shared = ("status", "tick", "parallelism", "polled_per_second", "snapshot")
    return {**content, **{name: progress.get(name) for name in shared}}
