"""The guard of an operator: decides about records at which the user's function fails."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any

from malflow.diagnostics import operator_error, place_of
from malflow.errors import MalflowError, OperatorError
from malflow.event_time.tick import Tick
from malflow.failures import FATES, DeadLetter, Failure, Failures, Fate, OnError
from malflow.message import DataMessage
from malflow.operators.contract import Counts, Operator
from malflow.operators.failures.dead_letters import FOLLOWS, Chosen, FailedTry, Letters, Record, masked
from malflow.operators.originals import are_atomic, has_changed, original_of, spare_of
from malflow.records.batch import Batch
from malflow.sources.contract import Rejected
from malflow.words import error_line, error_text, qualified_name, short_repr

__all__ = [
    "FAILED",
    "FATAL",
    "GUARD_COUNTS",
    "LETTERS",
    "RETRIED",
    "SKIPPED",
    "UNASKED",
    "Guard",
    "Record",
    "is_fatal",
]

_log = logging.getLogger("malflow.runtime")

FAILED, SKIPPED, LETTERS, DROPPED, RETRIED = "failed", "skipped", "letters", "dropped", "retried"
KEPT, PARKED_KEYS = "kept", "parked"

GUARD_COUNTS = Counts(counters=(FAILED, SKIPPED, LETTERS, DROPPED, RETRIED), gauges=(KEPT, PARKED_KEYS))
"""The counts of a guarded operator.

