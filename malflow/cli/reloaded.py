"""The child of ``malflow run --reload``: its parent's end of a pipe says when to stop, and what to write.

The pipe, and not a signal, since Ctrl-C reaches both: a second signal would end the run without a snapshot. The death
of the parent closes it, too, so that no run is left behind.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from malflow.cli.narrator import LiveRuns
from malflow.cli.output import Output

__all__ = ["ParentPipe"]

_PATIENCE: Final = 0.5
"""Seconds in which a signal that was sent to both is handled first."""


class ParentPipe:
    """The end of the pipe to the parent; None reads nothing.

    Args:
        descriptor: the end that is read.
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
        """Within the context, a thread does what the parent says."""
        if self._descriptor is not None:
            os.set_inheritable(self._descriptor, False)
            threading.Thread(target=self._follow, args=(self._descriptor,), name="malflow-reload", daemon=True).start()
        yield

    def _follow(self, descriptor: int) -> None:
        try:
            with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._output.warn(line.rstrip("\n"))
        except OSError:
            pass
        self.is_closed = True
        time.sleep(_PATIENCE)
        if self._runs.are_alive:
            self._runs.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
