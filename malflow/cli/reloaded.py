"""The child of ``malflow run --reload``: over a socket, its parent tells it to write, to take a snapshot or to stop.

It is a socket, not a signal, since Ctrl-C reaches both processes, and a second signal would end the run without a
snapshot. The socket also closes when the parent dies, so no run stays alive without it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Final

from malflow.cli.narrator import LiveRuns
from malflow.cli.output import Output
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

    Attributes:
        is_closed: whether the parent wants the process to end.
    """

    def __init__(self, descriptor: int | None, runs: LiveRuns, output: Output) -> None:
        self._descriptor = descriptor
        self._runs = runs
        self._output = output
        self.is_closed = False

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within the context, a thread handles the requests of the parent."""
        if self._descriptor is not None:
            os.set_inheritable(self._descriptor, False)
            threading.Thread(target=self._follow, args=(self._descriptor,), name="malflow-reload", daemon=True).start()
        yield

    def _follow(self, descriptor: int) -> None:
        with suppress(OSError), socket.socket(fileno=descriptor) as end, end.makefile("rb") as lines:
            for line in lines:
                self._do(json.loads(line), end)
        self.is_closed = True
        time.sleep(_PATIENCE)
        if self._runs.are_alive:
            self._runs.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def _do(self, request: Mapping[str, str], end: socket.socket) -> None:
        if request["do"] == "say":
            self._output.warn(request["text"])
            return
        for run in self._runs.alive:
            with suppress(MalflowError, CancelledError, TimeoutError):  # the run says so, or has no state
                run.snapshot().result(SNAPSHOT_SECONDS)
        end.sendall(b"done\n")
