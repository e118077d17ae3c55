"""A scratch folder that is full: the run fails with the cure, loses nothing, and continues exactly once with room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.errors import StoreError
from malflow.graph import Graph
from malflow.runtime.spark import sinks as seal_task
from malflow.runtime.spark.settings import Settings
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory, kept_states
from tests.kit.counted_files import JsonFiles, read_json_files
from tests.kit.disks import make_room, small_disk
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytest.importorskip("pyspark")

PARTS = {"a": range(8), "b": range(8, 16)}
KEYS = 3
NO_SPACE = "No space left on device; free some space"

pytestmark = pytest.mark.fault("I30")


def number_of(_key: Any, value: int, seen: int) -> tuple[tuple[int, int], int]:
    return (value, seen), seen + 1


def program_of(folder: Path, size: int) -> Program:
    """Return a program whose records are wide after the exchange only, so that pieces are what takes space."""
    graph = Graph()
    script = {part: [it for number in numbers for it in (number, PAUSE)] for part, numbers in PARTS.items()}
    numbers = StreamProvider(graph).new_stream().source("numbers", ScriptedSource(script))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS).stateful_map("count", number_of, default=int)
    wide = keyed.map("widen", lambda it: {"n": it[0], "nth": it[1], "wide": token_hex(size)})
    wide.sink("out", JsonFiles(str(folder)))
    return compile_graph(graph)


def assert_once(folder: Path) -> None:
    rows = read_json_files(folder)
    assert sorted(row["n"] for row in rows) == [*range(16)]
    counts = sorted((row["n"] % KEYS, row["nth"]) for row in rows)
    assert counts == sorted((number % KEYS, number // KEYS) for number in range(16))


@contextmanager
def settings_on(disk: Path, backend: Any) -> Iterator[Settings]:
    with simulated():
        yield settings_at(str(disk), backend)


def test_a_scratch_folder_that_pieces_fill(tmp_path: Path) -> None:
    backend = in_memory()
    with small_disk(tmp_path / "scratch", 400) as disk:
        with (
            settings_on(disk, backend) as settings,
            pytest.raises(StoreError, match=rf"'{disk}/runs/run-0/sinks/\S+' could not be written: {NO_SPACE}"),
        ):
            Cluster([Plan(), Plan(asks=True)]).run(program_of(tmp_path / "out", 40_000), settings, 2)
        assert read_json_files(tmp_path / "out"), "a snapshot had some of the records"
        make_room(disk)
        with settings_on(disk, backend) as settings:
            Cluster([]).run(program_of(tmp_path / "out", 40_000), settings, 2)
        assert not [path for path in disk.rglob("*") if path.is_file()]
    assert_once(tmp_path / "out")


def test_a_scratch_folder_that_is_full_while_a_share_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share needs no room there, so its snapshot is durable; the next tick fails."""
    backend = in_memory()
    with small_disk(tmp_path / "scratch", 400) as disk:
        monkeypatch.setattr(seal_task, "failpoint", filling(disk))
        with settings_on(disk, backend) as settings, pytest.raises(StoreError, match=f"'{disk}/runs/.*{NO_SPACE}"):
            Cluster([Plan(), Plan(asks=True)]).run(program_of(tmp_path / "out", 100), settings, 2)
        assert (disk / "others").stat().st_size, "it was full while a share was sealed"
        assert 0 < sum(kept_states(backend, "count").values()) < 16, "the snapshot is durable"
        make_room(disk)
        with settings_on(disk, backend) as settings:
            Cluster([]).run(program_of(tmp_path / "out", 100), settings, 2)
    assert_once(tmp_path / "out")


def filling(disk: Path) -> Callable[[str], None]:
    """Return a failpoint at which another program takes all that a disk has left."""

    def fill(_name: str) -> None:
        with suppress(OSError), (disk / "others").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(1024))

    return fill
