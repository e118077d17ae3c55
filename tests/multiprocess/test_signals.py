"""Signals to the whole group of processes, as a terminal or a service manager sends them."""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until
from tests.multiprocess.groups import DEADLINE, Group, assert_totals, finish, group
from tests.multiprocess.programs.totals import Options
from tests.multiprocess.runs import BOTH
from tests.processes.children import assert_plausible, counted, emitted, newest

pytestmark = pytest.mark.slow

SIZE = 300
SLOW: dict[str, Any] = {"size": SIZE, "every": 0.02, "sleep": 0.002}
NUMBERS = [signal.SIGTERM, signal.SIGINT]
CASES = at_night(product(BOTH, NUMBERS), but=[(BOTH[0], signal.SIGTERM)])
STOPS = pytest.mark.parametrize(("method", "number"), CASES)
"""Marks tests of signals that stop a run; at night, all of them with both start methods."""


def code_at_once(number: signal.Signals) -> int:
    """Return the exit code after a second signal, the same as on one thread."""
    return 128 + number if number == signal.SIGTERM else -number


@pytest.mark.fault("H1")
@pytest.mark.parametrize(
    ("method", "number"), [*CASES, *at_night(product(["none"], NUMBERS), but=[("none", signal.SIGINT)])]
)
def test_a_signal_to_the_group_takes_a_last_snapshot(tmp_path: Path, number: signal.Signals, method: str) -> None:
    with group(tmp_path, Options(**SLOW, start_method=method)) as program:
        wait_until(lambda: newest(tmp_path) and counted(tmp_path), DEADLINE)
        program.send(number)
        program.end()
        assert program.said == ["ended 0"]
    assert 0 < counted(tmp_path) == len(emitted(tmp_path)) < 3 * SIZE
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_totals(tmp_path, SIZE)


@STOPS
@pytest.mark.fault("H3")
@pytest.mark.parametrize("busy", ["sleep", "loop"] if NIGHTLY else ["loop"])
def test_a_second_signal_to_the_group_ends_it_at_once(
    tmp_path: Path, number: signal.Signals, busy: str, method: str
) -> None:
    with group(tmp_path, Options(at=35, do=busy, start_method=method)) as program:
        stop_twice(program, number)
        program.end(code_at_once(number))
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in program.errors
    finish(tmp_path)
    assert_totals(tmp_path)


@pytest.mark.fault("H3")
@pytest.mark.nightly
def test_a_second_signal_ends_worker_processes_that_print(tmp_path: Path) -> None:
    with group(tmp_path, Options(at=35, do="talk")) as program:
        stop_twice(program, signal.SIGTERM)
        program.end(code_at_once(signal.SIGTERM), seconds=20)


def stop_twice(program: Group, number: signal.Signals) -> None:
    """Send a signal twice while user code is busy."""
    program.wait_for("busy")
    program.send(number)
    program.wait_for("stopping")
    program.send(number)


@STOPS
@pytest.mark.fault("H1")
@pytest.mark.nightly
def test_a_signal_while_processes_are_started_is_a_stop(tmp_path: Path, number: signal.Signals, method: str) -> None:
    with group(tmp_path, Options(**SLOW, start_method=method), point="claimed:1:stop") as program:
        program.wait_for_stop()
        program.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(program.living()) > 1, DEADLINE)
        program.send(number)
        program.end()
        assert program.said == ["ended 0"]
    finish(tmp_path, SIZE)
    assert_totals(tmp_path, SIZE)


@pytest.mark.fault("H5")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT] if NIGHTLY else [signal.SIGHUP])
@pytest.mark.nightly
def test_a_signal_that_nobody_handles_kills_the_group(tmp_path: Path, number: signal.Signals) -> None:
    with group(tmp_path, Options(**SLOW)) as program:
        wait_until(lambda: newest(tmp_path), DEADLINE)
        program.send(number)
        program.end(-number)
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_totals(tmp_path, SIZE)
