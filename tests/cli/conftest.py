"""Commands in this process: quick, and with everything put back that a script changes."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from malflow.cli import main
from malflow.cli.output.documents import KEYS

ROOT = Path(__file__).parents[2]

HEAD = """
from malflow import MultiProcessRuntime, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

def build_dataflow(provider: StreamProvider) -> None:
    words = provider.new_stream().source("words", SingleIteratorSource(["a", "b", "a"]))
    keyed = words.key_distribute("word", lambda msg: msg.value)
    counts = keyed.stateful_map("count", lambda _word, _value, count: (count + 1, count + 1), default=int)
    counts.sink("out", StdOutSink(formatter=lambda msg: f"{msg.key}{msg.value}"))

"""
"""The beginning of a script that counts words."""


@dataclass(frozen=True)
class Done:
    """What a command has written, and its exit code."""

    code: int
    out: str
    err: str


Malflow = Callable[..., Done]
Script = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Write a script into the current folder, which is a new one."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "flow.py", head: str = HEAD) -> Path:
        Path(name).write_text(head + dedent(text), encoding="utf-8")
        return Path(name)

    return write


@pytest.fixture
def malflow(capfd: pytest.CaptureFixture[str]) -> Iterator[Malflow]:
    """Run a command in this process."""
    main_module, arguments, path = sys.modules["__main__"], sys.argv, [*sys.path]
    modules, paths = set(sys.modules), os.environ.get("PYTHONPATH")
    hook, handlers = threading.excepthook, [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)]
    log = logging.getLogger("malflow")
    loggers, level = [*log.handlers], log.level

    def run(*given: Any) -> Done:
        capfd.readouterr()
        code = main([*map(str, given)])
        written = capfd.readouterr()
        log.handlers[:] = loggers
        log.setLevel(level)
        if "--json" in given:
            check_documents(written.out)
            check_documents(written.err)
        return Done(code, written.out, written.err)

    yield run
    sys.modules["__main__"], sys.argv, sys.path[:] = main_module, arguments, path
    for name in set(sys.modules) - modules:
        if name == "flow" or name.startswith("flows"):
            del sys.modules[name]
    if paths is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = paths

    assert threading.excepthook is hook
    assert [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)] == handlers


def check_documents(text: str) -> None:
    """Check that each line is text of the script or a document with the keys of its kind."""
    for line in text.splitlines():
        if line.startswith('{"malflow"'):
            found = json.loads(line)
            assert found.keys() == {"malflow", "kind", *KEYS[found["kind"]]}


def process(*arguments: Any, wait: float = 60, python: tuple[str, ...] = (), **options: Any) -> Done:
    """Run a command as a process of its own."""
    command = [sys.executable, *python, "-m", "malflow", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=wait, check=False, env=environment(), **options
    )
    return Done(done.returncode, done.stdout, done.stderr)


def environment() -> dict[str, str]:
    """Return the environment of a process that imports this malflow."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@pytest.fixture(autouse=True)
def without_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs from leaving files by which others find them."""
    monkeypatch.setenv("MALFLOW_CONTROL", "0")
