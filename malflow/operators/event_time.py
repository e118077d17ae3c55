"""Timestamps, epochs and lateness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from malflow.batch import Batch
from malflow.errors import GraphError, OperatorError, shown
from malflow.message import MAX, MIN, DataMessage, NoKey
from malflow.operators.contract import Operator, OperatorContext, refuse_kept
from malflow.operators.moments import check_epoch, check_timestamps, uncomparable
from malflow.partitioners import Partitioner
from malflow.state import Delta, KeyedState

__all__ = ["AssignTimestamps", "Floors", "GenerateEpochs", "Past", "limit_out_of_orderness"]

Past = Sequence[tuple[int, Mapping[int, Any]]]
"""Numbers of workers that there were, and the epochs that some of them had reached beyond the least."""

_CACHED_FLOORS = 1 << 20


class _Subtractable(Protocol):
    def __sub__(self, other: Any, /) -> Any: ...


T = TypeVar("T", bound=_Subtractable)


def limit_out_of_orderness(bound: Any) -> Callable[[DataMessage[Any, Any, T], T | None], T]:
    """Make an epoch generator for streams whose records are less than `bound` behind the newest one.

    The epoch follows the greatest timestamp at a distance of `bound`. Since an epoch's own time is late, a record
    exactly `bound` behind the newest is late, and with a bound of zero timestamps must strictly ascend.

    So there is an epoch for nearly every record that is newer than those before, and each one runs ``on_epoch`` and
    looks for what has expired. Where less often will do, a generator of one's own makes it so by rounding down, and
    makes nothing late that would not be::

        def minute_behind(msg, _previous):
            return (msg.timestamp - bound).replace(second=0, microsecond=0)

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
        try:
            return msg.timestamp - bound  # type: ignore[no-any-return] # the type of a difference is the user's
        except TypeError as error:
            raise TypeError(_wrong_bound(msg.timestamp, bound)) from error

    return newest_minus_bound


def _wrong_bound(timestamp: Any, bound: Any) -> str:
    kinds = type(timestamp).__name__, type(bound).__name__
    return (
        f"the timestamps are {kinds[0]}, as {shown(timestamp)}, and the bound is {kinds[1]}, {shown(bound)}, which "
        "can't be subtracted; give a bound that can, or timestamps that fit by .assign_timestamps(), such as "
        "datetimes for a timedelta"
    )


class AssignTimestamps(Operator):
    """Set each record's timestamp by the assigner; epochs of the old time end here, except `MAX`."""

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
    """Issue the epochs that the generator returns, and separate late records from those on time.

    A record is on time when there is no epoch yet or its timestamp is greater than the epoch. The generator sees
    every record, late ones too; its answer is issued after the record, if it is greater than the epoch before. Both
    outputs carry all epochs.

    Where the number of workers has changed, a record is also late that would have been on the worker that its key
    belonged to before: the stream goes on from the least epoch of the old workers, but what was late stays late.

    Args:
        context: what every operator gets.
        generator: makes the epochs.
        checked: whether the timestamps have been checked just before.

    """

    state: KeyedState

    def __init__(self, context: OperatorContext, generator: Any, *, checked: bool = False) -> None:
        super().__init__(context, generator)
        self.state = KeyedState(tracked=context.tracked)
        self._checked = checked
        self._late = 0
        self._previous: Any = None
        self._idle = 0
        self._floors: Floors | None = None

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Walk through the records and the epochs in their order."""
        if not self._checked:
            check_timestamps(self, batch, batch.timestamps)
        rest = iter(batch.values)
        try:
            on_time, epochs = self._walk(batch, rest)
            if self._floors is not None:
                on_time = self._above_floors(self._floors, batch, on_time)
        except OperatorError:
            raise
        except Exception as error:
            raise self.fail(uncomparable(error), batch, rest) from error
        marked = Batch(batch.keys, batch.values, batch.timestamps, epochs)
        if all(on_time):
            return marked, Batch(None, (), (), [(0, epoch) for _, epoch in epochs])
        self._late += on_time.count(False)
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

    def _above_floors(self, floors: Floors, batch: Batch, on_time: list[bool]) -> list[bool]:
        rows = zip(batch.key_column(), batch.timestamps, on_time, strict=True)
        above = [True if flag and timestamp > floors[key] else False for key, timestamp, flag in rows]  # noqa: SIM210 - as bool()
        if floors.are_passed(self._previous):
            self._floors = None
        return above

    def take_late(self) -> int:
        """Return how many records were late since the last call."""
        late, self._late = self._late, 0
        return late

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records arrive: where none do, the epoch does not count."""
        (self._idle,) = edges

    def sync_state(self) -> None:
        """Write the epoch to the state."""
        past = None if self._floors is None else self._floors.past
        self.state.assign({"epoch": self._previous, "idle": int(self._idle) or None, "past": past})

    def apply(self, delta: Delta) -> None:
        """Go on from the epoch."""
        super().apply(delta)
        self._previous = self.state["epoch"]
        past = self.state.get("past")
        self._floors = None if past is None or self.context.placement is None else Floors(self.context.placement, past)


class Floors(dict[Any, Any]):
    """For each key the greatest epoch that was issued where it was before the workers changed; `MIN` where none was.

    Args:
        placement: what chose the worker of a key.
        past: the numbers of workers that there were, and the epochs of these workers.
    """

    def __init__(self, placement: Partitioner, past: Past) -> None:
        super().__init__()
        self.past = past
        self._placement = placement

    def are_passed(self, epoch: Any) -> bool:
        """Whether no key's floor is above an epoch, which does their work from there on."""
        return epoch is not None and all(epoch >= reached for _, epochs in self.past for reached in epochs.values())

    def __missing__(self, key: Any) -> Any:
        if len(self) >= _CACHED_FLOORS:
            self.clear()
        reached = [epochs.get(self._placement(key, range(workers)), MIN) for workers, epochs in self.past]
        self[key] = floor = max(reached)
        return floor
