"""Random commands: never a trace, always a documented exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from malflow.cli.output.exits import Exit
from tests.cli.conftest import Malflow, Script

COMMANDS = "run check snapshots state plugins completion ls show verify diff restore rm get keys"
OPTIONS = "-- - --json -q -v --help --traceback=1 --color=red --persistence --job --restore --snapshots --call --yes"
MORE = "--rename --drop --on --at --limit --operator --values --trust --count --timeout --debug --sinks"
VALUES = "flow.py flow.py:build_dataflow flow.py:x flow kept . count a j/../k none latest 0 -1 0s 10s 1e9d 2 a=b ="
WORDS = [*f"{COMMANDS} {OPTIONS} {MORE} {VALUES}".split(), "", "9" * 5000, "\x1b[31m", "\u202e"]
text = st.one_of(st.sampled_from(WORDS), st.text(st.characters(exclude_categories=["Cs", "Ll"]), max_size=6))


@pytest.mark.filterwarnings("ignore")
@given(arguments=st.lists(text, max_size=7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.slow
def test_random_command(arguments: list[str], script: Script, malflow: Malflow, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    sys.path[:] = [it for it in sys.path if not it.endswith("examples")]  # whose names are words
    if not Path("flow.py").exists():
        script("SingleThreadRuntime(build_dataflow).execute()")
    done = malflow(*(it.replace("\0", "") for it in arguments))
    assert done.code in list(Exit)
    assert done.code != Exit.UNFORESEEN, done.err
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err
