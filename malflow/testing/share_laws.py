"""The laws of distributed sinks: pieces and shares that copies write, and tasks that are repeated or late."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from malflow.sinks.distributed import Share, is_distributed, new_token
from malflow.testing.laws import Laws

__all__ = ["SHARE_LAWS", "check_shares"]

SHARE_LAWS = ("pieces", "shares", "repeated", "late")

_SHARES = 2
"""The fewest shares that a sink must join; more would take longer and test the same."""


class Suite(Protocol):
    """The calls of the suite for transactional sinks that these laws need."""

    def begun(self, law: str, name: str, *, heir: bool = False, keep: Sequence[Any] = ()) -> Any:
        """Return a sink that has taken over."""

    def new_values(self, size: int = 3) -> tuple[list[int], list[Any]]:
        """Return keys, and as many new values."""

    def commit_all(self, law: str, sink: Any, handles: Sequence[Any]) -> None:
        """Commit handles."""

    def see(self, law: str, when: str, values: Sequence[Any], times: int) -> None:
        """Check how often each of these values is visible."""


def check_shares(suite: Suite, laws: Laws) -> None:
    """Check the laws of a distributed sink; do nothing for other sinks."""
    __tracebackhide__ = True
    sink = suite.begun("shares", "shares")
    if is_distributed(sink):
        checks = _ShareLaws(suite, laws)
        checks.check_shares(sink)
        if laws.has("repeated"):
            checks.check_repeated()
        if laws.has("late"):
            checks.check_late()


class _ShareLaws:
    def __init__(self, suite: Suite, laws: Laws) -> None:
        self._suite = suite
        self._laws = laws

    def check_shares(self, sink: Any) -> None:
        """Write a transaction of two shares, each from pieces of two copies."""
        __tracebackhide__ = True
        values, handle = self._transaction("shares", sink, 1)
        self._suite.see("invisible", "after seal()", values, 0)
        self._suite.commit_all("shares", sink, [handle])
        self._suite.see("shares", "after a transaction of two shares was committed", values, 1)
        self._suite.commit_all("idempotent", sink, [handle])
        self._suite.see("shares", "after it was committed again", values, 1)

    def check_repeated(self) -> None:
        """Seal each share twice, and commit the second; then the next run commits one that `abort` has kept."""
        __tracebackhide__ = True
        law, suite = "repeated", self._suite
        sink = suite.begun(law, law)
        first, handle = self._transaction(law, sink, 1, repeats=True)
        suite.commit_all(law, sink, [handle])
        suite.see(law, "after each share was sealed twice and one of them committed", first, 1)
        kept, pending = self._transaction(law, sink, 2, repeats=True)
        lost, _ = self._transaction(law, sink, 3)
        heir = suite.begun(law, law, heir=True, keep=[pending])
        suite.commit_all(law, heir, [pending])
        suite.see(law, "after the next run's commit() of a transaction that abort() has kept", kept, 1)
        suite.see(law, "though no snapshot has its handle", lost, 0)
        more, handle = self._transaction(law, heir, 3)
        suite.commit_all(law, heir, [handle])
        suite.see(law, "after the next run's second transaction", [*first, *kept, *more], 1)

    def check_late(self) -> None:
        """Seal a share after the next run has begun, and after its own transaction is committed."""
        __tracebackhide__ = True
        law, suite = "late", self._suite
        gone = suite.begun(law, law)
        pieces, late = self._pieces(law, gone)
        heir = suite.begun(law, law, heir=True)
        values, handle = self._transaction(law, heir, 1)
        with suppress(Exception):  # it may be refused
            sealed = self._sealed(law, gone, Share(1, 0, 1, new_token()), pieces)
            gone.commit([(1, (sealed,))])
        suite.commit_all(law, heir, [handle])
        own, more = self._pieces(law, heir)
        with suppress(Exception):  # as above
            self._sealed(law, heir, Share(1, 0, 2, new_token()), own)
        after, handle = self._transaction(law, heir, 2)
        suite.commit_all(law, heir, [handle])
        suite.see(law, "though a task of a former run sealed it", late, 0)
        suite.see(law, "though a task sealed it after its transaction was committed", more, 0)
        suite.see(law, "after tasks that were late", [*values, *after], 1)

    def _transaction(self, law: str, sink: Any, transaction: int, *, repeats: bool = False) -> tuple[list[Any], Any]:
        """Write a transaction of several shares; return its values and its handle."""
        __tracebackhide__ = True
        values: list[Any] = []
        sealed = []
        for number in range(_SHARES):
            pieces, some = self._pieces(law, sink)
            values += some
            for _ in range(2 if repeats else 1):
                result = self._sealed(law, sink, Share(transaction, number, _SHARES, new_token()), pieces)
            sealed.append(self._laws.pickled("handles", result, "the result of seal()"))
        return values, (transaction, tuple(sealed))

    def _pieces(self, law: str, sink: Any) -> tuple[list[Any], list[Any]]:
        """Encode some values in two copies; return the pieces and the values."""
        __tracebackhide__ = True
        pieces, values = [], []
        for _ in range(2):
            keys, some = self._suite.new_values()
            with self._laws.of(law):
                piece = self._copy(sink).encode(keys, some, keys)
            pieces.append(self._laws.pickled("pieces", piece, "a piece"))
            values += some
        self._suite.see("pieces", "after encode()", values, 0)
        return pieces, values

    def _sealed(self, law: str, sink: Any, share: Share, pieces: Sequence[Any]) -> Any:
        __tracebackhide__ = True
        with self._laws.of(law):
            writer = self._copy(sink).open_writer(share)
            for piece in pieces:
                writer.write(piece)
            return writer.seal()

    def _copy(self, sink: Any) -> Any:
        __tracebackhide__ = True
        return self._laws.copied("pieces", sink, "the sink, after fence(),")
