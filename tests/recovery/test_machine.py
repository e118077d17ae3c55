"""A job through random faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies

from tests.kit.faults import Fault
from tests.recovery.flow import REACHED
from tests.recovery.machine import FIRED, ProcessesRecoveryMachine, RecoveryMachine, SignedRecoveryMachine

pytestmark = pytest.mark.slow

EXAMPLES = settings().max_examples

TestRecovery = RecoveryMachine.TestCase
TestRecovery.settings = settings(max_examples=max(40, EXAMPLES), stateful_step_count=30, report_multiple_bugs=False)

TestSignedRecovery = SignedRecoveryMachine.TestCase
TestSignedRecovery.settings = settings(TestRecovery.settings, max_examples=max(10, EXAMPLES // 8))

TestRecoveryInProcesses = pytest.mark.nightly(ProcessesRecoveryMachine.TestCase)
TestRecoveryInProcesses.settings = settings(TestRecovery.settings, max_examples=max(5, EXAMPLES // 20))


@given(workers=strategies.sampled_from([1, 2]))
def test_going_back_over_a_dropped_operator_is_no_difference(workers: int) -> None:
    machine = RecoveryMachine()
    machine.begin(retain=2, growth=1.0, fed=12, names=["p", 1.5, "left"], fault=None)
    for _ in range(2):  # a version with one more operator, and the one without it again
        machine.change_program("extra")
        machine.restart(workers, None)
        machine.snapshot(ticks=1, times=1)
        machine.holds()
    machine.damage_a_copy(which=1, how="flip", at=0)
    machine.teardown()


@pytest.mark.parametrize(
    "fault",
    [Fault("error_after", "delete", "data"), Fault("error_before", "delete", "manifest")],
    ids=["data", "manifest"],
)
@given(growth=strategies.sampled_from([0.1, 1.0]))
def test_failed_deletions_are_made_up_for(growth: float, fault: Fault) -> None:
    machine = RecoveryMachine()
    machine.begin(retain=1, growth=growth, fed=12, names=["p", 1.5, "left"], fault=None)
    for _ in range(6):
        machine.failing_snapshot(ticks=1, fault=fault)
        machine.holds()
    machine.teardown()


def test_parts_were_handed_out_and_moved() -> None:
    if not FIRED:
        pytest.skip("the machines have not run")
    assert min(REACHED["handed out"], REACHED["moved"]) > EXAMPLES, REACHED


@pytest.mark.skipif(EXAMPLES < 100, reason="a few machines can't meet all faults")
def test_every_kind_of_fault_has_fired() -> None:
    if not FIRED:
        pytest.skip("the machines have not run")
    kinds = {what.partition(",")[0] for what in FIRED}
    assert kinds == {
        *("crash_before", "crash_after", "crash_late", "error_before", "error_after", "unknown_before"),
        *("late", "throttled"),
    }
    places = {what.partition(", ")[2] for what in FIRED}
    assert {"put_new manifest", "put_new data", "put_new boundary", "delete data", "delete manifest"} <= places
