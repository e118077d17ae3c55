"""Policies for user functions that fail, limits for calls of other systems, and whether a wait for one must end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from malflow.callables import deferred, takes
from malflow.checks import check_choice, check_number, check_whole_number, checked_duration, checked_seconds
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.words import did_you_mean, short_repr

__all__ = [
    "FAIL",
    "FATES",
    "PARKED",
    "Breaker",
    "BreakerOpen",
    "Budget",
    "DeadLetter",
    "ErrorPolicy",
    "Failure",
    "Failures",
    "Fate",
    "OnError",
    "Rate",
    "Replay",
    "Replayed",
    "Retry",
    "is_stopping",
    "policy_of",
    "stops_if",
]

Fate = Literal["fail", "skip", "dead_letter", "park"]
"""The fate of a record at which a function failed: it ends the run, is skipped, becomes a dead letter, or becomes one
and parks its key, so that the later records of the key follow it."""

FATES: tuple[Fate, ...] = ("fail", "skip", "dead_letter", "park")

PARKED = "Parked"
"""The `error` of a dead letter whose record was not tried, since an earlier record of its key is parked."""

_MOST_ATTEMPTS = 100
"""The most attempts for a call of a plain function: the whole run waits for them. Half of it limits quick retries more,
double holds up the run for longer at a hopeless record."""

_LONGEST_SLEEP = 1.0
"""The most seconds of pauses between the attempts, for the same reason."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call of a user's function that failed, as a policy sees it.

    Attributes:
        operator: the operator's name.
        key: the key of the record; `NoKey` without one.
        value: its value.
        timestamp: its timestamp.
        error: the exception that the function raised.
    """

    operator: str
    key: Any
    value: Any
    timestamp: Any
    error: Exception


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record at which a user's function failed, with the failure.

    A repeated tick makes the same letters: nothing in them depends on a clock, an address or a process.

    Attributes:
        id: identifies the letter among its operator's letters, in all runs of the job.
        operator: the operator's name.
        key: the key of the record; `NoKey` without one.
        value: its value; the text of it if `is_text`.
        timestamp: its timestamp.
        error: the name of the exception's class; ``Parked`` for a record that follows an earlier one of its key.
        message: the exception's text, up to 4,096 characters.
        place: the user's function, with file and line; None if unknown.
        trace: the traceback in the user's code, up to 4,096 characters: its end.
        attempts: how often the record was tried.
        tick: the number of the tick.
        worker: the worker.
        at: the time of the tick, in UTC.
        is_text: whether key, value and timestamp could not be serialised, and are texts.
        is_parked: whether its key is parked by the policy ``"park"``, so that later records of the key follow it.
        input: the input of the operator that it came from: 1 for the other stream of a `connect`, else 0.
    """

    id: str
    operator: str
    key: Any
    value: Any
    timestamp: Any
    error: str
    message: str
    place: str | None
    trace: str
    attempts: int
    tick: int
    worker: int
    at: datetime
    is_text: bool = False
    is_parked: bool = False
    input: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The share of an operator's records that may fail; more than that is a broken program, and ends the run.

    Args:
        share: the share, from 0 to 1.
        window: the time, by the start of ticks, over which the share is taken. A restart begins a new one.
        least: the number of records in the window below which nothing is decided.

    Raises:
        GraphError: if an argument is invalid.
    """

    share: float
    window: Duration = timedelta(minutes=1)
    least: int = 100

    def __post_init__(self) -> None:
        check_number("Budget", "share", self.share, least=0, most=1)
        object.__setattr__(self, "window", checked_duration("Budget", "window", self.window))
        check_whole_number("Budget", "least", self.least)


class Failures(NamedTuple):
    """Failures of an operator in a tick, for the error of a run with a spent budget.

    Attributes:
        errors: the number of failures by the exception's class.
        examples: some of them.
    """

    errors: Mapping[str, int]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """A request about the dead letters of an operator, for one tick.

    Attributes:
        operator: the operator's name.
        ids: the ids of the letters; None for all.
        discards: whether they are removed without a further attempt.
    """

    operator: str
    ids: tuple[str, ...] | None = None
    discards: bool = False


class Replayed(NamedTuple):
    """The outcome of a request to replay or to discard dead letters.

    Attributes:
        done: how many were replayed or discarded.
        late: how many stay since their timestamps are at or before the last epoch (watermark) of the operator's
            input: downstream, they would break what windows are promised. Guard an operator before the epochs.
        texts: how many stay since their records could not be serialised, so that only texts are known.
        parked: how many stay because an earlier letter of their key stays; the letters of a parked key leave in order.
    """

    done: int = 0
    late: int = 0
    texts: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call that failed is repeated, and after which pauses.

    Args:
        attempts: the maximum number of attempts, with the first one.
        first: the pause before the second attempt.
        factor: by how much each further pause is longer.
        longest: the longest pause.
        on: the exceptions after which a call is repeated; any other fails at once.

    Raises:
        GraphError: if an argument is invalid.

    >>> list(Retry(attempts=5, first=1, longest=3).pauses())
    [1, 2, 3, 3]
    """

    attempts: int = 3
    first: Duration = 0.1
    factor: float = 2
    longest: Duration = 5
    on: tuple[type[Exception], ...] = (TimeoutError,)

    def __post_init__(self) -> None:
        check_whole_number("Retry", "attempts", self.attempts)
        for name in ("first", "longest"):
            pause = getattr(self, name)
            seconds = checked_seconds("Retry", name, pause, may_be_zero=True)
            object.__setattr__(self, name, seconds if isinstance(pause, str | timedelta) else pause)
        check_number("Retry", "factor", self.factor, least=1)
        kinds: Any = self.on
        if not isinstance(kinds, tuple) or not kinds or not all(map(_is_exception, kinds)):
            raise GraphError(f"Retry on must be a tuple of classes of exceptions; got {short_repr(kinds)}")

    def pauses(self) -> Iterator[float]:
        """Yield the pause before each attempt but the first, in seconds."""
        first, longest = self._numbers
        pause = min(first, longest)
        for _ in range(self.attempts - 1):
            yield pause
            pause = min(longest, pause * self.factor)

    @property
    def _numbers(self) -> tuple[float, float]:
        """The first and the longest pause, in seconds."""
        return self.first, self.longest  # type: ignore[return-value] # numbers once the options have been checked


