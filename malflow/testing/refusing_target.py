"""A target in memory that refuses some records for good, and the exactly-once sink that writes to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from malflow.errors import RecordsRefused
from malflow.message import DataMessage
from malflow.sinks.transactional import Divided, Refused, SinkOwner, TransactionalSinkImpl
from malflow.states.keyed import copied
from malflow.testing.faults import Crash
from malflow.words import short_repr

__all__ = ["CrashPlan", "Handle", "Record", "RefusingTarget"]


class Record(NamedTuple):
    """A record as a sink received it."""

    key: Any
    value: Any
    timestamp: Any


Handle = tuple[int, tuple[Record, ...]]
"""The number of a transaction, and its records."""


class CrashPlan:
    """The call of a sink before or after which the next snapshot crashes, if there is one.

    Attributes:
        point: the method, ``"before"`` or ``"after"``, and the number of the call; None for no crash.
    """

    def __init__(self) -> None:
        self.point: tuple[str, str, int] | None = None

    def passes(self, method: str, when: str) -> None:
        """Note that a call is at a point.

        Raises:
            Crash: if this is the planned one.
        """
        if self.point is None or self.point[:2] != (method, when):
            return
        *_, left = self.point
        if left == 1:
            self.point = None
            raise Crash(f"{when} {method}()")
        self.point = (method, when, left - 1)


class RefusingTarget(TransactionalSinkImpl[Any, Any, Any, Handle]):
    """The target, with the sink in front of it; it outlives the runs.

    Args:
        refuses: whether the target refuses a value for good.
        plan: where the sink crashes.
        see: receives each record that a run writes.

    Attributes:
        accepted: the records of the committed transactions.
    """

    def __init__(self, refuses: Callable[[Any], object], plan: CrashPlan, see: Callable[[Record], object]) -> None:
        self.accepted: list[Record] = []
        self._refuses = refuses
        self._plan = plan
        self._see = see
        self._committed: set[int] = set()
        self._open: list[Record] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Add one message to the open transaction."""
        record = Record(msg.key, copied(msg.value), msg.timestamp)
        self._see(record)
        self._open.append(record)

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Add records for the replay of their letters."""
        self._open.extend(Record(it.key, it.value, it.timestamp) for it in records)

    def fence(self, owner: SinkOwner) -> int:
        """Return the last committed transaction.

        Raises:
            RuntimeError: if the run knows of one that was never committed.
        """
        last = max(self._committed, default=0)
        if owner.transaction > last:
            raise RuntimeError(f"transaction {owner.transaction} was never committed, only {last} was")
        return last

    def prepare(self, transaction: int, /) -> Handle | None:
        """End the open transaction."""
        self._plan.passes("prepare", "before")
        records, self._open = tuple(self._open), []
        self._plan.passes("prepare", "after")
        return (transaction, records) if records else None

    def commit(self, handles: Sequence[Handle]) -> None:
        """Make transactions visible.

        Raises:
            RecordsRefused: if the target refuses a record of one.
        """
        self._plan.passes("commit", "before")
        for number, records in handles:
            if number in self._committed:
                continue
            for it in records:
                if self._refuses(it.value):
                    raise RecordsRefused(f"refused: {short_repr(it.value)}")
            self._committed.add(number)
            self.accepted += records
        self._plan.passes("commit", "after")

    def divide(self, handle: Handle) -> Divided[Handle]:
        """Return a transaction without the refused records."""
        self._plan.passes("divide", "before")
        number, records = handle[0], [Record(*it) for it in handle[1]]
        rest = tuple(it for it in records if not self._refuses(it.value))
        refused = [
            Refused(it.value, RecordsRefused("refused"), it.key, it.timestamp)
            for it in records
            if self._refuses(it.value)
        ]
        self._plan.passes("divide", "after")
        return Divided((number, rest), refused, len(records))

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop the open transaction."""
        del keep
        self._open = []
