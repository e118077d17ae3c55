"""A program whose output is no longer read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from malflow import SingleThreadRuntime
from malflow.sinks import StdOutSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource

script = [step for number in range(100_000) for step in (number, PAUSE)]
build = lambda provider: provider.new_stream().source("numbers", ScriptedSource(script)).sink("out", StdOutSink())
SingleThreadRuntime(build, FsspecBackend(sys.argv[1])).execute()
print("it goes on")
"""


@pytest.mark.fault("F15")
def test_a_program_whose_output_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{ key: NoKey, value: 0, timestamp: 0 }\n"
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (141, b"")
    [position] = kept_states(FsspecBackend(str(tmp_path)), "numbers").values()
    assert 0 < position < 200_000, "it took a snapshot, as when it is stopped"


SPEAKING = """
from malflow import SingleThreadRuntime
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

words = SingleIteratorSource(["K\\u00f6ln"])
build = lambda provider: provider.new_stream().source("words", words).sink("out", StdOutSink())
SingleThreadRuntime(build).execute()
"""


def test_a_program_whose_output_was_closed_prints_nothing() -> None:
    command = f'exec {sys.executable} -W error -c "$0" >&-'
    done = subprocess.run(["/bin/sh", "-c", command, SPEAKING], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_terminal_without_the_letters_of_a_value_is_told() -> None:
    surroundings = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", SPEAKING.replace("StdOutSink()", "StdOutSink(formatter=lambda msg: msg.value)")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, env=surroundings, text=True)
    assert done.returncode == 1
    assert "the standard output has the encoding ascii, which lacks '\\xf6'; set PYTHONIOENCODING=utf-8" in done.stderr
