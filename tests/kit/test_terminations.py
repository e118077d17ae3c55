"""Tests that are ended by a signal which a run in their process takes for a stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SENDS = """
import os, signal, time
from malflow import SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource

def counted(send):
    def pass_by(value):
        if value == 1:
            send()
        return value

    out = VecSink()
    source = ScriptedSource([1, PAUSE, 2])
    SingleThreadRuntime(lambda it: it.new_stream().source("n", source).map("m", pass_by).sink("out", out)).execute()
    return out.values

def in_a_child():
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

def test_a():
    assert counted(in_a_child) == [1, 2]

def test_b():
    assert counted(lambda: os.killpg(0, signal.SIGTERM)) == [1, 2]

def test_c():
    assert counted(lambda: None) == [1, 2]
"""


@pytest.mark.slow
def test_a_sigterm_that_stops_a_run_ends_the_tests_and_is_named(tmp_path: Path) -> None:
    """As ``timeout`` sends it: the failed test says why, and a child that is forked may get its own."""
    (tmp_path / "test_sends.py").write_text(SENDS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.kit.terminations", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    said, _ = process.communicate(timeout=120)
    assert "SIGTERM has come from outside" in said
    assert "1 failed, 1 passed" in said
