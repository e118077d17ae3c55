"""The contract of operators with the engine, and of logics with their users."""

from __future__ import annotations

import gc
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from malflow.callables import reads_only
from malflow.diagnostics import operator_error
from malflow.durations import Duration
from malflow.event_time.tick import Tick
from malflow.message import DataMessage, NoKey, Timing
from malflow.operators.waiting import OperatorTime, Waiting
from malflow.partitioners import Partitioner, check_key
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.states.paned import OperatorState
from malflow.type_parameters import VO, K, S, T, V
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.operators.failures.guard import Guard

__all__ = [
    "NO_COUNTS",
    "Counts",
    "Logic",
    "Operator",
    "OperatorContext",
    "Output",
    "StateKeeper",
    "StatefulHooks",
    "StatefulLogic",
    "StatelessLogic",
    "check_not_kept",
    "overridden",
]


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of its own that an operator reports. Its node declares them.

    Attributes:
        counters: the names of its counters, which the run adds up over ticks and workers.
        gauges: the names of its gauges; the run adds up the latest of each worker.
    """

    counters: tuple[str, ...] = ()
    gauges: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counters or self.gauges)

    def with_those_of(self, other: Counts) -> Counts:
        """Return the counts of both."""
        counters = dict.fromkeys((*self.counters, *other.counters))
        return Counts(tuple(counters), tuple(dict.fromkeys((*self.gauges, *other.gauges))))


NO_COUNTS = Counts()
"""The counts of an operator without counters and gauges."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The name, worker and settings of an operator.

    Attributes:
        operator_name: the operator's name.
        worker_id: the logical worker that runs it, ``0..n-1``.
        workers: all workers.
        tracked: whether changes of its state are tracked.
        debug: whether the run performs the checks that are too slow for production.
        placement: the partitioner of its keys; None without one, or for an operator without state.
        pickle_reader: pickles a reader that has no position; None where workers stay in one process.
    """

    operator_name: str
    worker_id: int = 0
    workers: Sequence[int] = field(default=(0,), repr=False)
    tracked: bool = field(default=False, repr=False)
    debug: bool = field(default=False, repr=False)
    placement: Partitioner | None = field(default=None, repr=False)
    pickle_reader: Callable[[Any], bytes] | None = field(default=None, repr=False)

    @property
    def admit(self) -> Callable[[Any], None]:
        """Return the check that a new key is valid and belongs to this worker."""
        return check_key if self.placement is None or len(self.workers) == 1 else self._admit

    def _admit(self, key: Any) -> None:
        check_key(key)
        owner = None if self.placement is None else self.placement(key, self.workers)
        if owner not in (None, self.worker_id):
            raise ValueError(
                f"key {short_repr(key)} reached worker {self.worker_id} but belongs to worker {owner}: it was changed "
                "after .key_distribute(); keep the key as it is, or call .key_distribute() again"
            )


class Output(Generic[K, V, T]):
    """The output of a logic.

    Attributes:
        timing: ``Timing.END`` if the end of the input calls `on_timer` or `on_epoch`; otherwise ``Timing.FINAL``.
    """

    __slots__ = ("_keys", "_timestamps", "_values", "timing")

    def __init__(self) -> None:
        self.timing = Timing.FINAL
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._timestamps: list[Any] = []

    def send(self, message: DataMessage[K, V, T]) -> None:
        """Emit a message. It should keep the key of the input, and not be older than the last epoch.

        Raises:
            TypeError: if it is not a `DataMessage`.
        """
        if not isinstance(message, DataMessage):
            raise TypeError(f"output.send takes a DataMessage(key, value, timestamp); got {message!r}")
        self._keys.append(message.key)
        self._values.append(message.value)
        self._timestamps.append(message.timestamp)

    def wake(self, at: T) -> None:
        """Set the timer of the current key, for a logic of a `stateful_op` with `on_timer`.

        Each key has at most one timer: a later call replaces it, and a call with the same time has no effect.

        Args:
            at: the event time at which to call `on_timer`. It must be after the last epoch or, in `on_timer`, after the
                timer's own time.

        Raises:
            TypeError: if the logic has no `on_timer`, there is no current key, or `at` is not a time.
            ValueError: if `at` has already passed.
        """
        raise TypeError(_NO_TIMERS)

    def wake_after(self, delay: Duration) -> None:
        """Set the timer of the current key by the clock, not by event time, in place of any other.

        It fires in the first tick that starts at least `delay` after the start of the current one, before the tick's
        records; `on_timer` receives that time, a datetime in UTC, as its `at`. Messages that it sends still need an
        event-time timestamp after the last epoch. Results depend on the clock, but a tick that Spark repeats after a
        failure has the same time.

        Raises:
            TypeError: if the logic has no `on_timer`, there is no current key, or `delay` is not a time above zero.
        """
        raise TypeError(_NO_TIMERS)

    def sleep(self) -> None:
        """Drop the timer of the current key, if it has one.

        Raises:
            TypeError: if the logic has no `on_timer`, or there is no current key.
        """
        raise TypeError(_NO_TIMERS)

    def __len__(self) -> int:
        return len(self._values)

    def cut(self, length: int) -> None:
        """Take back all messages but the first `length`."""
        del self._keys[length:], self._values[length:], self._timestamps[length:]

    def take(self, epochs: Sequence[tuple[int, Any]] = ()) -> Batch:
        """Return the messages sent so far as one batch, and clear them."""
        batch = Batch(self._keys, self._values, self._timestamps, epochs)
        self._keys, self._values, self._timestamps = [], [], []
        return batch


class StatelessLogic(Generic[K, V, T, VO]):
    """The logic of a `stateless_op`. Subclassing is optional; a function ``(msg, output)`` also works."""

    @abstractmethod
    def on_data(self, msg: DataMessage[K, V, T], output: Output[K, VO, T]) -> None:
        """Process one message, and send any number."""

    def on_epoch(self, epoch: T, output: Output[K, VO, T]) -> None:
        """Process an epoch; messages sent here precede it.

        The last epoch, after all sources have ended, is `MAX` (not a number or date).
        """


class StatefulHooks(Generic[K, T, VO, S]):
    """The methods that a logic with a state may have besides those for messages."""

    def on_epoch(self, epoch: T, states: MutableMapping[K, S], output: Output[K, VO, T]) -> None:
        """Process an epoch with all states of this worker, in first-seen order; messages sent here precede it.

        The last epoch, after all sources have ended, is `MAX` (not a number or date, but greater than any). Changes to
        the states at this epoch are not saved, since a run that resumes may have more input.
        """

    def on_timer(self, key: K, at: T, state: S, output: Output[K, VO, T]) -> S | None:
        """Process the timer that ``output.wake(at)`` has set, and return the state of its key.

        An epoch fires the timers of a worker that it has reached in ascending order, before `on_epoch` and before the
        epoch moves downstream, so a message sent here with the timestamp `at` is on time. A timer set here fires at the
        same epoch if the epoch has reached it. None as the new state drops the key.

        At the epoch `MAX`, each timer fires once; timers set during this epoch do not fire. ``output.timing`` is then
        ``Timing.END``, and changes to states are not saved: see `on_epoch`.
        """
        return state

    def on_schedule(self, states: MutableMapping[K, S], output: Output[K, VO, T]) -> None:
        """Process the start of a tick, with or without input."""


class StatefulLogic(StatefulHooks[K, T, VO, S], Generic[K, V, T, VO, S]):
    """The logic of a `stateful_op`. Subclassing is optional; a function ``(msg, state, output) -> state`` works."""

    @abstractmethod
    def on_data(self, msg: DataMessage[K, V, T], state: S, output: Output[K, VO, T]) -> S | None:
        """Process one message with the state of its key, send any number, and return the new state; None drops it."""


class StateKeeper(Protocol):
    """A keeper of state: an operator, or a helper with a hidden state."""

    @property
    def state(self) -> OperatorState | None:
        """The state."""

    def sync_state(self) -> None:
        """Write data that is kept elsewhere during processing to `state`."""

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""

    def apply(self, delta: Delta, /) -> None:
        """Apply a delta to the state."""

    def forget(self) -> None:
        """Make the next delta complete."""


class Operator:
    """One operator on one worker.

    A runtime treats all operators alike. It loads the state with `apply` and calls `open`; in each tick, it calls `run`
    and `flush`; between ticks it may ask for a `delta`; at the end it calls `close`. An operator overrides only the
    methods that it needs. It does not depend on files, threads or the runtime that hosts it; data that must outlive it
    is in `state`.
    """

    state: OperatorState | None = None
    hidden: Mapping[str, StateKeeper] = MappingProxyType({})
    """The additional states of the operator, by role."""
    is_repeatable = True
    """Whether the same input and state always give the same output; not if it asks systems outside."""
    takes_batches = False
    """Whether it gets whole batches in a debug run too, rather than single records."""
    keeps_columns = False
    """Whether it takes batches of columns without making rows of them, and emits columns then."""
    makes_columns = False
    """Whether it emits columns whatever it gets."""
    takes_pieces = True
    """Whether several calls of `run` may share a tick's epoch-free input with the same result."""
    guard: Guard | None = None
    """Decides about records at which the user's function fails; None if a failure ends the run. Read once a batch."""
    calls = 0
    """The greatest number of simultaneous calls to an external system since a worker last set it to zero."""
    demotions = 0
    """How often it gave up its arrays and continued record by record, since a worker last set it to zero."""
    _looked_at: tuple[Any, bool] | None = None

    def __init__(self, context: OperatorContext, callback: Any = None) -> None:
        self.context = context
        self.callback = callback

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Process the batches of each input edge; each yield has a batch for every output."""
        for batch in edges[0]:
            yield self.process(batch)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process one batch; return a batch for each output."""
        raise NotImplementedError

    replays_together = False
    """Whether the records of dead letters are processed as one batch rather than one by one."""

    def turn_to(self, edge: int) -> None:
        """Take the records of the next batch as records of an input edge, for `process` and `process_again`."""

    def turn_to_columns(self, types: bytes | None) -> None:
        """Take the records of the next batch as rows of columns with these types, for `process_again`."""

    def process_again(self, batch: Batch) -> Sequence[Batch]:
        """Process the records of dead letters again; return a batch for each output."""
        return self.process(batch)

    @property
    def resource(self) -> object:
        """The object that `flush` and `close` act on: the operator, or one shared by the workers of a process."""
        return self

    def open(self) -> None:
        """Acquire resources; called after the state is loaded and before the first tick."""

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick's facts about the run; called before `run`."""

    def flush(self) -> None:
        """Make all output so far visible; called at the end of every tick."""

    def park(self) -> None:
        """Close, but keep resources that remain useful when a newer state is loaded and `open` is called again."""
        self.close()

    def close(self) -> None:
        """Release all resources."""

    def sync_state(self) -> None:
        """Write data that the operator keeps elsewhere during processing to `state`."""

    def look(self, keys: Iterable[Any] | None, limit: int) -> OperatorState | None:
        """Return the state, or a copy of a part of it, to be read before the next tick. It does not count as a change.

        Args:
            keys: the keys of records whose states are wanted; None for the first entries that there are.
            limit: how many entries are wanted at most, if `keys` is None.
        """
        del keys, limit
        self.sync_state()
        return self.state

    def transfer_parts(self, holder_of: Callable[[Any], Self]) -> None:
        """Transfer each part of this operator to the worker that holds it from now on.

        Args:
            holder_of: returns this operator on the worker that holds a part.
        """

    def waiting(self) -> Waiting | None:
        """Return the results that wait for an epoch; None if the operator keeps none."""
        return None

    def held(self) -> Waiting | None:
        """Return the open results, or None. The end of the input would emit them."""
        return self.waiting()

    def edges_reached(self) -> Mapping[int, Any] | None:
        """Return the epochs of the active input edges, None for an edge without; None if there is one edge."""
        return None

    def time(self) -> OperatorTime:
        """Return the operator's progress in event time, for `explain_time`."""
        return OperatorTime(self.waiting(), self.edges_reached())

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set the idleness of each input edge; called when it changes. See `malflow.engine.worker_time.Idle`."""

    def holdup(self) -> str | None:
        """Return why the operator waits within a tick, or None; may be called from another thread while it runs."""
        return None

    def take_counts(self) -> Mapping[str, int]:
        """Return the operator's counters since the last call: one for each name that its node declares."""
        return {} if self.guard is None else self.guard.take_counts()

    def gauges(self) -> Mapping[str, int]:
        """Return the current values of the operator's gauges: one for each name that its node declares."""
        return {} if self.guard is None else self.guard.gauges()

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return Delta() if self.state is None else self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        if self.state is not None:
            self.state.apply(delta)

    def forget(self) -> None:
        """Make the next delta complete."""
        if self.state is not None:
            self.state.forget()

    def fail(self, error: BaseException | str, batch: Batch, rest: Iterator[Any]) -> Exception:
        """Raise the error for the record at which user code failed, the last one that the iterator `rest` returned."""
        return self.fail_at(error, batch, max(0, len(batch) - length_hint(rest) - 1), self.callback)

    def fail_at(self, error: BaseException | str, batch: Batch, at: int, callback: Any) -> Exception:
        """Return the error for the record at a position of a batch, at which a function of the user failed."""
        key = NoKey if batch.keys is None else batch.keys[at]
        record = key, batch.values[at], batch.timestamps[at]
        return operator_error(self.context.operator_name, error, record, callback)

    def error(
        self, error: BaseException | str, record: tuple[Any, Any, Any] | None = None, *, about: str = ""
    ) -> Exception:
        """Return the error for a failure of this operator's user code."""
        return operator_error(self.context.operator_name, error, record, self.callback, about=about)

    def call_each(self, function: Callable[[Any], Any], batch: Batch, rest: Iterator[Any]) -> list[Any]:
        """Call a function of a message with each record, reusing one view object.

        Raises:
            TypeError: if checks are on and the function kept the view.
        """
        view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
        if not self.context.debug and self._looks_at_values(function):
            return [function(view) for view.value in rest]
        if batch.keys is None:
            answers = [function(view) for view.value, view.timestamp in zip(rest, batch.timestamps, strict=True)]
        else:
            answers = [
                function(view)
                for view.key, view.value, view.timestamp in zip(batch.keys, rest, batch.timestamps, strict=True)
            ]
        if self.context.debug:
            check_not_kept(view)
        return answers

    def _looks_at_values(self, function: Callable[[Any], Any]) -> bool:
        """Whether a function of a message reads nothing of it but the value; key and timestamp need not be set then."""
        if self._looked_at is None or self._looked_at[0] is not function:
            self._looked_at = function, reads_only(function, "value")
        return self._looked_at[1]


def overridden(logic: object, method: str, base: type) -> Callable[..., Any] | None:
    """Return a logic's optional method, or None if the logic inherits the contract's empty one."""
    if getattr(type(logic), method, None) is getattr(base, method):
        return None
    return getattr(logic, method, None)


def check_not_kept(view: DataMessage[Any, Any, Any]) -> None:
    """Check that user functions have not kept the view of a message.

    Raises:
        TypeError: if one has.
    """
    if sys.getrefcount(view) > _OWN_REFERENCES:
        gc.collect()
    if sys.getrefcount(view) > _OWN_REFERENCES:
        raise TypeError(
            "the function kept its message, which is reused for the next record; "
            "keep a copy, such as copy.copy(msg), or the fields it needs"
        )


Logic = Callable[[OperatorContext], Operator]
"""The function in a node that creates the operator on one worker."""

_NO_TIMERS = (
    "timers need a logic object of .stateful_op() with a method on_timer(key, at, state, output), which is called when "
    "a timer fires; write a class derived from StatefulLogic"
)

_OWN_REFERENCES = 3
"""The references to a view while they are counted: the caller's, this function's, and the counter's."""