def _check_retry(retry: object) -> None:
    """Check that a retry is allowed for a plain function."""
    if retry is None:
        return
    if not isinstance(retry, Retry):
        raise GraphError(f"OnError retry must be a Retry; got {short_repr(retry)}")
    if retry.attempts > _MOST_ATTEMPTS:
        raise GraphError(f"OnError retry must have at most {_MOST_ATTEMPTS} attempts; got {retry.attempts:,}")
    if (pauses := sum(retry.pauses())) > _LONGEST_SLEEP:
        raise GraphError(
            f"OnError retry may pause for {pauses:.3g} s in sum, and the whole run waits meanwhile; at most "
            f"{_LONGEST_SLEEP:g} s is allowed: lower attempts=, first= or longest=, or call out by .map_async()"
        )


def _is_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


@dataclass(frozen=True, slots=True)
class OnError:
    """The policy of an operator for records at which its function fails.

    Args:
        fate: the fate of such a record, or a function that decides about each `Failure`.
        keep: how many dead letters each worker keeps.
        keep_bytes: how many bytes they may have, serialised.
        full: whether one more letter ends the run, or the oldest ones are dropped and counted.
        budget: the share of records that may fail before the run ends; None for any share.
        retry: how a failed call is retried before the policy decides about its record. The run waits meanwhile, so the
            pauses may total at most one second.

    Raises:
        GraphError: if an argument is invalid.
    """

    fate: Fate | Callable[[Failure], Fate] = "fail"
    keep: int = 10_000
    keep_bytes: int = 64 << 20
    full: Literal["fail", "drop_oldest"] = "fail"
    budget: Budget | None = None
    retry: Retry | None = None

    def __post_init__(self) -> None:
        check_whole_number("OnError", "keep", self.keep)
        check_whole_number("OnError", "keep_bytes", self.keep_bytes)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise GraphError(f"OnError budget must be a Budget; got {short_repr(self.budget)}")
        _check_retry(self.retry)
        check_choice("OnError", "full", self.full, ("fail", "drop_oldest"))
        if isinstance(self.fate, str):
            if self.fate not in FATES:
                hint = did_you_mean(self.fate, FATES, else_="")
                raise GraphError(f"on_error= takes {_WORDS}; got {short_repr(self.fate)}{hint}")
            return
        if not callable(self.fate):
            raise GraphError(f"on_error= takes {_WORDS}; got {short_repr(self.fate)}")
        kind = deferred(self.fate)
        if kind is not None:
            raise GraphError(f"on_error= takes a plain function; got {kind}, which decides nothing when it is called")
        if not takes(self.fate, 1):
            raise GraphError("on_error= calls its function as on_error(failure), but it takes other arguments")

    @property
    def never_passes(self) -> bool:
        """Whether every failure ends the run; calls then need no guard."""
        return self.fate == "fail" and self.retry is None

    @property
    def may_keep(self) -> bool:
        """Whether a failed record may become a dead letter."""
        return self.fate not in ("fail", "skip")

    @property
    def may_park(self) -> bool:
        """Whether later records of a key may follow one that failed."""
        return self.fate == "park" or not isinstance(self.fate, str)


