"""Servers that are frozen: their processes are suspended, and connections stay open without an answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.servers.server import Server
from tests.servers.watch import read_pid

__all__ = ["frozen"]


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Suspend all processes of a server inside."""
    found = read_pid(server.folder)
    assert found is not None
    suspended = [found[0]]
    os.kill(found[0], signal.SIGSTOP)
    for pid in server.processes(found[0]):
        if pid != found[0]:
            os.kill(pid, signal.SIGSTOP)
            suspended.append(pid)
    try:
        yield
    finally:
        for pid in suspended:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
