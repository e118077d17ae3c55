"""The contract of exactly-once sinks, whose output becomes visible with the snapshot that covers it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple

from malflow.checks import check_choice, check_whole_number
from malflow.errors import GraphError, check_methods, offers
from malflow.message import NoKey
from malflow.sinks.contract import StatelessSinkImpl
from malflow.type_parameters import H, K, T, V
from malflow.words import short_repr

__all__ = [
    "Delivery",
    "Divided",
    "DroppedTransaction",
    "Refused",
    "SinkOwner",
    "TransactionalSinkImpl",
    "check_transactional",
    "is_transactional",
]

Delivery = Literal["exactly-once", "at-least-once"]


_METHODS = ("fence", "prepare", "commit", "abort")
_DELIVERIES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True, init=False)
class SinkOwner:
    """The writer of a transactional sink: `job` and `sink` name it externally, `claim` orders its runs.

    Attributes:
        job: the job's name with the beginning of its id, to tell apart jobs with the same name in two places.
        sink: the sink's name in the dataflow; its first name, if it was renamed.
        claim: the number of the run's claim to the job. Each new run has a higher one.
        transaction: the last transaction known to be committed, from the run's snapshot; 0 if there is none. An output
            with fewer transactions has lost some. `epoch`, its former name, also works.
    """

    job: str
    sink: str
    claim: int
    transaction: int = 0

    def __init__(self, job: str, sink: str, claim: int, transaction: int = 0, *, epoch: int | None = None) -> None:
        """Create the owner; `epoch` is the former name of `transaction`."""
        values = {"job": job, "sink": sink, "claim": claim, "transaction": transaction if epoch is None else epoch}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def epoch(self) -> int:
        """The former name of `transaction`."""
        return self.transaction

    @property
    def name(self) -> str:
        """The name under which ledgers and transactions belong to this sink, the same in every run: ``job/sink``."""
        return f"{self.job}/{self.sink}"


class Refused(NamedTuple):
    """A record of a prepared transaction that the external system refuses for good.

    Attributes:
        value: what is written again when its dead letter is replayed: see `TransactionalSinkImpl.write_refused`. Plain
            values, such as a row as a dict.
        error: why it is refused.
        key: the key of the record; `NoKey` if it is no longer known.
        timestamp: its timestamp; None if it is no longer known.
    """

    value: Any
    error: Exception
    key: Any = NoKey
    timestamp: Any = None


class DroppedTransaction(NamedTuple):
    """The value of the dead letter of a whole transaction. An operator of the job has dropped it.

    Attributes:
        number: its number.
        handle: what the sink would have committed.
    """

    number: int
    handle: Any


class Divided(NamedTuple, Generic[H]):
    """A prepared transaction without the records that the external system refuses.

    Attributes:
        handle: the handle with which the rest can be committed, even if nothing is left.
        refused: the records that are refused.
        size: the number of records that the transaction had before.
    """

    handle: H
    refused: Sequence[Refused]
    size: int


class TransactionalSinkImpl(StatelessSinkImpl[K, V, T], Generic[K, V, T, H]):
    """A sink in two phases: prepared with each snapshot, committed once the snapshot is durable.

    A transaction of the sink is all messages between two snapshots. Snapshots carry the handles of prepared
    transactions, so a restart commits those that the last run could not. Readers see each transaction whole, once and
    in order. Subclassing is optional: any object with ``sink(msg)`` and the four methods below works. One object serves
    a whole run, in the process that started it.

    A run starts in this order: it claims the job, calls `fence`, `commit` with the handles in the snapshot, and
    `abort`, then reads. After that, each snapshot calls `prepare` and, once its manifest is durable, `commit`. The
    run's thread makes all calls, between ticks. After `close` the object may be fenced and used again.

    If a policy ``on_error=`` may let the run continue without a record, a sink that has `divide` is asked for the
    records that the external system refuses for good: `commit` of one handle raises an error with `refuses_records`
    True, such as `malflow.RecordsRefused`; `divide` returns the handle without these records, now dead letters; a
    snapshot with both is made durable; then `commit` is called with the new handle. So a crash at any point either
    repeats the search or commits the new handle.

    Attributes:
        delivery: ``"at-least-once"`` makes it an ordinary sink: none of the four methods is called, and `flush` makes
            the records visible with each tick. ``"exactly-once"`` if an implementation lacks the attribute.
        max_pending: how many prepared transactions may await their commit while snapshots fail; beyond it, the run
            waits for a snapshot. 4 if an implementation lacks the attribute.
        divides: whether refused records will be divided from their transaction; set by the run. If so, `prepare` need
            not check first that the external system accepts the transaction.
    """

    divides: bool = False
    on_driver: ClassVar[bool] = True
    delivery: Delivery = "exactly-once"
    max_pending: int = 4

    @abstractmethod
    def fence(self, owner: SinkOwner) -> int | None:
        """Take over the output: from now on no run with a lower claim can commit, however late it wakes up.

        Returns:
            The number of the last committed transaction of `owner.name`; 0 if there is none, None if unknown.

        Raises:
            FencedError: if a run with a higher claim has the output.
            Exception: any error of the sink, if the output has fewer transactions than `owner.transaction`: it has lost
                some.
        """

    @abstractmethod
    def prepare(self, transaction: int, /) -> H | None:
        """End a transaction: make its records durable, in the external system or in the handle, but not visible.

        Args:
            transaction: its number. Numbers increase across runs; a transaction that was prepared but is in no snapshot
                is aborted, and its number is reused.

        Returns:
            A handle with which any process can commit the transaction: picklable, not mutated afterwards, plain values
            if possible. None if nothing was written.
        """

    @abstractmethod
    def commit(self, handles: Sequence[H]) -> None:
        """Make prepared transactions visible, in this order; a snapshot with their handles is durable.

        After a crash it is called again with the same handles, perhaps by another process: a transaction that is
        already visible stays as it is. The external system must still have every transaction that it has confirmed. If
        it has reverted to an older state (a promoted standby, a restored disk), raise an error, as in `fence`: further
        writes would hide the gap.

        Raises:
            FencedError: if a run with a higher claim has the output.
        """

    @abstractmethod
    def abort(self, keep: Sequence[H]) -> None:
        """Drop everything of this owner that was written or prepared and is not committed, except for `keep`.

        Called before a run's first record, for leftovers of earlier runs, and at the end of a run if its last records
        were already delivered.
        """

    def divide(self, handle: H) -> Divided[H] | None:
        """Find the records of a transaction that the external system refuses for good, after `commit` of it failed.

        Nothing that depends on the answer may be visible when it returns: the new handle is not durable yet. It may be
        called again with the result, until `commit` succeeds. A transaction that can be tried and rolled back is
        searched by halves.

        Returns:
            The transaction without them, or None if this can't be done: the run then fails.

        Raises:
            Exception: any error that is not about records, such as a lost connection.
        """
        del handle
        return None

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Write records that `divide` returned again, as part of the open transaction: their dead letters are replayed.

        The default writes their values like message values.
        """
        self.sink_batch([it.key for it in records], [it.value for it in records], [it.timestamp for it in records])


def is_transactional(impl: object) -> bool:
    """Whether a sink is committed with snapshots."""
    return getattr(impl, "delivery", "exactly-once") == "exactly-once" and all(offers(impl, it) for it in _METHODS)


def check_transactional(impl: object) -> None:
    """Check a sink that has a method of transactional sinks or the attribute `delivery`."""
    delivery = getattr(impl, "delivery", "exactly-once")
    check_choice("a sink's", "delivery", delivery, _DELIVERIES)
    if delivery == "exactly-once" and any(offers(impl, it) for it in ("fence", "prepare")):
        check_methods(impl, "a transactional sink", _METHODS)
        check_whole_number("a sink's", "max_pending", getattr(impl, "max_pending", 1))
        if offers(impl, "snapshot") and offers(impl, "restore"):
            raise GraphError(
                f"{short_repr(impl)} has both prepare() and snapshot(): a sink is either committed with snapshots or "
                "returns to a position"
            )
