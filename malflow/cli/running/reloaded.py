"""The child of ``malflow run --reload``: over a socket, its parent tells it to begin, write, take a snapshot or stop.

It loads the script and waits at its first `execute()`, since the run before it may not have stopped yet. The parent
uses a socket, no signal, since Ctrl-C reaches both processes, and a second signal would end the run without a snapshot.
The socket also closes when the parent dies, so no run stays alive without it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Final

from malflow.cli.output.narrator import LiveRuns
from malflow.cli.output.output import Output
from malflow.errors import MalflowError

__all__ = ["SNAPSHOT_SECONDS", "Parent"]

SNAPSHOT_SECONDS: Final = 30.0
"""The longest wait for a snapshot; after it, a new program is checked without one."""
_PATIENCE: Final = 0.5
"""The seconds for a signal that was sent to both processes to be handled first."""


class Parent:
    """The parent process at the other end of a socket, if there is one.

    Args:
        descriptor: the socket; None without a parent.
        runs: the live runs.
        output: how to write.
        draws: says whether a live view is drawn from now on.

    Attributes:
        is_closed: whether the parent wants the process to end.
    """

    def __init__(self, descriptor: int | None, runs: LiveRuns, output: Output, draws: Callable[[bool], object]) -> None:
        self._descriptor = descriptor
        self._runs = runs
        self._output = output
        self._draws = draws
        self._end: socket.socket | None = None
        self._may_begin = threading.Event()
        self.is_closed = False

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within the context, a thread handles the requests of the parent."""
        if self._descriptor is not None:
            os.set_inheritable(self._descriptor, False)
            self._end = socket.socket(fileno=self._descriptor)
            threading.Thread(target=self._follow, args=(self._end,), name="malflow-reload", daemon=True).start()
        yield

    def wait_to_begin(self) -> None:
        """Report to the parent that the script is loaded, and wait until it lets the first run begin.

        Raises:
            SystemExit: if the parent or a signal wants the process to end instead.
        """
        if self._end is None or self._may_begin.is_set():
            return
        try:
            with suppress(OSError):
                self._end.sendall(b"ready\n")
            self._may_begin.wait()
        except KeyboardInterrupt:
            self.is_closed = True
        if self.is_closed:
            raise SystemExit(0)

    def _follow(self, end: socket.socket) -> None:
        with suppress(OSError), end, end.makefile("rb") as lines:
            for line in lines:
                self._do(json.loads(line), end)
        self.is_closed = True
        self._may_begin.set()
        time.sleep(_PATIENCE)
        if self._runs.are_alive:
            self._runs.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def _do(self, request: Mapping[str, str], end: socket.socket) -> None:
        match request["do"]:
            case "go":
                self._may_begin.set()
            case "say":
                self._output.warn(request["text"])
            case "draw" | "still":
                self._draws(request["do"] == "draw")
            case _:
                end.sendall(b"kept\n" if self._has_kept() else b"none\n")

    def _has_kept(self) -> bool:
        """Take a snapshot of each live run; return whether there is one of each."""
        kept = []
        for run in self._runs.alive:
            try:
                run.snapshot().result(SNAPSHOT_SECONDS)
                kept.append(True)
            except (MalflowError, CancelledError, TimeoutError):  # the run says so, or has no state
                kept.append(False)
        return bool(kept) and all(kept)
