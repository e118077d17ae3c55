"""Scripts that run their dataflow in a process that they start, under commands that look and that run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from malflow.runtime.descendants import VARIABLE
from tests.cli.conftest import Done, Malflow, Script, process
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

HEAD = """
import multiprocessing, os, subprocess, sys
from malflow import SingleThreadRuntime
from malflow.sinks import TextFileSink
from malflow.sources import SingleIteratorSource

def build(provider):
    provider.new_stream().source("numbers", SingleIteratorSource(range(3))).sink("out", TextFileSink("out.txt"))

def work():
    SingleThreadRuntime(build).execute()
"""

WAYS = {
    "fork": "multiprocessing.get_context('fork').Process(target=work).start()",
    "spawn": "if __name__ == '__main__':\n    it = multiprocessing.get_context('spawn').Process(target=work)\n"
    "    it.start()\n    it.join()",
    "os.fork": "child = os.fork()\nif child:\n    os.waitpid(child, 0)\nelse:\n    work()",
    "program": "if 'child' in sys.argv:\n    work()\nelse:\n"
    "    subprocess.run([sys.executable, __file__, 'child'], check=True, capture_output=True)",
}


@pytest.mark.parametrize("way", WAYS)
def test_look_starts_nothing_in_a_process_of_the_script(way: str, script: Script) -> None:
    done = process("plan", script(WAYS[way], head=HEAD))
    assert not Path("out.txt").exists()
    assert "there was left out: malflow plan starts nothing" in done.err
    assert "name the function that builds the dataflow: flow.py:build" in done.err


@pytest.mark.parametrize("command", ["graph", "check", "config show"])
def test_other_looks_start_nothing_either(command: str, script: Script, malflow: Malflow) -> None:
    done = malflow(*command.split(), script(WAYS["program"], head=HEAD))
    assert not Path("out.txt").exists()
    assert f"malflow {command} starts nothing" in done.err
    assert VARIABLE not in os.environ


@pytest.mark.nightly
def test_process_that_outlives_the_look_is_refused(script: Script) -> None:
    later = "import subprocess\nsubprocess.Popen('sleep 1; \"$0\" flow.py child 2>err.txt; echo >done', shell=True)"
    own = "if 'child' in sys.argv:\n    work()\n    sys.exit()"
    text = f"{own}\n{later.replace('$0', sys.executable)}"
    assert process("plan", script(text, head=HEAD)).code == 3
    wait_until(Path("done").exists)
    assert not Path("out.txt").exists()
    assert f"unset {VARIABLE}" in Path("err.txt").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_run_of_a_script_that_runs_in_its_own_process_runs_it_once(script: Script) -> None:
    for way in ("fork", "os.fork"):
        Path("out.txt").unlink(missing_ok=True)
        done: Done = process("run", script(WAYS[way], head=HEAD))
        assert done.code == 0, done.err
        assert Path("out.txt").read_text(encoding="utf-8").count("\n") == 3
        assert "ran in a process of its own" in done.err
