"""Examples that read the format, ask a run, and write a store and a sink of their own: run, and held to the suites."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from examples.own_store import TableStore
from examples.sink_for_workers import JsonFiles, read
from malflow.testing import assert_sink, assert_store


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    importlib.import_module(f"examples.{name}").main()
    return capsys.readouterr().out.splitlines()


def test_read_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("read_snapshot", capsys) == ["{'once': 2, 'upon': 1, 'a': 1, 'time': 1}"]


def test_ask_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert printed("ask_a_run", capsys) == ["default single ['numbers', 'seen']", "accepted", "ended"]


def test_own_store(capsys: pytest.CaptureFixture[str]) -> None:
    *counts, keys = printed("own_store", capsys)
    assert counts[-1] == "{ key: 'once', value: 2, timestamp: 4 }"
    assert keys == "[4]"


@pytest.mark.slow
def test_own_store_keeps_the_laws(tmp_path: Path) -> None:
    assert_store(lambda: TableStore(tmp_path / "laws.db"), pages=100, without=["pickled"])  # only Spark needs pickles


def test_sink_for_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("sink_for_workers", capsys) == ["[{'n': 0}, {'n': 1}, {'n': 2}, {'n': 3}]"]


@pytest.mark.slow
def test_sink_for_workers_keeps_the_laws(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert_sink(lambda: JsonFiles(out), lambda: read(out))
