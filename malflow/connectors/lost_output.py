"""What sinks with a ledger do when the output lacks a transaction that it had confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from malflow.sinks.transactional import SinkOwner

__all__ = ["Confirmed", "OnDataLoss"]

OnDataLoss: TypeAlias = Literal["fail", "continue"]


class Confirmed:
    """The last transaction that an output has confirmed to a run, with which each commit compares the ledger.

    A server that returns to an older state while the job runs (a promoted standby, a disk that was put back) has a
    ledger from before. To write on would hide the gap for ever: the ledger would have the newest number again.

    Args:
        ledger: its name, for the error.
        error: makes the error that is raised.
        accepts_loss: whether nothing is checked.
    """

    def __init__(self, ledger: str, error: Callable[[str], Exception], *, accepts_loss: bool = False) -> None:
        self._ledger, self._error, self._accepts_loss = ledger, error, accepts_loss
        self._owner: SinkOwner | None = None
        self._transaction = 0

    def begin(self, owner: SinkOwner, transaction: int, ledger: str | None = None) -> None:
        """Begin with what the ledger has when a run takes it over, which must be all that the run knows of.

        Args:
            owner: the run.
            transaction: the last transaction in the ledger.
            ledger: its name, if it has another one than was first thought.
        """
        self._ledger = ledger or self._ledger
        self._owner, self._transaction = owner, owner.transaction
        self.check(transaction)
        self._transaction = transaction

    def check(self, transaction: int) -> None:
        """Check that the ledger, whose last transaction is given, has all that was confirmed."""
        owner = self._owner
        if owner is not None and transaction < self._transaction and not self._accepts_loss:
            raise self._error(
                f"the ledger {self._ledger} has sink '{owner.sink}' of job '{owner.job}' at transaction {transaction}, "
                f"and transaction {self._transaction} was committed: the output was restored from a backup, lost what "
                "it had confirmed, or is another one. Restore a snapshot from before (restore=), or pass "
                "on_data_loss='continue' to continue without what is missing"
            )

    def note(self, transaction: int) -> None:
        """Note that the output has confirmed a transaction."""
        self._transaction = max(self._transaction, transaction)
