"""The transactions of one sink: those prepared and not yet committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from malflow.checks import is_whole_number
from malflow.diagnostics import operator_error
from malflow.engine.dead_letters import SinkLetters
from malflow.engine.plan import Program
from malflow.errors import FencedError, GraphError, SnapshotError, offers
from malflow.nodes import SinkNode
from malflow.sinks.contract import StatelessSink
from malflow.sinks.transactional import SinkOwner, check_transactional
from malflow.store.failpoint import failpoint
from malflow.words import short_repr

__all__ = ["Cut", "SinkTransactions", "StoredPieces", "check_deliveries", "check_owners"]

_MOST_PENDING = 4
"""The default of `max_pending`. Less: an outage of the store stops the run sooner; more: more output stays hidden."""

_MOST_FRUITLESS = 3
"""How often a refused transaction may be searched without a record that is refused."""


class StoredPieces(Protocol):
    """The pieces of distributed sinks that workers have encoded and stored, and that no durable snapshot covers."""

    def has(self, sink: str) -> bool:
        """Whether there are pieces of a sink."""

    def seal(self, transactions: Mapping[str, int]) -> Mapping[str, Sequence[Any]]:
        """Write the pieces of some sinks, and return what their writers' `seal` returned.

        Args:
            transactions: the number of the transaction of each sink.

        Raises:
            OperatorError: if a sink fails.
        """

    def drop(self, sink: str) -> None:
        """Drop the pieces of a sink."""

    def add(self, sink: str, piece: Any) -> None:
        """Add a piece that this process has encoded, to the pieces of the current transaction of a sink."""


@dataclass(slots=True)
class Cut:
    """A transaction of a distributed sink that ends with a snapshot. The snapshot's job seals it.

    Attributes:
        sink: the name of the sink.
        transaction: its number.
        before: the position without the transaction.
        sealed: the results of `seal` of its shares; None until they are known.
    """

    sink: str
    transaction: int
    before: tuple[Any, ...]
    sealed: Sequence[Any] | None = None

    @property
    def position(self) -> tuple[Any, ...]:
        """The position with the transaction, once it is sealed."""
        owner, _, pending, has_ended, *released = self.before
        return (owner, self.transaction, (*pending, (self.transaction, self.handle)), has_ended, *released)

    @property
    def handle(self) -> tuple[int, Sequence[Any]]:
        """The handle of the transaction, once it is sealed."""
        return self.transaction, tuple(self.sealed or ())


class SinkTransactions:
    """The transactions of one sink.

    Args:
        name: the sink's name.
        impl: the sink.
        pieces: the stored pieces of the sink, if its records are not in this process.
        letters: takes the records that the external system refuses; None if every failure ends the run.

    Attributes:
        name: the sink's name.
        owner: the name of its ledger, the sink's name when it first ran.
        last: the number of the last prepared transaction; 0 before the first.
        has_ended: whether that transaction has the output at the end of the input.
        most: the limit of uncommitted transactions.
    """

    def __init__(
        self, name: str, impl: Any, pieces: StoredPieces | None = None, letters: SinkLetters | None = None
    ) -> None:
        self.owner = name
        self._letters = letters
        self._survives = letters is not None and letters.survives
        self._released: frozenset[int] = frozenset()
        self._dropped: frozenset[int] = frozenset()
        self.last = 0
        self.has_ended = False
        self.name = name
        self._impl = impl
        self._pending: list[tuple[int, Any]] = []
        self.most = getattr(impl, "max_pending", _MOST_PENDING)
        self._pieces = pieces
        self._lost = 0
        self._fruitless = 0

    @property
    def is_full(self) -> bool:
        """Whether the number of uncommitted transactions has reached the sink's limit."""
        return self.uncommitted >= self.most

    @property
    def uncommitted(self) -> int:
        """The number of transactions that have ended and are not known to be committed."""
        return len(self._pending) + self._lost

    @property
    def has_begun(self) -> bool:
        """Whether the sink has ever prepared a transaction."""
        return self.last > 0 or bool(self._dropped)

    @property
    def committed(self) -> int:
        """The last transaction known to be committed."""
        return self._pending[0][0] - 1 if self._pending else self.last

    @property
    def position(self) -> tuple[Any, ...]:
        """The data for a snapshot: the ledger, the last transaction, the uncommitted ones, and whether it has ended.

        If an operator has released transactions, their numbers follow.
        """
        released = tuple(number for number, _ in self._pending if number in self._released)
        more = (released,) if released else ()
        return (self.owner, self.last, tuple(self._pending), self.has_ended, *more)

    def load(self, position: tuple[Any, ...]) -> None:
        """Load a position from a snapshot."""
        self.owner, self.last, pending, self.has_ended, *marks = position
        self._released, self._dropped = map(frozenset, (*marks, (), ())[:2])
        self._pending = [(number, handle) for number, handle in pending]

    def fence(self, job: str, claim: int, *, origin: str, accept_duplicates: bool, store: object = None) -> None:
        """Take over the output; see `RunSinks.begin`.

        Raises:
            SnapshotError: if the run starts before the last commit of the sink.
            FencedError: if a run with a higher claim has the output.
            OperatorError: if the sink fails.
        """
        self._drop()
        if store is not None and offers(self._impl, "use_store"):
            self._call("use_store", store)
        committed = self._call("fence", SinkOwner(job, self.owner, claim, self.committed))
        if committed is not None and not is_whole_number(committed, least=None):
            text = f"fence() must return the last committed transaction's number or None; got {short_repr(committed)}"
            raise operator_error(self.name, text, None, self._impl)
        if committed is None or committed <= self.last:
            return
        if not accept_duplicates:
            raise SnapshotError(
                f"sink '{self.name}' has committed transaction {committed}, but {origin}, which has transaction "
                f"{self.last}: later transactions can't be undone, and their records would be written again. Start "
                "from "
                "the newest snapshot, or pass sinks='accept_duplicates'"
            )
        self.last, self._pending, self.has_ended = committed, [], False

    def _drop(self) -> None:
        """Take back the transactions that an operator has dropped, the last ones; each becomes a dead letter.

        Raises:
            OperatorError: if they exceed the bounds of letters.
        """
        for number, handle in self._pending:
            if number in self._dropped and self._letters is not None:
                self._letters.drop(number, handle)
                self.last = min(self.last, number - 1)
        self._pending = [(number, handle) for number, handle in self._pending if number <= self.last]

    def prepare(self) -> None:
        """End the transaction, if it has any records.

        Raises:
            OperatorError: if the sink fails.
        """
        cut = self.cut()
        if cut is not None and self._pieces is not None:
            cut.sealed = self._pieces.seal({self.name: cut.transaction})[self.name]
            self.check(cut)
            self.add(cut)
            self._pieces.drop(self.name)
            return
        handle = self._call("prepare", self.last + 1)
        if handle is not None:
            self.last += 1
            self._pending.append((self.last, handle))

    def cut(self) -> Cut | None:
        """End the transaction of a distributed sink with a snapshot, if it has pieces; `add` or `note_lost` follows."""
        if self._pieces is None or not self._pieces.has(self.name):
            return None
        return Cut(self.name, self.last + 1, self.position)

    def check(self, cut: Cut) -> None:
        """Call the sink's check of a sealed transaction, before a snapshot with it is durable.

        Raises:
            OperatorError: if the sink refuses it.
        """
        if offers(self._impl, "check_sealed") and not (self._survives and self._divides):
            _, _, pending, *_ = cut.before
            self._call("check_sealed", [*(handle for _, handle in pending), cut.handle])

    def add(self, cut: Cut) -> None:
        """Add a transaction that is sealed, and in a durable snapshot."""
        self.last, self._lost = cut.transaction, 0
        self._pending.append((self.last, cut.handle))

    def note_lost(self) -> None:
        """Record that the snapshot that a transaction ended with has failed: its pieces belong to the next one."""
        self._lost += 1

    def commit(self, position: tuple[Any, ...], *, divides: bool = True) -> bool:
        """Commit the transactions in a position of a durable snapshot.

        Args:
            position: the position.
            divides: whether to divide a transaction that the external system refuses.

        Returns:
            Whether all are committed. If not, one was refused and, with `divides`, divided: call it again when a
            snapshot with the current position and letters is durable.

        Raises:
            FencedError: if another run has taken over the output.
            OperatorError: if the sink fails.
        """
        _, last, *_ = position
        due = [(number, handle) for number, handle in self._pending if number <= last]
        for some in [[it] for it in due] if self._survives or self._released else [due]:
            if some and not self._committed(some, divides=divides):
                return False
        return True

    def _committed(self, due: Sequence[tuple[int, Any]], *, divides: bool) -> bool:
        """Commit some transactions; return False if one was refused, and perhaps divided."""
        failpoint("before-commit")
        try:
            self._impl.commit([handle for _, handle in due])
        except FencedError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again, unless records were refused and the policy allows it
            self._refuse(due[0][0], error)
            if divides:
                self._divide(*due[0], error)
            return False
        failpoint("committed")
        del self._pending[: len(due)]
        if self._letters is not None:
            for number, _ in due:
                self._letters.forget(number)
        return True

    @property
    def _divides(self) -> bool:
        return offers(self._impl, "divide")

    def _refuse(self, number: int, error: Exception) -> None:
        """Raise the error of a commit, unless records were refused that the policy, or an operator, decides about.

        Raises:
            OperatorError: naming the way out, if records were refused.
        """
        is_refusal = getattr(error, "refuses_records", False) is True
        if is_refusal and self._divides:
            if self._survives or number in self._released:
                return
            error.add_note(
                "its snapshot has the record, so each start fails until it is accepted; to continue without it, start "
                f"once with on_error='dead_letter' for sink '{self.name}', as by malflow run --set "
                f"operators.{self.name}.on_error=dead_letter: then the rest is written, and malflow errors lists and "
                f"replays the record; or run malflow errors release PATH {self.name} before the next start"
            )
        elif is_refusal or not isinstance(error, OSError):
            error.add_note(
                f"its snapshot has the transaction, so each start commits it again; if that fails for good, malflow "
                f"errors release PATH {self.name} --drop {number} lets the next start continue without it, and keeps "
                "it as a dead letter"
            )
        raise operator_error(self.name, error, None, self._impl, about="commit") from error

    def _divide(self, number: int, handle: Any, refusal: Exception) -> None:
        """Replace a refused transaction by one without the refused records. These become letters."""
        divided = self._call("divide", handle)
        letters = self._letters
        if divided is None or letters is None:
            raise operator_error(self.name, refusal, None, self._impl, about="commit") from refusal
        is_same = not divided.refused and divided.handle == handle
        self._fruitless = self._fruitless + 1 if is_same else 0
        if self._fruitless == _MOST_FRUITLESS:
            raise operator_error(self.name, refusal, None, self._impl, about="commit") from refusal
        letters.take(number, divided, None if self._survives else "dead_letter")
        self._pending = [(it, divided.handle if it == number else held) for it, held in self._pending]
        failpoint("divided")

    def abort(self) -> None:
        """Drop everything that is not part of an uncommitted transaction.

        Raises:
            FencedError: if another run has taken over the output.
            OperatorError: if the sink fails.
        """
        if self._pieces is not None:
            self._pieces.drop(self.name)
        self._call("abort", [handle for _, handle in self._pending])

    def end(self) -> None:
        """End the last transaction of a run, or drop it if an earlier run has ended with the same records.

        Raises:
            OperatorError: if the sink fails.
        """
        if self.has_ended:
            self.abort()
            return
        self.prepare()
        self.has_ended = True

    def _call(self, method: str, argument: Any) -> Any:
        call: Callable[[Any], Any] = getattr(self._impl, method)
        try:
            return call(argument)
        except FencedError:
            raise
        except Exception as error:
            raise operator_error(self.name, error, None, self._impl, about=method) from error


