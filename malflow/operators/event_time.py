"""Timestamps, epochs and lateness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from malflow.batch import Batch
from malflow.errors import GraphError, OperatorError
from malflow.message import MAX, DataMessage, NoKey
from malflow.operators.contract import Operator, OperatorContext, refuse_kept
from malflow.operators.moments import check_epoch, check_timestamps
from malflow.state import Delta, KeyedState

__all__ = ["AssignTimestamps", "GenerateEpochs", "limit_out_of_orderness"]


class _Subtractable(Protocol):
    def __sub__(self, other: Any, /) -> Any: ...


T = TypeVar("T", bound=_Subtractable)


def limit_out_of_orderness(bound: Any) -> Callable[[DataMessage[Any, Any, T], T | None], T]:
    """Make an epoch generator for streams whose records are less than `bound` behind the newest one.

    The epoch follows the greatest timestamp at a distance of `bound`. Since an epoch's own time is late, a record
    exactly `bound` behind the newest is late, and with a bound of zero timestamps must strictly ascend.

    Args:
        bound: what is subtracted from a timestamp: a number, a timedelta, ...

    Raises:
        GraphError: if `bound` is negative.

    >>> generator = limit_out_of_orderness(10)
    >>> generator(DataMessage("key", "value", 25), None)
    15
    """
    try:
        negative = bound < bound - bound
    except TypeError:
        raise GraphError(f"limit_out_of_orderness needs a number or a timedelta; got {bound!r}") from None
    if negative:
        raise GraphError(f"limit_out_of_orderness needs a bound of zero or more; got {bound!r}")

    def newest_minus_bound(msg: DataMessage[Any, Any, T], _previous: T | None) -> T:
        return msg.timestamp - bound  # type: ignore[no-any-return] # the type of a difference is the user's

    return newest_minus_bound


class AssignTimestamps(Operator):
    """Give each record the timestamp that the assigner makes; epochs of the old time end here, but for `MAX`."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the timestamp column."""
        rest = iter(batch.values)
        try:
            timestamps = self.call_each(self.callback, batch, rest)
        except Exception as error:
            raise self.fail(error, batch, rest) from error
        check_timestamps(self, batch, timestamps)
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        return (Batch(batch.keys, batch.values, timestamps, epochs),)


class GenerateEpochs(Operator):
    """Issue the epochs that the generator answers with, and part late records from those on time.

    A record is on time when there is no epoch yet or its timestamp is greater than the epoch. The generator sees
    every record, late ones too; its answer is issued after the record, if it is greater than the epoch before. Both
    outputs carry all epochs.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, generator: Any) -> None:
        super().__init__(context, generator)
        self.state = KeyedState(tracked=context.tracked)
        self._previous: Any = None
        self._idle = 0

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Walk through the records and the epochs in their order."""
        check_timestamps(self, batch, batch.timestamps)
        rest = iter(batch.values)
        try:
            on_time, epochs = self._walk(batch, rest)
        except OperatorError:
            raise
        except Exception as error:
            raise self.fail(error, batch, rest) from error
        marked = Batch(batch.keys, batch.values, batch.timestamps, epochs)
        if all(on_time):
            return marked, Batch(None, (), (), [(0, epoch) for _, epoch in epochs])
        return marked.select(on_time), marked.select([not flag for flag in on_time])

    def _walk(self, batch: Batch, rest: Any) -> tuple[list[bool], list[tuple[int, Any]]]:
        generator = self.callback
        view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        previous = self._previous
        on_time: list[bool] = []
        epochs: list[tuple[int, Any]] = []
        for end, arrived in (*batch.epochs, (len(batch), None)):
            for view.key, view.value, timestamp in islice(rows, end - len(on_time)):
                view.timestamp = timestamp
                candidate = generator(view, previous)
                on_time.append(True if previous is None or timestamp > previous else False)  # noqa: SIM210 - as bool()
                if candidate is not None and (previous is None or candidate > previous):
                    if previous is None:
                        check_epoch(candidate)
                    previous = candidate
                    epochs.append((len(on_time), candidate))
                elif candidate != candidate:  # noqa: PLR0124 - as NaN and NaT, which are greater than nothing
                    check_epoch(candidate)
            if arrived is not None and (previous is None or arrived > previous):
                previous = arrived
                epochs.append((end, arrived))
        if self.context.debug:
            refuse_kept(view)
        self._previous = previous
        return on_time, epochs

    def note_idle(self, edges: Sequence[int]) -> None:
        """Note whether records come at all: where none do, the epoch says nothing."""
        (self._idle,) = edges

    def settle(self) -> None:
        """Write the epoch down."""
        self.state.assign({"epoch": self._previous, "idle": int(self._idle) or None})

    def apply(self, delta: Delta) -> None:
        """Go on from the epoch."""
        super().apply(delta)
        self._previous = self.state["epoch"]
