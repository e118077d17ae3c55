"""A process killed at each named point of the commit protocol, and one that continues after it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from malflow.snapshot import fsck
from malflow.snapshot.protocol.manifest import sequence_of_target
from tests.kit.nights import at_night
from tests.processes.children import (
    assert_exact,
    assert_plausible,
    backend_of,
    counted,
    emitted,
    finish,
    newest,
    run,
)
from tests.processes.programs.counting import Options, Program

pytestmark = pytest.mark.slow

ONCE_A_RUN = ("job-written", "claimed")
EACH_SNAPSHOT = ("data-written", "before-manifest", "manifest-written", "boundary-raised", "collected")
TIMES = [1, 2, 3]
CASES = [("claimed", 1), *((name, nth) for name in EACH_SNAPSHOT for nth in TIMES)]


def history(folder: Path, size: int = 100) -> int:
    """Count a third of the numbers, and stop; return the id of the last snapshot."""
    Program(folder, Options(size=size, at=size // 3, do="stop")).runtime.execute()
    assert counted(folder) == len(emitted(folder)) > 0
    return newest(folder)


def uncommitted(folder: Path) -> list[str]:
    """List the data files that were written for a commit that is not there."""
    manifest_log = backend_of(folder).manifest_log()
    last = manifest_log.sequences(manifest_log.boundary())[-1]
    return [key for key in manifest_log.list("d/") if (sequence_of_target(key) or 0) > last]


@pytest.mark.fault("A3", "A5", "A8", "A9")
@pytest.mark.parametrize("with_history", [False, True], ids=["fresh", "with_history"])
@pytest.mark.parametrize(
    ("name", "nth"),
    at_night(
        [("claimed", 1), *((name, nth) for name in EACH_SNAPSHOT for nth in TIMES)], but=[("manifest-written", 2)]
    ),
)
def test_a_process_killed_in_its_commit_is_continued_exactly(
    tmp_path: Path, name: str, nth: int, with_history: bool
) -> None:
    before = history(tmp_path) if with_history else 0
    assert run(tmp_path, Options(), MALFLOW_FAILPOINT=f"{name}:{nth}") == (-signal.SIGKILL, "")
    at = newest(tmp_path)
    assert at > before or (at == before and nth == 1 and name in ("claimed", "data-written", "before-manifest"))
    assert bool(uncommitted(tmp_path)) == (name in ("data-written", "before-manifest"))
    if at:
        assert_plausible(tmp_path)
    finish(tmp_path)
    assert_exact(tmp_path)
    assert fsck(backend_of(tmp_path)).unused == ()


@pytest.mark.fault("A11")
def test_process_killed_after_creating_the_job_leaves_it_usable(tmp_path: Path) -> None:
    assert run(tmp_path, Options(), MALFLOW_FAILPOINT="job-written:1") == (-signal.SIGKILL, "")
    assert newest(tmp_path) == 0
    finish(tmp_path)
    assert_exact(tmp_path)


@pytest.mark.fault("A9", "A10", "H9")
@pytest.mark.nightly
def test_a_process_killed_at_each_of_its_starts_never_loses_what_was_kept(tmp_path: Path) -> None:
    before = history(tmp_path)
    for _ in range(4):
        assert run(tmp_path, Options(), MALFLOW_FAILPOINT="claimed:1") == (-signal.SIGKILL, "")
        assert newest(tmp_path) == before
    assert_plausible(tmp_path)
    finish(tmp_path)
    assert_exact(tmp_path)
