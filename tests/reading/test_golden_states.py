"""`read_state` of each golden folder: the states that a restored run has, with as many workers, more and fewer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.snapshot import read_state
from malflow.states.kinds import StateKind
from tests.golden.everywhere import build_broadcasts
from tests.golden.limited import build_limits
from tests.golden.matched import build_patterns
from tests.golden.members import build_members
from tests.golden.moments import build_moments
from tests.golden.parted import build_parts
from tests.golden.program import Parts, build_dataflow, events
from tests.golden.rolled_up import build_rollups
from tests.golden.stated import build_statements
from tests.golden.tabled import build_tables
from tests.golden.test_golden import FOLDER
from tests.golden.windowed import build_windows, readings
from tests.golden.write import JOBS, PACKED, PLACED, Job, backend_of
from tests.kit.backends import kept
from tests.kit.nights import at_night
from tests.reading.restored import check_read

pytestmark = pytest.mark.slow

KINDS = {
    "format-1": {"stateful_map", "stateful_op", "ttl_map"},
    "format-2": {"stateful_map", "stateful_op", "ttl_map"},
    "format-3": {"window", "session", "count_window", "aggregate", "join", "timers", "distinct", "changes", "throttle"}
    | {"sort", "batch", "stateful_op"},
    "rollups": {"rollup"},
    "patterns": {"match"},
    "limits": {"throttle"},
    "broadcasts": {"broadcast"},
    "parts": {"stateful_map", "window"},
    "dealt": {"stateful_map", "window"},
    "tables": {"table", "join", "timers", "stateful_map"},
    "statements": {"window", "session", "join"},
}
KINDS["packed"] = KINDS["format-3"]

FOLDERS = {
    "format-1": None,
    "format-2": None,
    "format-3": build_windows,
    "rollups": build_rollups,
    "patterns": build_patterns,
    "limits": build_limits,
    "tables": build_tables,
    "broadcasts": build_broadcasts,
    "moments": build_moments,
    "members": build_members,
    "parts": build_parts,
    "dealt": build_parts,
    "statements": build_statements,
    "packed": build_windows,
}


OTHER_JOBS = {**dict.fromkeys(("moments", "members", "parts", "dealt"), (PLACED,)), "packed": PACKED}
JOBS_OF_FOLDERS = [(folder, job) for folder in FOLDERS for job in OTHER_JOBS.get(folder, JOBS)]
BY_DAY = [(folder, job) for folder, job in JOBS_OF_FOLDERS if job in (PLACED, JOBS[2])]
"""A job of each folder; `tests.golden.test_golden` reads all of them by day."""


def test_each_kind_of_state_with_keys_is_in_a_golden_folder() -> None:
    assert set().union(*KINDS.values()) == {kind.word for kind in StateKind if kind.migrates}


def test_hidden_states_are_read_by_their_former_and_their_present_names() -> None:
    backend = backend_of(JOBS[0], FOLDER / "format-1")
    former, present = (dict(read_state(backend, f"by key{role}")) for role in ("-distribute", "/exchange"))
    assert former == present
    assert former


def test_each_golden_folder_is_read() -> None:
    assert {(path.parent.parent.name, path.parent.name) for path in FOLDER.glob("*/*/job.json")} == {
        (folder, job.name) for folder, job in JOBS_OF_FOLDERS
    }


@pytest.mark.parametrize(
    ("folder", "job"), at_night(JOBS_OF_FOLDERS, but=BY_DAY), ids=lambda it: getattr(it, "name", it)
)
def test_golden_states_are_read_as_they_are_restored(folder: str, job: Job, tmp_path: Path) -> None:
    made = FOLDERS[folder]

    def build(provider: StreamProvider) -> Any:
        return build_dataflow(provider, events(), Parts()) if made is None else made(provider, readings(), {})

    kinds = set()
    for parallelism in {job.parallelism, 5 if job.signed else 1}:
        place = tmp_path / str(parallelism)
        shutil.copytree(FOLDER / folder / job.name, place / job.name)
        kinds |= check_read(build, backend_of(job, place), parallelism)
    assert kinds == KINDS.get(folder, {"stateful_map"})


@pytest.mark.parametrize(("folder", "job"), JOBS_OF_FOLDERS[3::4], ids=lambda it: getattr(it, "name", it))
def test_golden_states_are_read_key_by_key(folder: str, job: Job) -> None:
    backend = backend_of(job, FOLDER / folder)
    for name, by_worker in kept(backend).states.items():
        states = dict(read_state(backend, name))
        assert len(states) == sum(map(len, by_worker.values()))
        for key in [*states][:: max(1, len(states) // 5)]:
            assert read_state(backend, name, key=key) == states[key]
        if states and isinstance(next(iter(states)), tuple) and "epoch" in name:
            assert states == {(worker, key): it for worker, held in by_worker.items() for key, it in held.items()}
