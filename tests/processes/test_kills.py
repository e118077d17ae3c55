"""A process killed at random moments, again and again (A1, A2, A10)."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from malflow.snapshot import fsck
from tests.kit.nights import NIGHTLY
from tests.kit.waiting import wait_until
from tests.processes.children import (
    assert_exact,
    assert_plausible,
    backend_of,
    child,
    counted,
    finish,
    newest,
)
from tests.processes.programs.counting import Options

pytestmark = pytest.mark.slow

SIZE = 5_000
SLOW = Options(size=SIZE, every=0.02, sleep=0.002)


@pytest.mark.fault("A6")
@pytest.mark.parametrize("seed", range(1 if not NIGHTLY else 8))
def test_a_process_killed_at_random_moments_counts_every_number_once(tmp_path: Path, seed: int) -> None:
    """Its source lists its drawn parts in another order each time, and forgets one now and then."""
    moments = random.Random(seed)  # noqa: S311 - no secret
    options = replace(SLOW, drawn=seed + 1, forgets=True)
    for _ in range(6 if not NIGHTLY else 40):
        before = newest(tmp_path)
        with child(tmp_path, options) as process:
            if moments.random() < 0.7:
                wait_until(lambda before=before: newest(tmp_path) > before)
                time.sleep(moments.uniform(0, 0.06))
            else:
                time.sleep(moments.uniform(0, 0.6))  # it may still be starting
            process.process.kill()
            assert process.end() == (-signal.SIGKILL, "")
        assert fsck(backend_of(tmp_path)).problems == ()
        if newest(tmp_path):
            assert_plausible(tmp_path)
    finish(tmp_path, SIZE, drawn=options.drawn)
    assert_exact(tmp_path, SIZE, drawn=options.drawn)


@pytest.mark.fault("A1")
def test_a_process_killed_before_its_first_snapshot_begins_anew(tmp_path: Path) -> None:
    with child(tmp_path, Options(every=3600, sleep=0.01)) as process:
        process.wait_for("started")
        process.process.kill()
        assert process.end() == (-signal.SIGKILL, "")
    assert counted(tmp_path) == 0, "there is only the snapshot of where the sink began"
    finish(tmp_path)
    assert_exact(tmp_path)


@pytest.mark.nightly
def test_a_snapshot_list_can_be_read_while_a_run_deletes_old_ones(tmp_path: Path) -> None:
    with child(tmp_path, Options(size=10 * SIZE, every=0.001, sleep=0.0001, writes=False)) as process:
        process.wait_for("started")
        seen: set[int] = set()
        wait_until(lambda: seen.add(newest(tmp_path)) or len(seen) > 5)
        assert [fsck(backend_of(tmp_path)).problems for _ in range(20)] == [()] * 20
        assert process.process.poll() is None, "it was deleting old ones all the while"
