"""Processes with different hash seeds agree on the worker of each key, and resume each other's states (E8)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept, kept_states
from tests.processes.children import ROOT
from tests.processes.programs.placing import KEYS, ROUNDS

pytestmark = pytest.mark.slow

SEEDS = ("0", "1", "random")
ALL = -1


def place(folder: Path, seed: str, stop: int) -> dict[str, int]:
    """Run the program, and return the worker of each key."""
    code = f"from tests.processes.programs.placing import main; main({str(folder)!r}, {stop})"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Place every key in an undisturbed run."""
    return place(tmp_path_factory.mktemp("reference"), "0", ALL)


def test_the_seed_does_change_hashes() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", "print(hash('text 0'))"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(told) == 3


def test_keys_are_on_all_workers(reference: dict[str, int]) -> None:
    assert len(reference) == len(KEYS)
    assert set(reference.values()) == {0, 1, 2}


@pytest.mark.fault("E8")
@pytest.mark.parametrize("order", [SEEDS, SEEDS[::-1]], ids=" then ".join)
def test_a_run_is_continued_under_another_hash_seed(
    tmp_path: Path, order: tuple[str, ...], reference: dict[str, int]
) -> None:
    backend = FsspecBackend(str(tmp_path), job="placing")
    for seed in order:
        last = seed == order[-1]
        placed = place(tmp_path, seed, ALL if last else 2 * len(KEYS))
        assert placed == {number: reference[number] for number in placed}
        states = kept(backend).states["count"]
        assert {key: worker for worker, held in states.items() for key in held} == {
            key: reference[str(number)] for number, key in enumerate(KEYS)
        }
    assert kept_states(backend, "count") == dict.fromkeys(KEYS, ROUNDS)
