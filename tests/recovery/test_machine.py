"""A job through whatever can happen to it."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.recovery.machine import FIRED, RecoveryMachine, SignedRecoveryMachine

EXAMPLES = settings.default.max_examples

TestRecovery = RecoveryMachine.TestCase
TestRecovery.settings = settings(
    max_examples=max(60, EXAMPLES * 3 // 2), stateful_step_count=30, report_multiple_bugs=False
)

TestSignedRecovery = SignedRecoveryMachine.TestCase
TestSignedRecovery.settings = settings(TestRecovery.settings, max_examples=max(10, EXAMPLES // 4))


@pytest.mark.skipif(EXAMPLES < 100, reason="a few machines can't meet all faults")
def test_every_kind_of_fault_has_fired() -> None:
    if not FIRED:
        pytest.skip("the machines have not run")
    kinds = {what.partition(",")[0] for what in FIRED}
    assert kinds == {
        *("crash_before", "crash_after", "crash_late", "error_before", "error_after", "unknown_before"),
        *("late", "transient"),
    }
    places = {what.partition(", ")[2] for what in FIRED}
    assert {"put_new manifest", "put_new data", "put_new boundary", "delete data", "delete manifest"} <= places
