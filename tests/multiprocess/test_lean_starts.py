"""Worker processes at their start: what they import, and what the coordinator does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, SnapshotError, StreamProvider, agg
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session
from malflow.sources import SingleIteratorSource
from malflow.states.kinds import StateSpec
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import ROOT
from tests.multiprocess.runs import BOTH, processes, run_map

pytestmark = pytest.mark.slow

UNUSED = (
    "malflow.cli malflow.config malflow.connectors malflow.drawing malflow.graph malflow.monitor malflow.runtime.spark "
    "malflow.runtime.coordination malflow.serve malflow.snapshot.protocol malflow.streams malflow.testing "
    "malflow.windows asyncio email fsspec multiprocessing pyspark subprocess tests tomllib"
)
MOST_MODULES = 100
"""The modules of malflow that a simple program needs in a worker process, and a few more."""


SCRIPT = """
import contextlib, sys, tomllib
import fsspec
from malflow import MultiProcessRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

with contextlib.suppress(ImportError):
    import pyspark
results = VecSink()

def modules(_):
    return " ".join(sys.modules)

def build(provider):
    provider.new_stream().source("one", SingleIteratorSource([1])).map("modules", modules).sink("out", results)

MultiProcessRuntime(build, processes=1).execute()
print(*sys.modules)
print(*results.values)
"""


class Mark:
    """An object that leaves a file with the number of each process that unpickles it."""

    def __init__(self, folder: Path, then: str = "None") -> None:
        folder.mkdir()
        self._made = f"__import__('pathlib').Path({str(folder)!r}, str(__import__('os').getpid())).touch() or {then}"

    def __reduce__(self) -> Any:
        return eval, (self._made,)


class LateStore(FsspecBackend):
    """A store that restores nothing until two worker processes have loaded their program.

    Args:
        path: where its snapshots are.
        marks: the folder of a `Mark` in the program.
        error: raised then.
    """

    def __init__(self, path: Path, marks: Path, error: Exception | None = None) -> None:
        super().__init__(str(path))
        self._marks = marks
        self._error = error

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        wait_until(lambda: len(marked(self._marks)) == 2, 60)
        if self._error is not None:
            raise self._error
        return super().open(states, start)


def marked(folder: Path) -> set[int]:
    """Return the other processes that have left a mark."""
    return {int(it.name) for it in folder.iterdir()} - {os.getpid()}


def runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_modules_that_a_simple_program_does_not_need() -> None:
    """The script has imported more than its program needs."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, cwd=ROOT)
    here, there = (set(line.split()) for line in done.stdout.splitlines())
    assert {"tomllib", "fsspec", "malflow.runtime.processes.runtime"} <= here
    assert "malflow.operators.stateless" in there
    assert {it for it in there if f"{it}.".startswith(tuple(f"{name}." for name in UNUSED.split()))} == set()
    assert sum(it.startswith("malflow") for it in there) <= MOST_MODULES


def test_modules_of_another_program() -> None:
    """The list above is not only true because modules are hidden."""
    results = VecSink[Any, Any, Any]()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("values", SingleIteratorSource([1]))
        keyed = stream.key_distribute("key", lambda msg: msg.value)
        keyed.aggregate("sum", agg.sum()).map("modules", lambda _: [*sys.modules]).sink("out", results)

    processes(build, processes=1, start_method="spawn").execute()
    assert "malflow.aggregators.sums" in results.values[0]


@pytest.mark.parametrize("method", BOTH)
def test_a_program_is_loaded_while_the_snapshot_is_read(tmp_path: Path, method: str) -> None:
    mark: Any = Mark(tmp_path / "marks")
    store = LateStore(tmp_path / "store", tmp_path / "marks")
    found = run_map(lambda value: value + (mark or 1), [1, 2], persistence=store, start_method=method)
    assert sorted(found) == [2, 3]


@pytest.mark.parametrize("method", BOTH)
def test_a_snapshot_that_cannot_be_read_ends_the_processes(tmp_path: Path, method: str) -> None:
    mark = Mark(tmp_path / "marks")
    store = LateStore(tmp_path / "store", tmp_path / "marks", SnapshotError("the store is on fire"))
    with pytest.raises(SnapshotError, match="on fire"):
        run_map(lambda value: (value, mark), persistence=store, start_method=method)
    assert [pid for pid in marked(tmp_path / "marks") if runs(pid)] == []


def test_a_program_that_cannot_be_loaded_is_the_later_error(tmp_path: Path) -> None:
    mark = Mark(tmp_path / "marks", then="1 / 0")
    store = LateStore(tmp_path / "store", tmp_path / "marks")
    with pytest.raises(GraphError, match="can't be read by a worker process: ZeroDivisionError"):
        run_map(lambda value: (value, mark), persistence=store)
    burning = LateStore(tmp_path / "other", tmp_path / "marks", SnapshotError("the store is on fire"))
    for old in marked(tmp_path / "marks"):
        (tmp_path / "marks" / str(old)).unlink()
    with pytest.raises(SnapshotError, match="on fire"):
        run_map(lambda value: (value, mark), persistence=burning)
    assert [pid for pid in marked(tmp_path / "marks") if runs(pid)] == []
