"""Processes are killed while files are handed out: each line is read once."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states
from tests.kit.nights import at_night
from tests.multiprocess.groups import started
from tests.multiprocess.programs.many_files import runtime_of

pytestmark = pytest.mark.slow

SIZES = {f"{number:02}": 1 + number * number % 7 for number in range(40)}


def write_files(folder: Path) -> None:
    (folder / "in").mkdir()
    for name, size in SIZES.items():
        (folder / "in" / f"{name}.txt").write_text("".join(f"{name} {row}\n" for row in range(size)))


def assert_read_once(folder: Path) -> None:
    counts = kept_states(FsspecBackend(str(folder / "kept")), "count")
    assert {Path(part).stem: count for part, count in counts.items()} == SIZES
    written = [tuple(json.loads(line)) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert sorted(written) == [(name, row, row + 1) for name, size in SIZES.items() for row in range(size)]


def command(folder: Path, *fatal: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tests.multiprocess.programs.many_files", str(folder), *fatal]


@pytest.mark.fault("A3", "A5")
def test_workers_killed_with_a_file_in_hand(tmp_path: Path) -> None:
    write_files(tmp_path)
    with started(command(tmp_path, "03", "39"), tmp_path) as program:
        program.end()
    assert len([*tmp_path.glob("killed-*")]) == 2
    assert_read_once(tmp_path)


@pytest.mark.fault("A5", "A7")
@pytest.mark.parametrize(
    "point", at_night(["before-manifest:2", "before-manifest:4", "manifest-written:3"], but=["before-manifest:4"])
)
def test_a_coordinator_killed_while_files_wait(tmp_path: Path, point: str) -> None:
    write_files(tmp_path)
    with started(command(tmp_path), tmp_path, MALFLOW_FAILPOINT=point) as program:
        program.end(-signal.SIGKILL)
    runtime_of(tmp_path).execute()
    assert_read_once(tmp_path)
