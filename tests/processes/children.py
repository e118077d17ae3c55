"""Child processes that count, how they end, and what must hold whatever happened to them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from malflow.snapshot import FsspecBackend, fsck, snapshots
from tests.kit.backends import kept, kept_states
from tests.kit.interrupts import heed_signals
from tests.processes.programs.counting import Options, Program, key_of, parts_of

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.processes.programs.counting"
DEADLINE = 120.0


class Child:
    """A counting process."""

    def __init__(self, folder: Path, options: Options, *, under: Sequence[str] = (), **environment: str) -> None:
        folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [*under, sys.executable, "-W", "error", "-m", PROGRAM, str(folder), json.dumps(asdict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            preexec_fn=heed_signals,  # noqa: PLW1509 - it only sets signals
        )
        self.pid = self.process.pid
        self.said: list[str] = []

    def wait_for(self, word: str) -> None:
        """Wait until it has said something."""
        stream = self.process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            deadline = time.monotonic() + DEADLINE
            while word not in self.said:
                assert selector.select(deadline - time.monotonic()), f"no '{word}' within {DEADLINE} seconds"
                text = os.read(stream.fileno(), 4096).decode()
                assert text, f"it ended without '{word}': {self.process.communicate(timeout=DEADLINE)}"
                self.said.extend(text.splitlines())

    def tell(self) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code, and what it said of errors."""
        output, errors = self.process.communicate(timeout=DEADLINE)
        self.said.extend((output or b"").decode().splitlines())
        return self.process.returncode, (errors or b"").decode()


@contextmanager
def child(folder: Path, options: Options, **more: Any) -> Iterator[Child]:
    """Start a counting process; it does not outlive the test."""
    started = Child(folder, options, **more)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # and what it forked
        started.process.communicate(timeout=DEADLINE)


def run(folder: Path, options: Options, **more: Any) -> tuple[int, str]:
    """Run a counting process to its end."""
    with child(folder, options, **more) as started:
        return started.end()


def finish(folder: Path, size: int = 100, *, every: float = 0, parallelism: int = 3, drawn: int = 0) -> None:
    """Continue with the count in this process, to its end."""
    folder.mkdir(exist_ok=True)
    every = 0.1 if every == 0 and size > Options.size else every
    Program(folder, Options(size=size, drawn=drawn, parallelism=parallelism, every=every)).runtime.execute()


def backend_of(folder: Path) -> FsspecBackend:
    """Return the backend of the counting program, to read from."""
    return FsspecBackend(str(folder / "state"), job="counting")


def newest(folder: Path) -> int:
    """Return the id of the newest snapshot, 0 if there is none."""
    return max((snapshot.id for snapshot in snapshots(backend_of(folder))), default=0)


def counted(folder: Path) -> int:
    """Return how many numbers the newest snapshot has counted."""
    return sum(count for count, _ in kept_states(backend_of(folder), "total").values())


def emitted(folder: Path) -> list[tuple[str, int, int]]:
    """Return the running totals that were written, in order."""
    file = folder / "totals.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def assert_exact(folder: Path, size: int = 100, *, outputs: bool = True, drawn: int = 0) -> None:
    """Check that every number was counted once, that each total was written once, and that all files are whole."""
    backend = backend_of(folder)
    totals: dict[str, list[int]] = defaultdict(list)
    for rows in parts_of(size, drawn).values():
        for number in range(rows):
            totals[key_of(number)].append(number)
    due = {key: (len(numbers), sum(numbers)) for key, numbers in totals.items()}
    held = kept_states(backend, "total")
    differ = {key: (held.get(key), due.get(key)) for key in held.keys() | due.keys() if held.get(key) != due.get(key)}
    assert not differ, f"{differ} held and due, where the parts are at {kept(backend).states['numbers']}"
    if outputs:
        counts = sorted((key, count) for key, count, _ in emitted(folder))
        assert counts == sorted((key, n) for key, numbers in totals.items() for n in range(1, len(numbers) + 1))
    report = fsck(backend)
    assert report.problems == ()
    assert report.snapshots


def assert_plausible(folder: Path) -> None:
    """Check that the newest snapshot is a state that an undisturbed run has between two ticks.

    The three parts are read independently, so that its sums are checked against where the source stood.
    """
    backend = backend_of(folder)
    seen: dict[str, list[int]] = defaultdict(list)
    for positions in kept(backend).states["numbers"].values():
        for position in positions.values():
            for number in range(position - position // 11):  # each eleventh item is a pause
                seen[key_of(number)].append(number)
    assert kept_states(backend, "total") == {key: (len(numbers), sum(numbers)) for key, numbers in seen.items()}
