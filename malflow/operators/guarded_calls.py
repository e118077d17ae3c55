"""The operator that calls a function for several records at a time, for policies other than to fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from malflow.failures import BreakerOpen, Fate
from malflow.operators.asynchronous import MapAsync
from malflow.operators.attempts import GivenUp
from malflow.operators.guarded_operator import Guarded, record_of, without
from malflow.operators.originals import spare_of
from malflow.records.batch import Batch

__all__ = ["GuardedMapAsync"]


class GuardedMapAsync(Guarded, MapAsync):
    """A `MapAsync` that drops records with failed calls, once all other calls of the tick have ended."""

    survives = True
    _spares: deque[list[Any]]

    def mapped(self, batches: Sequence[Batch]) -> list[Sequence[Batch]]:
        """Return the output for each batch; no call is made for records of parked keys."""
        if self.guard.parks:
            batches = [self._unparked(batch) for batch in batches]
        if self.guard.keeps_originals:
            self._spares = deque([*map(spare_of, batch.values)] for batch in batches)
        return super().mapped(batches)

    def _unparked(self, batch: Batch) -> Batch:
        return without([at for at in range(len(batch)) if self.guard.follows(record_of(batch, at))], batch)

    def settled(self, answers: Batch, batch: Batch, failures: Mapping[int, GivenUp]) -> Batch:
        """Pass each failed record to the guard, in order, and return the answers of the others.

        After a failure parks a key, later records of the key follow it even if their calls succeeded.
        """
        spares = self._spares.popleft() if self.guard.keeps_originals else None
        if not failures and not self.guard.parks:
            return answers
        left_out: list[int] = []
        for at in range(len(batch)) if self.guard.parks else failures:
            if self.guard.follows(record_of(batch, at)):
                left_out.append(at)
                continue
            tried = failures.get(at)
            if tried is None:
                continue
            left_out.append(at)
            fate = self._held_back if isinstance(tried.error, BreakerOpen) else None
            record = record_of(batch, at)
            if spares is not None:
                record = self.guard.as_it_came(record, spares[at])
            self.guard.take(tried.error, record, at=at, attempts=tried.attempts, fate=fate)
        return without(left_out, answers)

    @property
    def _held_back(self) -> Fate | None:
        """Return the fate of a record with a call that an open breaker holds back; None to apply the policy."""
        breaker = self._how.options.breaker
        return "dead_letter" if breaker and breaker.then == "dead_letter" and self.guard.may_keep else None

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters of the calls and the guard; only the calls have retries, so theirs are counted."""
        return {**self.guard.take_counts(), **MapAsync.take_counts(self)}