FAIL = OnError()
"""The default policy: every failure ends the run."""

ErrorPolicy: TypeAlias = Fate | Callable[[Failure], Fate] | OnError
"""The argument ``on_error=`` of operators."""


def policy_of(on_error: ErrorPolicy) -> OnError:
    """Return the policy that an argument ``on_error=`` denotes.

    Raises:
        GraphError: if it denotes none.
    """
    return on_error if isinstance(on_error, OnError) else OnError(on_error)


_WORDS = f"{', '.join(repr(word) for word in FATES)} or a function of the failure that returns one of these words"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many calls begin in a second: a token bucket for all workers of a process.

    Each process has the share of its workers: one of two processes with as many workers each begins half of the calls.

    Args:
        per_second: the number of calls.
        burst: how many of them may begin at once after a pause.

    Raises:
        GraphError: if an argument is invalid.
    """

    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        check_number("Rate", "per_second", self.per_second, above=0)
        check_whole_number("Rate", "burst", self.burst)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When calls are held back, since too many of the last attempts have failed.

    A breaker opens if `failures` of the last `of` attempts have failed. After `open_for` one call is tried: if it
    succeeds, the breaker closes; if it fails, the breaker stays open for as long again.

    Args:
        failures: the number of failures that opens it.
        of: the number of attempts that it looks back on.
        open_for: how long it stays open.
        then: how calls are handled while it is open. ``"wait"``: they wait inside the tick, for an outage of any
            length; if the one call that is tried fails, that does not count as one of its attempts. ``"fail"``: they
            fail at once with a `BreakerOpen`, and the operator's `on_error` decides. ``"dead_letter"``: their records
            become dead letters, even if `on_error` is a function that would decide otherwise.

    Raises:
        GraphError: if an argument is invalid.
    """

    failures: int = 20
    of: int = 100
    open_for: Duration = timedelta(seconds=30)
    then: Literal["wait", "fail", "dead_letter"] = "wait"

    def __post_init__(self) -> None:
        check_whole_number("Breaker", "failures", self.failures)
        check_whole_number("Breaker", "of", self.of)
        if self.failures > self.of:
            raise GraphError(f"Breaker looks back on of={self.of} attempts, fewer than failures={self.failures}")
        object.__setattr__(self, "open_for", checked_duration("Breaker", "open_for", self.open_for))
        check_choice("Breaker", "then", self.then, ("wait", "fail", "dead_letter"))


class BreakerOpen(ConnectionError):
    """A call was not made, since too many of the last attempts have failed."""


_asked: ContextVar[Callable[[], bool] | None] = ContextVar("malflow_is_stopping", default=None)


@contextmanager
def stops_if(asked: Callable[[], bool]) -> Iterator[None]:
    """Within the context, let a function answer `is_stopping` on this thread."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def is_stopping() -> bool:
    """Whether the run on this thread has been asked to stop; a wait for an unavailable server must then end."""
    asked = _asked.get()
    return asked is not None and asked()