The counters: the records at which its function failed; the failed records that were skipped, and those that became
dead letters; the letters dropped because there was no more room; and the calls retried. The gauges: the letters kept,
and the parked keys.
"""

UNASKED = "CancelledError, though nobody cancelled the call"
"""The error text of a call that was cancelled from inside."""

Again = Callable[[Any, Any], Any]

FATAL = (MemoryError, MalflowError)
"""The exceptions that always end the run, whatever the policy, unless they say that a sink refuses records."""

_EXAMPLES = 3
"""Examples, and kinds of errors, per report. More: larger reports; fewer: less to diagnose an error by."""

_LONGEST = 200
"""Characters of an error in an example. More: longer reports; fewer: messages lose their end."""


class Guard:
    """Decides about the records of one operator, on one worker, at which the user's function failed.

    Args:
        operator: the operator.
        policy: its policy.
        letters: its dead letters.

    Attributes:
        input: the input edge of the operator whose records it takes.
        taken: the dead letters of this run of the operator, to pass to other operators; None if they are kept.
        takes_turns: whether calls may be retried, records left out, or values copied before the call.
        parks: whether keys may be parked.
        keeps_originals: whether the record of a failure is needed as it came: for a letter, or for another attempt.
        passed: the positions of the records that `turns` has left out.
    """

    def __init__(self, operator: Operator, policy: OnError, letters: Letters) -> None:
        self._operator = operator
        self._policy = policy
        self._letters = letters
        self.taken: list[DeadLetter] | None = None
        self.input = 0
        self._before: Sequence[int] = ()  # how often the record of each letter that is replayed was tried before
        self._replayed: tuple[str, Any] | None = None  # the key of the entry that is replayed, if its key is parked
        self._is_replay = False
        self._place: str | None = None  # where the raw record of the letter that is replayed was read
        self.passed: list[int] = []
        self._pauses = () if policy.retry is None else tuple(policy.retry.pauses())
        self.parks = policy.may_park and letters.is_placed
        self.keeps_originals = policy.may_keep or policy.retry is not None or operator.context.debug
        self.takes_turns = self.parks or self.keeps_originals
        self._has_turn = False  # whether there is a record whose turn it is, with a spare
        self._spare: Any = None  # makes a new copy of its value, as it was before the call
        self._renewed: dict[int, Any] = {}  # the copies that later attempts of this batch received, by position
        self._is_warned = False
        self._tries = 0
        self._again = False
        self._errors: Counter[str] = Counter()
        self._examples: list[str] = []
        self._counts = dict.fromkeys(GUARD_COUNTS.counters, 0)

    @property
    def may_keep(self) -> bool:
        """Whether a failed record may become a dead letter."""
        return self._policy.may_keep

    def take(
        self,
        error: BaseException,
        record: Record,
        reason: BaseException | str | None = None,
        *,
        at: int = 0,
        attempts: int | None = None,
        fate: Fate | None = None,
    ) -> None:
        """Handle a failure: return if the record is settled; the operator then continues without it.

        Args:
            error: the exception of the user's function.
            record: the key, the value and the timestamp of the record.
            reason: the reason for an error message; None for the exception itself.
            at: the position of the record in its batch, if dead letters are processed together.
            attempts: how often the record was tried, not counting earlier letters; None for the tries of `turns`.
            fate: the fate of the record; None to apply the policy.

        Raises:
            OperatorError: if the policy is to fail, the policy itself fails, or memory is short or the error is
                malflow's own, about which no policy decides.
        """
        if isinstance(error, OperatorError) and error.operator == self._operator.context.operator_name:
            raise error  # this guard raised it for an earlier record
        if self._has_turn:
            record = self.as_it_came(record, self._spare)
        if not isinstance(error, Exception):
            error = RuntimeError(UNASKED).with_traceback(error.__traceback__)
        if is_fatal(error):
            raise self._operator.error(error, record) from error
        fate = fate or self._fate_of(error, record)
        if fate == "fail":
            raise self._operator.error(reason or error, record) from error
        self._counts[FAILED] += 1
        self._note(qualified_name(error), error_text(error), record)
        if fate == "skip":
            self._counts[SKIPPED] += 1
            return
        if fate == "park":
            self._check_parks(error, record)
        before = self._before[at] if self._before else 0
        tries = self._tries + 1 if attempts is None else attempts
        tried = FailedTry.of(error, place_of(error, self._operator.callback), before + tries)
        self._keep(record, tried, error, parks=fate == "park")

    def reject(self, part: Any, rejected: Rejected) -> None:
        """Handle a record that a reader of a source could not read, where the policy is not to fail.

        Args:
            part: the part.
            rejected: the record.

        Raises:
            OperatorError: if there is no room for its letter, and the policy is to fail then.
        """
        record = part, rejected.value, rejected.timestamp
        self._counts[FAILED] += 1
        reason = masked(rejected.reason)
        self._note(rejected.error, reason, record)
        if self._policy.fate == "skip":
            self._counts[SKIPPED] += 1
            return
        before = self._before[0] if self._before else 0
        tried = FailedTry(rejected.error, reason, "", rejected.place or self._place, before + 1)
        self._keep(record, tried, ValueError(reason), parks=False)

    def turns(self, items: Iterable[Any], batch: Batch | None = None, again: Again | None = None) -> Iterable[Any]:
        """Return the items to call the function with, in order: again for each retry, and without items of parked keys.

        Args:
            items: an item for each record; without a batch, messages or records as tuples.
            batch: the records.
            again: returns the item for another attempt, from the item and a new copy of the value as it came; by
                default the value, or a message or record with it.
        """
        if not self.takes_turns:
            return items
        self.passed = []
        self._renewed = {}
        if self.parks or self._policy.retry is not None:
            return self._in_turn(items, batch, again or (_again if batch is None else _value))
        if batch is None:
            return self._spared(items)
        return items if are_atomic(batch.values) else self._spared(zip(items, batch.values, strict=True), pairs=True)

    def renewed(self, batch: Batch) -> Batch:
        """Return the batch with the values that the last attempts received, for an operator that passes values on."""
        if not self._renewed:
            return batch
        return batch.with_values([self._renewed.get(at, value) for at, value in enumerate(batch.values)])

    def follows(self, record: Record) -> bool:
        """Keep a record as a letter if its key is parked; return whether it is.

        Args:
            record: the record.
        """
        parked = self._letters.parked
        if not parked or not self.parks or self._is_replay or record[0] not in parked:
            return False
        self._keep(record, FOLLOWS, None, parks=True)
        return True

    def note_columns(self, types: bytes | None) -> None:
        """Note the types of the columns that the next records are rows of, for their letters."""
        self._letters.columns = types

    def leave(self, positions: Collection[int]) -> None:
        """Note that letters that are replayed together are settled; the others have other positions then."""
        self._before = [count for at, count in enumerate(self._before) if at not in positions]

    def begin_record(self) -> None:
        """Begin with a record that no item of `turns` stands for: its function has been called once."""
        self._tries, self._again, self._has_turn, self._spare = 0, False, False, None

    def may_follow(self, keys: Iterable[Any] = ()) -> Collection[Any]:
        """Return the keys whose records are not to be tried: those parked, with some that are parked next."""
        return {*keys, *self._letters.parked} if self.parks and not self._is_replay else ()

    def repeats(self, error: BaseException) -> bool:
        """Return whether to retry the failed call with the next item of `turns`, after pausing for it."""
        retry = self._policy.retry
        if retry is None or self._tries == len(self._pauses) or not isinstance(error, retry.on):
            return False
        if is_fatal(error):
            return False
        sleep(self._pauses[self._tries])
        self._tries += 1
        self._counts[RETRIED] += 1
        self._again = True
        return True

    def _spared(self, items: Iterable[Any], *, pairs: bool = False) -> Iterator[Any]:
        """Yield the items, each after making a spare of its value; with `pairs`, the values are given beside them."""
        self._has_turn = True
        if pairs:
            for item, value in items:
                self._spare = spare_of(value)
                yield item
        else:
            for item in items:
                self._spare = spare_of(_as_record(item)[1])
                yield item
        self._has_turn, self._spare = False, None

    def _in_turn(self, items: Iterable[Any], batch: Batch | None, again: Again) -> Iterator[Any]:
        keeps = self.keeps_originals
        records = None if batch is None else zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        for at, item in enumerate(items):
            record = _as_record(item) if records is None else next(records)
            if self.follows(record):
                self.passed.append(at)
                continue
            self._tries = 0
            if keeps:
                self._has_turn, self._spare = True, spare_of(record[1])
            yield item
            while self._again:
                self._again = False
                if self._spare is record[1]:
                    yield item
                    continue
                self._renewed[at] = value = original_of(self._spare)
                yield again(item, value)
        self._tries = 0
        self._has_turn, self._spare = False, None

    def as_it_came(self, record: Record, spare: Any) -> Record:
        """Return a record with its value as it was before the call: there is a spare of it."""
        key, value, timestamp = record
        if spare is value:
            return record
        original = original_of(spare)
        if self._operator.context.debug and not self._is_warned and has_changed(value, spare):
            self._is_warned = True
            _log.warning(
                "operator '%s': its function changed the record before it failed: it was %s, and is %s; other "
                "operators that read the stream share the value: change a copy",
                self._operator.context.operator_name,
                short_repr(original),
                short_repr(value),
            )
        return key, original, timestamp

    @contextmanager
    def replaying(self, group: Sequence[Chosen]) -> Iterator[None]:
        """Process the records of letters within the context; the letters that did not fail again are then dropped.

        Args:
            group: the letters with the keys of their entries; a letter with a parked key must be the only one.
        """
        self._before, self._is_replay = [letter.attempts for _, letter in group], True
        self._place = group[0][1].place
        for entry, letter in group:
            if letter.is_parked:
                self._replayed = entry
            else:
                self._letters.drop(entry)
        try:
            yield
            if self._replayed is not None:
                self._letters.drop(self._replayed)
        finally:
            self._before, self._is_replay, self._replayed = (), False, None

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick's number and time."""
        self._letters.begin_tick(tick)

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters since the last call."""
        counts, self._counts = self._counts, dict.fromkeys(GUARD_COUNTS.counters, 0)
        return counts

    def take_failures(self) -> Failures | None:
        """Return the failures since the last call, if there were any."""
        if not self._errors:
            return None
        failures = Failures(dict(self._errors.most_common(_EXAMPLES)), tuple(self._examples))
        self._errors, self._examples = Counter(), []
        return failures

    def _note(self, error: str, message: str, record: Record) -> None:
        self._errors[error] += 1
        if len(self._examples) < _EXAMPLES:
            key, value, timestamp = map(short_repr, record)
            what = f"{error}: {message[:_LONGEST]}"
            self._examples.append(masked(f"{what} at key {key}, value {value}, timestamp {timestamp}"))

    def gauges(self) -> Mapping[str, int]:
        """Return the gauges."""
        return {KEPT: len(self._letters), PARKED_KEYS: len(self._letters.parked) if self.parks else 0}

    def _keep(self, record: Record, tried: FailedTry, error: Exception | None, *, parks: bool) -> None:
        """Pass a dead letter to the operators that take them, or else keep it, if there is room.

        Args:
            record: the record.
            tried: its failure.
            error: the exception; None for a record that follows an earlier one of its key.
            parks: whether later records of the key follow it.

        Raises:
            OperatorError: if there is no room for the letter and ``full`` is to fail, or the key can't be parked.
        """
        letters, policy, operator = self._letters, self._policy, self._operator
        self._counts[LETTERS] += 1
        if self.taken is not None:
            self.taken.append(letters.make(record, tried, self.input))
            return
        replayed, self._replayed = self._replayed, None
        if replayed is not None and not parks:
            letters.drop(replayed)
        try:
            letters.add(record, tried, self.input, parks=parks, at=replayed if parks else None)
        except ValueError as unusable:
            raise operator.error(unusable, record) from error
        if len(letters) <= policy.keep and letters.size <= policy.keep_bytes:
            return
        if policy.full == "fail":
            told = "of a parked key" if error is None else f"{tried.error}: {tried.message}"
            reason = (
                f"it keeps as many dead letters as it may: {policy.keep:,}, or {policy.keep_bytes:,} bytes; take them "
                "by on_dead_letters(), replay or remove some, or raise keep= or keep_bytes= of OnError; this one is "
                f"{told}"
            )
            raise operator.error(reason, record) from error
        while len(letters) > policy.keep or letters.size > policy.keep_bytes:
            letters.drop_oldest()
            self._counts[DROPPED] += 1

    def _check_parks(self, error: Exception, record: Record) -> None:
        """Check that a function of the policy may park the key of a record.

        Raises:
            OperatorError: if not.
        """
        if self.parks and self.taken is None:
            return
        if self.taken is not None:
            reason = "whose letters are taken as a stream"
        else:
            reason = "whose keys no exchange has distributed"
        message = f"its on_error= function returned 'park' for an operator {reason}; return 'dead_letter'"
        raise operator_error(self._operator.context.operator_name, message, record, self._policy.fate) from error

    def _fate_of(self, error: Exception, record: Record) -> Fate:
        decide = self._policy.fate
        if isinstance(decide, str):
            return decide
        name = self._operator.context.operator_name
        note = f"its on_error= function was to decide about {error_line(error)}"
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


def is_fatal(error: BaseException) -> bool:
    """Whether an exception ends the run, whatever the policy."""
    return isinstance(error, FATAL) and not getattr(error, "refuses_records", False)


def _value(_item: Any, value: Any) -> Any:
    return value


def _again(item: Any, value: Any) -> Any:
    if type(item) is tuple:
        return item[0], value, item[2]
    return DataMessage(item.key, value, item.timestamp)


def _as_record(item: Any) -> Record:
    return item if type(item) is tuple else (item.key, item.value, item.timestamp)
