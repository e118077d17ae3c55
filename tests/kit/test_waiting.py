"""Waiting ends, with success or with an error."""

from __future__ import annotations

from itertools import count

import pytest

from tests.kit.waiting import wait_until


def test_waiting_ends_with_the_condition() -> None:
    ticks = count()
    wait_until(lambda: next(ticks) == 3)
    assert next(ticks) == 4


def test_waiting_fails_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match=r"did not hold within 0\.05 seconds"):
        wait_until(lambda: False, 0.05)
