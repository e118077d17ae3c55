"""Signals end a process with a snapshot, at once, or not at all (H1 to H6)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from malflow.snapshot import fsck
from tests.kit.nights import at_night
from tests.kit.waiting import wait_until
from tests.processes.children import (
    assert_exact,
    assert_plausible,
    backend_of,
    child,
    counted,
    emitted,
    finish,
    newest,
)
from tests.processes.programs.counting import Options

pytestmark = pytest.mark.slow

SIZE = 5_000
SLOW = Options(size=SIZE, every=0.02, sleep=0.002)
CODES = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: -signal.SIGINT}
"""The exit codes after a second signal that stops a run."""

STOPS = [*CODES]


@pytest.mark.fault("H1")
@pytest.mark.parametrize("number", at_night(STOPS, but=STOPS[:1]))
def test_a_signal_ends_the_tick_and_takes_a_last_snapshot(tmp_path: Path, number: signal.Signals) -> None:
    with child(tmp_path, SLOW) as process:
        wait_until(lambda: newest(tmp_path) and counted(tmp_path))
        process.process.send_signal(number)
        assert process.end() == (0, "")
    assert 0 < counted(tmp_path) == len(emitted(tmp_path)) < 3 * SIZE
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)
    assert len(emitted(tmp_path)) == 3 * SIZE, "nothing is done twice"


@pytest.mark.fault("H2")
@pytest.mark.parametrize("number", at_night(STOPS, but=STOPS[1:]))
def test_a_signal_during_a_snapshot_waits_for_it(tmp_path: Path, number: signal.Signals) -> None:
    go = tmp_path / "go"
    with child(tmp_path / "job", Options(size=SIZE, every=0.02, sleep=0.002, held=str(go))) as process:
        process.wait_for("writing")
        process.process.send_signal(number)
        process.wait_for("stopping")
        assert counted(tmp_path / "job") == 0
        assert process.process.poll() is None
        go.touch()
        assert process.end() == (0, "")
    assert 0 < counted(tmp_path / "job") == len(emitted(tmp_path / "job")) < 3 * SIZE
    finish(tmp_path / "job", SIZE)
    assert_exact(tmp_path / "job", SIZE)


@pytest.mark.fault("E22", "H3")
@pytest.mark.parametrize(("number", "code"), at_night([*CODES.items()], but=[*CODES.items()][:1]))
def test_a_second_signal_ends_at_once_and_the_last_snapshot_stands(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with child(tmp_path, SLOW) as process:
        wait_until(lambda: newest(tmp_path))
        process.process.send_signal(number)
        assert process.end() == (0, "")
    before, count = newest(tmp_path), counted(tmp_path)
    with child(tmp_path, Options(size=SIZE, every=0.02, sleep=0.002, held=str(tmp_path / "never"))) as process:
        process.wait_for("writing")
        process.process.send_signal(number)
        process.wait_for("stopping")
        process.process.send_signal(number)
        ended, errors = process.end()
    assert ended == code
    assert errors.rstrip().endswith("KeyboardInterrupt") if number == signal.SIGINT else errors == ""
    assert (newest(tmp_path), counted(tmp_path)) == (before, count)
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)


@pytest.mark.fault("H5")
@pytest.mark.parametrize("number", at_night([signal.SIGHUP, signal.SIGQUIT], but=[signal.SIGHUP]))
def test_a_signal_that_nobody_handles_is_like_a_kill(tmp_path: Path, number: signal.Signals) -> None:
    with child(tmp_path, SLOW) as process:
        wait_until(lambda: newest(tmp_path))
        process.process.send_signal(number)
        assert process.end()[0] == -number
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)


@pytest.mark.fault("H5")
def test_nobody_reading_what_is_logged_does_not_stop_the_run(tmp_path: Path) -> None:
    with child(tmp_path, Options(failing=4)) as process:
        assert process.process.stderr is not None
        process.process.stderr.close()
        process.process.stderr = None
        assert process.end()[0] == 0
    assert_exact(tmp_path)


@pytest.mark.fault("H4")
def test_an_interrupted_wait_in_a_folder_leaves_no_object_in_part(tmp_path: Path) -> None:
    with child(tmp_path, SLOW) as process:
        wait_until(lambda: newest(tmp_path))
        for _ in range(2):
            process.process.send_signal(signal.SIGINT)
        process.end()
    assert fsck(backend_of(tmp_path)).problems == ()
    assert_plausible(tmp_path)
    finish(tmp_path, SIZE)
    assert_exact(tmp_path, SIZE)
