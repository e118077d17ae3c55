"""The time of a plan, and the bytes that it reads, by the number of keys in the snapshot."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tables import print_table

from malflow import SingleThreadRuntime, StreamProvider
from malflow.runtime.building import built
from malflow.runtime.options import RunOptions
from malflow.runtime.start_plan import planned
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.store.contract import Store
from malflow.store.local import LocalStore

__all__ = ["print_plan"]

_KEYS = (1_000, 100_000, 1_000_000)
_SCRIPT = """
from malflow import SingleThreadRuntime
from malflow.sources import SingleIteratorSource

def build_dataflow(provider):
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([]))
    counts = numbers.key_distribute("number", lambda msg: msg.value)
    counts.stateful_map("count", lambda key, value, count: (count + 1, count + 1), default=int)

SingleThreadRuntime(build_dataflow).execute()
"""


class _CountingStore:
    """A store that counts reads and their bytes."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self.reads = 0
        self.bytes = 0

    def get(self, key: str, limit: int) -> bytes:
        data = self._store.get(key, limit)
        self.reads += 1
        self.bytes += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def print_plan(rounds: int, records: int) -> None:
    """Print the table for at most this many keys."""
    rows = [row for keys in _KEYS if keys <= records for row in _rows(keys, rounds)]
    print("\nA plan of a job on one worker, for four: seconds, medians, and its reads of the store; the command is a")
    print("process of its own, measured in processor seconds\n")
    print_table(("keys", "mode", "seconds", "reads", "bytes"), rows)


def _rows(keys: int, rounds: int) -> Iterator[Sequence[str]]:
    with tempfile.TemporaryDirectory() as folder:
        store = _CountingStore(LocalStore(Path(folder) / "default", durable=False))
        backend = FsspecBackend(store=_as_store(store), allow_unsigned_pickle=True)
        SingleThreadRuntime(_flow(keys), persistence=backend).execute()
        for deep in (False, True):
            times, counted = [], 0
            for _ in range(1 if deep else rounds):
                store.reads = store.bytes = 0
                start = time.perf_counter()
                plan = planned(built(_flow(keys)), RunOptions(persistence=backend, parallelism=4), deep=deep)
                times.append(time.perf_counter() - start)
                counted = sum(it.entry.keys for it in plan.states if it.entry is not None and it.name == "count")
            if counted != keys:
                raise AssertionError(f"the plan has {counted} keys")
            yield f"{keys:,}", "--deep" if deep else "plain", *_facts(times), f"{store.reads}", f"{store.bytes:,}"
        script = Path(folder) / "flow.py"
        script.write_text(_SCRIPT)
        command = [sys.executable, "-m", "malflow", "plan", str(script), "--persistence", folder, "--parallelism", "4"]
        times = [_seconds(command) for _ in range(rounds)]
        yield f"{keys:,}", "malflow plan", *_facts(times), "", ""


def _facts(times: list[float]) -> tuple[str]:
    print(times, flush=True)
    return (f"{median(times):.3f}",)


def _seconds(command: list[str]) -> float:
    """Return the processor time of a process, in seconds."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - this package's own command
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _as_store(store: Any) -> Store:
    return store  # type: ignore[no-any-return] # it passes everything on


def _flow(keys: int) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(keys)))
        named = numbers.key_distribute("number", _number)
        named.stateful_map("count", _counted, default=int)

    return build_dataflow


def _number(msg: Any) -> int:
    return int(msg.value)


def _counted(_key: int, _value: int, count: int) -> tuple[int, int]:
    return count + 1, count + 1
