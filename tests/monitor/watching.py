"""Monitored runs in a thread, and raw connections to their sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until

__all__ = ["connected", "line_of", "monitored", "numbers"]


def numbers(step: Callable[[int], int] = lambda number: number) -> Callable[[StreamProvider], None]:
    """Return a dataflow that counts for longer than a test takes, by last digit."""

    def build_dataflow(provider: StreamProvider) -> None:
        counting = provider.new_stream().source("numbers", ScriptedSource([1, PAUSE, 2, PAUSE] * 20_000))
        digits = counting.map("step", step).key_distribute("digit", lambda msg: msg.value % 10)
        digits.stateful_map("count", lambda _key, _value, state: (state + 1, state + 1), default=int).sink(
            "out", VecSink()
        )

    return build_dataflow


@contextmanager
def monitored(
    build: Callable[[StreamProvider], object], kind: Any = SingleThreadRuntime, **options: Any
) -> Iterator[Any]:
    """Within the context, a run is watched by a monitor; at the end it is stopped.

    Args:
        build: builds the dataflow.
        kind: the runtime.
        options: its options.

    Yields:
        The handle of the run.
    """
    monitor = Monitor()
    handle = kind(build, listeners=[monitor], **options).start()
    try:
        wait_until(lambda: monitor.watch is not None and handle.progress.tick > 0)
        yield handle
    finally:
        handle.stop()
        handle.await_termination(120)
        wait_until(lambda: not [it for it in threading.enumerate() if it.name.startswith("malflow-control")])


@contextmanager
def connected(path: Path, seconds: float = 30) -> Iterator[socket.socket]:
    """Within the context, a connection to a socket."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(seconds)
        end.connect(str(path))
        yield end


def line_of(end: socket.socket) -> Any:
    """Return the document of an answer; None without one."""
    received = b""
    try:
        while got := end.recv(1 << 16):
            received += got
    except ConnectionResetError:
        pass
    return json.loads(received) if received else None
