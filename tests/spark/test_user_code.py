"""Errors of user code in Spark's processes: they are reported, nothing hangs, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SparkRuntime
from malflow.snapshot import FsspecBackend
from tests.kit.backends import kept_states
from tests.kit.nights import at_night
from tests.runtime.test_user_code import undisturbed
from tests.runtime.user_code import KINDS, RAISED, Trap

pytestmark = pytest.mark.spark

CASES = [
    ("partitioner", "StopIteration"),
    ("mapper", "SystemExit"),
    ("poll of a source", "KeyboardInterrupt"),
    ("close of a sink of a process", "SystemExit"),
    ("flush of a sink", "SystemExit"),
    ("pickling of a state", "SystemExit"),
]


@pytest.mark.fault("E24", "I15")
@pytest.mark.parametrize(("kind", "raised"), at_night(CASES, but=CASES[::2]))
def test_error_of_user_code_is_reported_and_nothing_is_lost(kind: str, raised: str, spark: Any, tmp_path: Path) -> None:
    trap, backend = Trap(tmp_path), FsspecBackend(str(tmp_path / "kept"))
    run = partial(_run, kind, trap, backend, spark)
    trap.arm(raised)
    with pytest.raises((OperatorError, RAISED[raised])) as caught:
        run()
    if not kind.endswith("of a sink"):  # that is called in the user's own process
        assert isinstance(caught.value, OperatorError)
        assert caught.value.operator == "op" or kind.startswith("__")
        assert raised in str(caught.value)
    trap.disarm()
    run()
    assert kept_states(backend, "sum") == undisturbed(kind)


def _run(kind: str, trap: Trap, backend: FsspecBackend, spark: Any) -> None:
    SparkRuntime(
        partial(_build, kind, trap), backend, snapshots=timedelta(seconds=1), parallelism=2, spark=spark
    ).execute()


def _build(kind: str, trap: Trap, provider: Any) -> None:
    KINDS[kind](provider, trap)
