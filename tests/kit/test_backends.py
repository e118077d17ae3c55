"""The content of snapshots, read beside a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import SnapshotIncomplete
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, restore
from malflow.testing import ScriptedSource
from tests.kit import backends
from tests.kit.backends import in_memory, kept_states


def add_up(backend: FsspecBackend, numbers: Iterable[int]) -> None:
    def build(provider: StreamProvider) -> None:
        read = provider.new_stream().source("numbers", ScriptedSource(numbers)).key_distribute("key", lambda _: "all")
        read.stateful_map("sum", lambda _, value, total: (0, value + total), int).sink("out", VecSink())

    SingleThreadRuntime(build, backend).execute()


def deletes(backend: FsspecBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Continue the job after a snapshot was chosen, so that its file is deleted before it is read."""
    usual = restore.load

    def load(*arguments: Any) -> Any:
        monkeypatch.setattr(backends, "load", usual)
        for size in range(2, 7):
            add_up(backend, range(size))
        return usual(*arguments)

    monkeypatch.setattr(backends, "load", load)


def test_a_snapshot_that_a_run_deletes_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = in_memory(retain=1, growth=0.01)
    add_up(backend, range(1))
    deletes(backend, monkeypatch)
    assert kept_states(backend, "sum") == {"all": 15}


@pytest.mark.damages_snapshots("its file is deleted")
def test_a_snapshot_with_a_missing_file_is_refused() -> None:
    backend = in_memory()
    add_up(backend, range(3))
    store = backend.manifest_log().store
    for name in store.list("d/"):
        store.delete(name)
    with pytest.raises(SnapshotIncomplete, match="is missing"):
        kept_states(backend, "sum")