def check_owners(sinks: Iterable[SinkTransactions]) -> None:
    """Check that no two sinks share a ledger."""
    by_owner: dict[str, str] = {}
    for it in sinks:
        other = by_owner.setdefault(it.owner, it.name)
        if other != it.name:
            raise GraphError(
                f"sink '{it.name}' and sink '{other}' share a ledger: one of them was renamed from '{it.owner}'; "
                "choose another name for the new one",
                operator=it.name,
            )


def check_deliveries(program: Program, *, keeps: bool) -> None:
    """Check that transactional sinks can deliver exactly once: with snapshots, and an object for each sink.

    Args:
        program: the program.
        keeps: whether the run takes snapshots.
    """
    seen: dict[int, str] = {}
    for vertex in program.vertices:
        node = vertex.node
        if not isinstance(node, SinkNode) or not isinstance(node.sink, StatelessSink):
            continue
        try:
            check_transactional(node.sink.impl)
        except GraphError as error:
            text = f"sink '{node.name}': {error.reason}"
            raise GraphError(text, operator=node.name, location=vertex.location) from error
        if not node.is_transactional:
            continue
        if not keeps:
            raise GraphError(
                f"sink '{node.name}' delivers exactly once, with snapshots, but the run takes none: pass "
                "persistence=FsspecBackend(...), or --persistence PATH to malflow run, or create the sink with "
                "delivery='at-least-once'",
                operator=node.name,
                location=vertex.location,
            )
        other = seen.setdefault(id(node.sink.impl), node.name)
        if other != node.name:
            raise GraphError(
                f"sink '{node.name}' and sink '{other}' are the same object, which can't end the transactions of both: "
                "create two",
                operator=node.name,
                location=vertex.location,
            )
