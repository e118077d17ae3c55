"""The contract of sinks that deliver exactly once: what they write becomes visible with the snapshot that covers it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal

from malflow.errors import GraphError, offers, require_methods, short_repr
from malflow.sinks.contract import StatelessSinkImpl
from malflow.type_parameters import H, K, T, V

__all__ = ["Delivery", "SinkOwner", "TransactionalSinkImpl", "check_transactional", "is_transactional"]

Delivery = Literal["exactly-once", "at-least-once"]


_METHODS = ("fence", "prepare", "commit", "abort")
_DELIVERIES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True, init=False)
class SinkOwner:
    """The writer of a transactional sink: `job` and `sink` name it outside, `claim` orders its runs.

    Attributes:
        job: the job's name with the beginning of its id, so that jobs of one name in two places differ.
        sink: the sink's name in the dataflow; the name it had first, if it was renamed since.
        claim: the number of the run's claim to the job. Each run that starts has a higher one.
        transaction: the last transaction that the run knows to be committed, from its snapshot; 0 if it knows of none.
            An output that has fewer has lost some. `epoch`, its former name, works too.
    """

    job: str
    sink: str
    claim: int
    transaction: int = 0

    def __init__(self, job: str, sink: str, claim: int, transaction: int = 0, *, epoch: int | None = None) -> None:
        """Make it; `epoch` is the former name of `transaction`."""
        values = {"job": job, "sink": sink, "claim": claim, "transaction": transaction if epoch is None else epoch}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def epoch(self) -> int:
        """The former name of `transaction`."""
        return self.transaction

    @property
    def name(self) -> str:
        """The name under which a ledger or a transaction belongs to this sink, whichever run writes: ``job/sink``."""
        return f"{self.job}/{self.sink}"


class TransactionalSinkImpl(StatelessSinkImpl[K, V, T], Generic[K, V, T, H]):
    """A sink in two phases: prepared with each snapshot, committed once the snapshot is durable.

    A transaction of the sink is all that it was passed between two snapshots. Snapshots carry the handles of prepared
    transactions, so that a restart commits what the last run could not. Outside, each transaction is visible as a whole
    and once, in order. Subclassing is optional: any object with ``sink(msg)`` and the four methods below works. One
    object serves a whole run; on Spark it is in the driver's process.

    A run begins in this order: it claims the job, then calls `fence`, `commit` with the handles in the snapshot, and
    `abort`; then it reads. Afterwards each snapshot calls `prepare` and, once its manifest is durable, `commit`. All
    calls come from the run's thread, between ticks. After `close` the object may be fenced and used again.

    Attributes:
        delivery: ``"at-least-once"`` makes it an ordinary sink: none of the four methods is called, and `flush` makes
            the records visible with each tick. ``"exactly-once"`` if an implementation lacks the attribute.
        max_pending: how many transactions may be prepared and not committed, because snapshots fail. The run then waits
            for a snapshot. 4 if an implementation lacks the attribute.
    """

    on_driver: ClassVar[bool] = True
    delivery: Delivery = "exactly-once"
    max_pending: int = 4

    @abstractmethod
    def fence(self, owner: SinkOwner) -> int | None:
        """Take the output over: from now on no run with a lower claim can commit, however late it wakes up.

        Returns:
            The number of the last transaction of `owner.name` that was committed; 0 if none was, None if that is not
            known.

        Raises:
            FencedError: if a run with a higher claim has the output.
            Exception: of the sink's own, if fewer transactions are there than `owner.transaction`: the output has lost
                some.
        """

    @abstractmethod
    def prepare(self, transaction: int, /) -> H | None:
        """End a transaction: what was written since the last one is durable outside, or in the handle, and not visible.

        Args:
            transaction: its number. Numbers rise over all runs; a transaction that was prepared but is in no snapshot
                is aborted, and its number is used again.

        Returns:
            A handle by which any process can commit the transaction: picklable, not mutated afterwards, plain values if
            possible. None if nothing was written.
        """

    @abstractmethod
    def commit(self, handles: Sequence[H]) -> None:
        """Make prepared transactions visible, in this order. A snapshot with their handles is durable.

        Called again with the same handles after a crash, perhaps by another process: a transaction that is visible
        already stays as it is. Outside must still be every transaction that it has confirmed: a server that has
        returned to an older state (a promoted standby, a restored disk) is an error, as it is in `fence`; to write on
        would hide the gap.

        Raises:
            FencedError: if a run with a higher claim has the output.
        """

    @abstractmethod
    def abort(self, keep: Sequence[H]) -> None:
        """Drop everything of this owner that was written or prepared and is not committed, except for `keep`.

        Called before a run's first record, for what earlier runs left behind, and at the end of a run whose last
        records have been delivered before.
        """


def is_transactional(impl: object) -> bool:
    """Whether a sink is committed with snapshots."""
    return getattr(impl, "delivery", "exactly-once") == "exactly-once" and all(offers(impl, it) for it in _METHODS)


def check_transactional(impl: object) -> None:
    """Check a sink that has one of the methods of transactional sinks, or says how it delivers.

    Raises:
        GraphError: if its delivery is not known, or it lacks one of the other methods.
    """
    delivery = getattr(impl, "delivery", "exactly-once")
    if delivery not in _DELIVERIES:
        raise GraphError(f"delivery must be 'exactly-once' or 'at-least-once'; got {short_repr(delivery)}")
    if delivery == "exactly-once" and any(offers(impl, it) for it in ("fence", "prepare")):
        require_methods(impl, "a transactional sink", _METHODS)
        most = getattr(impl, "max_pending", 1)
        if not isinstance(most, int) or most < 1:
            raise GraphError(f"max_pending must be an integer of at least 1; got {short_repr(most)}")
        if offers(impl, "snapshot") and offers(impl, "restore"):
            raise GraphError(
                f"{short_repr(impl)} has both prepare() and snapshot(): a sink is either committed with snapshots or "
                "returns to a position"
            )
