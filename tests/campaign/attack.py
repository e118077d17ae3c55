"""Processes that are killed, or stopped for a while, at random moments."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["Attack", "Beside", "descendants", "pause", "python_workers"]

_DAEMON = b"pyspark.worker"


class Beside(ABC):
    """Work of a thread beside a block, until the block ends."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _work(self) -> None:
        """Work until `_over` is set."""


class Attack(Beside):
    """A thread that attacks processes until the block ends; stopped processes then continue.

    Args:
        rng: decides when, who and how.
        victims: lists the processes there are now.
        every: how many seconds there are between two deeds, about.
        kills: how many are killed at most; about as many are stopped for up to two seconds.
    """

    def __init__(self, rng: random.Random, victims: Callable[[], list[int]], *, every: float, kills: int) -> None:
        super().__init__()
        self.done: Counter[str] = Counter()
        self._rng, self._victims, self._every, self._kills = rng, victims, every, kills

    def _work(self) -> None:
        while not self._over.wait(self._rng.uniform(0.2, 1.8) * self._every):
            victims = self._victims()
            if not victims:
                continue
            victim = self._rng.choice(victims)
            if self.done["killed"] < self._kills and self._rng.random() < 0.5:
                self._send(victim, signal.SIGKILL, "killed")
            elif self.done["stopped"] < self._kills + 3:
                self._send(victim, signal.SIGSTOP, "stopped")
                self._over.wait(self._rng.uniform(0.05, 2))
                self._send(victim, signal.SIGCONT, "continued")

    def _send(self, victim: int, signum: int, what: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(victim, signum)
            self.done[what] += 1


def pause(victim: int, seconds: float) -> None:
    """Stop a process for some seconds."""
    os.kill(victim, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(victim, signal.SIGCONT)


def python_workers(top: int | None = None) -> list[int]:
    """List the processes of Python that a process has for Spark's tasks, by default this one."""
    parents = dict(_parents())
    own = [pid for pid in descendants(top) if _DAEMON in _command(pid)]
    return [pid for pid in own if parents.get(pid) in own]


def descendants(top: int | None = None) -> list[int]:
    """List the processes that a process has started, and those that these have, and so on."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    new = [os.getpid() if top is None else top]
    while new:
        new = [child for pid in new for child in children.get(pid, [])]
        found += new
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                yield int(entry.name), int(status.rpartition(")")[2].split()[1])


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
