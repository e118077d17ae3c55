"""The types of states read from snapshots; checked by mypy, not run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

from malflow import SingleThreadRuntime
from malflow.reading import export_state, read_windows
from malflow.snapshot import FsspecBackend, StateChange, copy_snapshot, diff_state, read_state
from malflow.windows import WindowResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def read(backend: FsspecBackend, build_dataflow: Any) -> None:
    assert_type(read_state(backend, "sum"), Iterator[tuple[Any, Any]])
    assert_type(read_state(backend, "sum", at=NOW), Iterator[tuple[Any, Any]])
    assert_type(read_state(backend, "sum", key="a", at=3, default=None), Any)
    assert_type(diff_state(backend, "sum", 3, NOW), Iterator[StateChange])
    assert_type(copy_snapshot(backend, 3, to=backend), int)
    assert_type(export_state(backend, "sum", "sums.parquet", row=lambda key, state: {key: state}), int)
    windows = read_windows(build_dataflow, backend, "days", unit="day")
    assert_type(windows, Iterator[tuple[Any, WindowResult[Any, Any]]])


def restore(build_dataflow: Any) -> None:
    SingleThreadRuntime(build_dataflow, restore=NOW)
    SingleThreadRuntime.builder().restore(NOW)
