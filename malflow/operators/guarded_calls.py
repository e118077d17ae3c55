"""The operator that calls a function for several records at a time, with a policy other than to fail."""

from __future__ import annotations

from collections.abc import Mapping

from malflow.failures import Fate
from malflow.limits import BreakerOpen
from malflow.operators.asynchronous import UNASKED, MapAsync
from malflow.operators.attempts import Tried
from malflow.operators.guarding import Guarded, record_of, without
from malflow.records.batch import Batch

__all__ = ["GuardedMapAsync"]


class GuardedMapAsync(Guarded, MapAsync):
    """A `MapAsync` that drops the records at which its function fails, after all other calls of the tick have ended."""

    survives = True

    def settled(self, answers: Batch, batch: Batch, failures: Mapping[int, Tried]) -> Batch:
        """Pass each failed record to the guard, in order, and return the answers of the others."""
        for at, tried in failures.items():
            error = tried.error if isinstance(tried.error, Exception) else RuntimeError(UNASKED)
            fate = self._held_back if isinstance(error, BreakerOpen) else None
            self.guard.take(error, record_of(batch, at), at=at, attempts=tried.attempts, fate=fate)
        return without([*failures], answers)

    @property
    def _held_back(self) -> Fate | None:
        """The fate of a record whose call an open breaker holds back; None for that of the policy."""
        breaker = self._how.options.breaker
        return "dead_letter" if breaker and breaker.then == "dead_letter" and self.guard.may_keep else None

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters of the calls and of the guard."""
        return {**MapAsync.take_counts(self), **self.guard.take_counts()}
