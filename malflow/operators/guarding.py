"""The guard of an operator: decides about records at which the user's function fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from malflow.diagnostics import operator_error, place_of
from malflow.errors import MalflowError, error_text, short_repr
from malflow.event_time.tick import Tick
from malflow.failures import FATES, DeadLetter, Failure, Failures, Fate, OnError
from malflow.message import NoKey
from malflow.operators.contract import Counts, Operator
from malflow.operators.letters import Letters, Record, masked
from malflow.records.batch import Batch

__all__ = ["GUARD_COUNTS", "Guard", "Guarded", "Record", "record_of", "without"]

FAILED, SKIPPED, LETTERS, DROPPED, KEPT = "failed", "skipped", "letters", "dropped", "kept"

GUARD_COUNTS = Counts(counters=(FAILED, SKIPPED, LETTERS, DROPPED), gauges=(KEPT,))
"""The counts of a guarded operator.

The counters: the records at which its function failed, and of them those that it skipped and those that became dead
letters; and the letters that it dropped, since there was no room for more. The gauge: the letters that it keeps.
"""

_EXAMPLES = 3
_LONGEST = 200


class Guard:
    """Decides about the records of one operator, on one worker, at which the user's function failed.

    Args:
        operator: the operator.
        policy: its policy.
        letters: its dead letters.

    Attributes:
        taken: the dead letters of this run of the operator, which other operators take; None if they are kept.
        attempts: how often each record of the current batch was tried before; empty for none.
    """

    def __init__(self, operator: Operator, policy: OnError, letters: Letters) -> None:
        self._operator = operator
        self._policy = policy
        self._letters = letters
        self.taken: list[DeadLetter] | None = None
        self.attempts: Sequence[int] = ()
        self._errors: Counter[str] = Counter()
        self._examples: list[str] = []
        self._counts = dict.fromkeys(GUARD_COUNTS.counters, 0)

    @property
    def may_keep(self) -> bool:
        """Whether a failed record may become a dead letter."""
        return self._policy.may_keep

    def take(
        self,
        error: Exception,
        record: Record,
        reason: Exception | str | None = None,
        *,
        at: int = 0,
        attempts: int = 1,
        fate: Fate | None = None,
    ) -> None:
        """Handle a failure: return if the record is settled, so that the operator continues without it.

        Args:
            error: the exception of the user's function.
            record: the key, the value and the timestamp of the record.
            reason: the reason for an error message; None for the exception itself.
            at: the position of the record in its batch, if dead letters are processed together.
            attempts: how often the record was tried, apart from earlier letters.
            fate: the fate of the record; None for that of the policy.

        Raises:
            OperatorError: if the policy is to fail, the policy itself fails, or memory is short or the error is
                malflow's own, about which no policy decides.
        """
        if isinstance(error, (MemoryError, MalflowError)):
            raise self._operator.error(error, record) from error
        fate = fate or self._fate_of(error, record)
        if fate == "fail":
            raise self._operator.error(reason or error, record) from error
        self._counts[FAILED] += 1
        if self._policy.budget is not None:
            self._note(error, record)
        if fate == "skip":
            self._counts[SKIPPED] += 1
            return
        self._counts[LETTERS] += 1
        before = self.attempts[at] if self.attempts else 0
        self._keep(error, record, before + attempts)

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick's number and time."""
        self._letters.begin_tick(tick)

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters since the last call."""
        counts, self._counts = self._counts, dict.fromkeys(GUARD_COUNTS.counters, 0)
        return counts

    def take_failures(self) -> Failures | None:
        """Return the failures since the last call, if they have a budget and there were any."""
        if not self._errors:
            return None
        failures = Failures(dict(self._errors.most_common(_EXAMPLES)), tuple(self._examples))
        self._errors, self._examples = Counter(), []
        return failures

    def _note(self, error: Exception, record: Record) -> None:
        self._errors[type(error).__qualname__] += 1
        if len(self._examples) < _EXAMPLES:
            key, value, timestamp = map(short_repr, record)
            what = f"{type(error).__qualname__}: {error_text(error)[:_LONGEST]}"
            self._examples.append(masked(f"{what} at key {key}, value {value}, timestamp {timestamp}"))

    def gauges(self) -> Mapping[str, int]:
        """Return the gauges."""
        return {KEPT: len(self._letters)}

    def _keep(self, error: Exception, record: Record, attempts: int) -> None:
        """Pass a dead letter to the operators that take them, or else keep it, if there is room.

        Raises:
            OperatorError: if it has no such letter, and the policy is to fail then.
        """
        letters, policy = self._letters, self._policy
        place = place_of(error, self._operator.callback)
        if self.taken is not None:
            self.taken.append(letters.make(record, error, place, attempts))
            return
        letters.add(record, error, place, attempts)
        if len(letters) <= policy.keep and letters.size <= policy.keep_bytes:
            return
        if policy.full == "fail":
            reason = (
                f"it keeps as many dead letters as it may: {policy.keep:,}, or {policy.keep_bytes:,} bytes; take them "
                "by on_dead_letters(), replay or remove some, or raise keep= or keep_bytes= of OnError; this one is "
                f"{type(error).__name__}: {error_text(error)}"
            )
            raise self._operator.error(reason, record) from error
        while len(letters) > policy.keep or letters.size > policy.keep_bytes:
            letters.drop_oldest()
            self._counts[DROPPED] += 1

    def _fate_of(self, error: Exception, record: Record) -> Fate:
        decide = self._policy.fate
        if isinstance(decide, str):
            return decide
        name = self._operator.context.operator_name
        note = f"its on_error= function was to decide about {type(error).__name__}: {error_text(error)}"
        try:
            fate = decide(Failure(name, *record, error))
        except Exception as worse:
            worse.add_note(note)
            raise operator_error(name, worse, record, decide) from worse
        if fate not in FATES:
            words = " or ".join(map(repr, FATES))
            reason = f"its on_error= function must return {words}; got {short_repr(fate)}"
            raise operator_error(name, reason, record, decide) from error
        return fate


class Guarded(Operator):
    """The base of operators that survive failures of the user's function, as their `Guard` decides.

    Attributes:
        guard: the guard, set before the first tick.
    """

    guard: Guard

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick's facts about the run."""
        self.guard.begin_tick(tick)
        super().begin_tick(tick)

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters of the guard."""
        return self.guard.take_counts()

    def gauges(self) -> Mapping[str, int]:
        """Return the gauges of the guard."""
        return self.guard.gauges()

    def attempt(self, answers: Iterator[Any], batch: Batch, instead: Any = None) -> tuple[list[Any], list[int]]:
        """Return the answer for each record, and the positions of those at which the function failed.

        ``list.extend`` keeps the answers before an exception, and a `map` continues after the record that raised it. So
        there is no step between two calls of the user's function, and each record is passed to it once.

        Args:
            answers: a `map` that calls the function with each record, in order.
            batch: the records.
            instead: the answer for a record that failed.

        Raises:
            OperatorError: if the policy is to fail.
        """
        found: list[Any] = []
        failed: list[int] = []
        while True:
            try:
                found.extend(answers)
            except Exception as error:  # noqa: BLE001 - the guard raises it again, unless the policy settles it
                self.guard.take(error, record_of(batch, len(found)))
            else:
                if len(found) == len(batch):
                    return found, failed
                self.guard.take(StopIteration(), record_of(batch, len(found)))  # the function raised it
            failed.append(len(found))
            found.append(instead)


def record_of(batch: Batch, at: int) -> Record:
    """Return the key, the value and the timestamp of a record, by its position."""
    return NoKey if batch.keys is None else batch.keys[at], batch.values[at], batch.timestamps[at]


def without(failed: Sequence[int], batch: Batch) -> Batch:
    """Return the batch without the records at these positions."""
    if not failed:
        return batch
    mask = [True] * len(batch)
    for at in failed:
        mask[at] = False
    return batch.select(mask)
