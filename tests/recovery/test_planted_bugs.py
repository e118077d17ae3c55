"""The tests find the bugs for which they exist."""

from __future__ import annotations

import logging

import pytest

from tests.recovery.planted_bugs import BUGS, DIRECTED, Bug, Hunt
from tests.recovery.scenario import Violation

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "malflow.snapshot")


@pytest.mark.parametrize("bug", BUGS, ids=repr)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    for hunt in bug.hunts:
        with pytest.MonkeyPatch.context() as patch:
            bug.plant(patch)
            with pytest.raises(Violation) as found:
                hunt()
        assert found.value.invariant in bug.violated


@pytest.mark.parametrize("hunt", DIRECTED, ids=lambda hunt: hunt.__name__)
def test_nothing_is_found_where_no_bug_is_planted(hunt: Hunt) -> None:
    hunt()
