"""A job with a transactional sink that is killed, or sleeps, at each point between two snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.killing import DRIVER_POINTS, POINTS, kill_child, parked, run_child, wake
from tests.kit.ledger import rows_of, transactions_of
from tests.kit.nights import NIGHTLY, at_night
from tests.transactions.program import OUTSIDE, SIZE, SIZE_ON_SPARK

pytestmark = pytest.mark.slow

PROGRAM = "tests.transactions.program"
OWN = ["sink-prepare", "sink-commit-one", "sink-after-commit"]
"""Points within the sink's calls."""

NTH = 3
"""At which pass a process dies: in the middle of the job, with transactions before and after it."""


def assert_whole_transactions(folder: Path, seen: dict[int, list[int]]) -> dict[int, list[int]]:
    """Check that a reader outside sees whole transactions, in order, that never change again; return them."""
    transactions = transactions_of(folder / OUTSIDE)
    assert list(transactions) == list(range(1, len(transactions) + 1))
    assert {number: transactions[number] for number in seen} == seen
    values = [value for rows in transactions.values() for value in rows]
    assert sorted(values) == list(range(len(values)))
    return transactions


@pytest.mark.fault("A7")
@pytest.mark.parametrize("staged", [False, True], ids=["rows_in_handle", "rows_staged"])
@pytest.mark.parametrize("point", at_night([*POINTS, *OWN], but=["before-commit", "sink-commit-one"]))
def test_a_kill_at_each_point_loses_and_doubles_nothing(tmp_path: Path, point: str, staged: bool) -> None:
    options = ("staged",) if staged else ()
    seen: dict[int, list[int]] = {}
    kill_child(PROGRAM, tmp_path, *options, point=f"{point}:{NTH}")
    seen = assert_whole_transactions(tmp_path, seen)
    kill_child(PROGRAM, tmp_path, *options, point=f"{point}:{NTH}")
    seen = assert_whole_transactions(tmp_path, seen)
    run_child(PROGRAM, tmp_path, *options)
    assert_whole_transactions(tmp_path, seen)
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE))


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", at_night([*POINTS, *OWN], but=["before-commit"]))
def test_a_run_that_wakes_up_after_another_commits_nothing(tmp_path: Path, point: str) -> None:
    with parked(PROGRAM, tmp_path, "staged", point=point) as zombie:
        run_child(PROGRAM, tmp_path, "staged")
        seen = assert_whole_transactions(tmp_path, {})
        _, errors = wake(zombie)
    assert "FencedError" in errors
    assert assert_whole_transactions(tmp_path, seen) == seen
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE))


@pytest.mark.spark
@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", DRIVER_POINTS if NIGHTLY else ["before-commit"])
@pytest.mark.nightly
def test_a_driver_killed_at_each_point_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    kill_child(PROGRAM, tmp_path, "staged", "spark", point=f"{point}:2")
    seen = assert_whole_transactions(tmp_path, {})
    run_child(PROGRAM, tmp_path, "staged", *(["spark"] if NIGHTLY else []))  # goes on sooner on one thread
    assert_whole_transactions(tmp_path, seen)
    assert sorted(rows_of(tmp_path / OUTSIDE)) == list(range(SIZE_ON_SPARK if NIGHTLY else SIZE))
