"""A job through whatever can happen to it."""

from __future__ import annotations

from hypothesis import settings

from tests.recovery.machine import RecoveryMachine, SignedRecoveryMachine

TestRecovery = RecoveryMachine.TestCase
TestRecovery.settings = settings(
    max_examples=settings.default.max_examples * 2, stateful_step_count=40, report_multiple_bugs=False
)

TestSignedRecovery = SignedRecoveryMachine.TestCase
TestSignedRecovery.settings = settings(TestRecovery.settings, max_examples=settings.default.max_examples // 5)
