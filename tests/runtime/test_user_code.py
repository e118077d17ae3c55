"""Any error of user code, wherever it is called, is reported, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime
from tests.kit.backends import in_memory, kept_states
from tests.kit.nights import at_night
from tests.runtime.user_code import KINDS, RAISED, Trap

pytestmark = pytest.mark.slow

EACH_TICK = timedelta(microseconds=1)


def run(kind: str, trap: Trap, backend: Any, **options: Any) -> None:
    SingleThreadRuntime(partial(_build, kind, trap), backend, snapshots=EACH_TICK, **options).execute()


def _build(kind: str, trap: Trap, provider: Any) -> None:
    KINDS[kind](provider, trap)


@cache
def undisturbed(kind: str) -> Any:
    """Return the totals of a run in which nothing is raised."""
    backend = in_memory()
    with TemporaryDirectory() as folder:
        run(kind, Trap(Path(folder)), backend)
    return kept_states(backend, "sum")


# Two workers for half of what is raised, so that exchanges are in it; one would do for most kinds.
CASES = [(kind, raised, workers) for kind in KINDS for raised, workers in zip(RAISED, cycle([2, 1]), strict=False)]
BY_DAY = CASES[::5]
"""A fifth of them. It has each kind and each error, since the number of errors is no multiple of five."""


@pytest.mark.fault("E24")
@pytest.mark.parametrize(("kind", "raised", "parallelism"), at_night(CASES, but=BY_DAY))
def test_error_of_user_code_is_reported_and_nothing_is_lost(
    kind: str, raised: str, parallelism: int, tmp_path: Path
) -> None:
    trap, backend = Trap(tmp_path), in_memory()
    if kind == "migrate":
        run(kind, trap, backend, parallelism=parallelism)
        (tmp_path / "again").touch()
    trap.arm(raised)
    with pytest.raises((OperatorError, RAISED[raised])) as caught:
        run(kind, trap, backend, parallelism=parallelism)
    if issubclass(RAISED[raised], Exception):
        assert isinstance(caught.value, OperatorError)
        assert caught.value.operator == "op" or kind.startswith("__")  # any that compares or hashes
        assert isinstance(caught.value.__cause__, RAISED[raised] | RuntimeError)
    else:
        assert type(caught.value) is RAISED[raised]
    trap.disarm()
    run(kind, trap, backend, parallelism=parallelism)
    assert kept_states(backend, "sum") == undisturbed(kind)
