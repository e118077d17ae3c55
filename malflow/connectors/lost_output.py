"""Errors of a sink's output: files that can't be written, and confirmed transactions that its ledger lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from malflow.errors import MalflowError
from malflow.sinks.transactional import SinkOwner
from malflow.store.redaction import shown_path

__all__ = [
    "Confirmed",
    "OnDataLoss",
    "SinkFileError",
]

OnDataLoss: TypeAlias = Literal["fail", "continue"]


class Confirmed:
    """The last transaction that an output has confirmed to a run; each commit compares the ledger with it.

    If a server returns to an older state while the job runs (a promoted standby, a restored disk), its ledger is older
    too. Without a check, the next commit would hide the gap forever: the ledger would have the newest number again.

    Args:
        ledger: the name of the ledger, for the error.
        error: creates the error to raise.
        accepts_loss: whether to skip the check.
    """

    def __init__(self, ledger: str, error: Callable[[str], Exception], *, accepts_loss: bool = False) -> None:
        self._ledger, self._error, self._accepts_loss = ledger, error, accepts_loss
        self._owner: SinkOwner | None = None
        self._transaction = 0

    def begin(self, owner: SinkOwner, transaction: int, ledger: str | None = None) -> None:
        """Begin with the ledger's last transaction when a run takes it over; check it against the run's own record.

        Args:
            owner: the run.
            transaction: the last transaction in the ledger.
            ledger: the name of the ledger, if it differs from the name passed to the constructor.
        """
        self._ledger = ledger or self._ledger
        self._owner, self._transaction = owner, owner.transaction
        self.check(transaction)
        self._transaction = transaction

    def check(self, transaction: int) -> None:
        """Check that the ledger, given its last transaction, has all confirmed transactions."""
        owner = self._owner
        if owner is not None and transaction < self._transaction and not self._accepts_loss:
            raise self._error(
                f"the ledger {self._ledger} has sink '{owner.sink}' of job '{owner.job}' at transaction {transaction}, "
                f"and transaction {self._transaction} was committed: the output was restored from a backup, lost "
                "confirmed data, or is another one. Restore a snapshot from before (restore=), or pass "
                "on_data_loss='continue' to continue without the missing data"
            )

    def note(self, transaction: int) -> None:
        """Note that the output has confirmed a transaction."""
        self._transaction = max(self._transaction, transaction)


class SinkFileError(MalflowError, OSError):
    """The file of a sink can't be written, or differs from what was written.

    Attributes:
        path: the file.
        problem: the cause.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"sink file '{shown_path(path)}' {problem}")
        self.path = path
        self.problem = problem
