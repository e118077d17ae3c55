"""The attempts at a run on any host: what each begins with, and the end of the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from malflow import RestartPolicy, SingleThreadRuntime
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.errors import RunFailed, SnapshotError, StoreError
from malflow.event_time.tick import Tick
from malflow.events import Event, Run, RunFinished
from malflow.runtime.attempts import Restarts
from malflow.runtime.options import RunOptions
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session
from malflow.states.kinds import StateSpec
from tests.kit.backends import in_memory, kept_states
from tests.kit.counting import MOMENT, counting, one_a_tick


class Away:
    """A persistence that fails each time it is opened for which it has an error.

    Args:
        errors: the errors; None opens it.
    """

    is_enabled = True

    def __init__(self, *errors: Exception | None) -> None:
        self.backend = in_memory()
        self.errors = list(errors)
        self.restores: list[Any] = []

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Open it, or fail."""
        self.restores.append(start.restore)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return self.backend.open(states, start)


class Dying(SingleThreadHost):
    """A host that dies in its fifth tick."""

    def run(self, tick: Tick) -> Sequence[Report]:
        if tick.number == 5:
            raise RunFailed("a process died")
        return super().run(tick)


class Restarting(SingleThreadRuntime):
    """Restarts runs, as worker processes and Spark do; the first host dies."""

    hosts = 0

    def _restarts(self, program: Program) -> Restarts | None:
        return Restarts(program, RestartPolicy(3, 0), self._slot.current, keeps=True)

    def _host(self, program: Program, sinks: RunSinks, options: RunOptions) -> SingleThreadHost:
        self.hosts += 1
        kind = Dying if self.hosts == 1 else SingleThreadHost
        return kind(program, sinks, parallelism=options.parallelism or 1, tracked=True)


ITEMS = "abcabcab"


def test_an_attempt_that_has_not_begun_between_two_others() -> None:
    away = Away(None, StoreError("away"))
    Restarting(counting(one_a_tick(ITEMS)), away, MOMENT, restore=None).execute()
    assert away.restores == [None, "latest", "latest"], "the first one has taken snapshots"
    assert kept_states(away.backend, "count") == {"a": 3, "b": 3, "c": 2}


class Last:
    """Asks for a snapshot when the run says that it has finished."""

    run: Run
    status = ""
    refused = ""

    def on_start(self, run: Run) -> None:
        self.run = run

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.status = self.run.progress.status
            with pytest.raises(SnapshotError) as refused:
                self.run.snapshot()
            self.refused = str(refused.value)


def test_requests_after_the_last_event() -> None:
    last = Last()
    SingleThreadRuntime(counting("abc"), in_memory(), listeners=[last]).execute()
    assert (last.status, last.refused) == ("ended", "the run has ended")


def test_status_of_a_run_that_failed_at_its_last_event() -> None:
    last, away = Last(), Away(*[StoreError("away")] * 4)
    with pytest.raises(StoreError, match="away"):
        Restarting(counting("abc"), away, listeners=[last]).execute()
    assert (last.status, last.refused) == ("failed", "the run has ended")
    assert len(away.restores) == 4
