"""Two runs and their collections, interleaved at every call of the store."""

from __future__ import annotations

from hypothesis import settings

from tests.recovery.scheduler import SchedulerMachine

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=settings.default.max_examples * 4, stateful_step_count=40, report_multiple_bugs=False
)
