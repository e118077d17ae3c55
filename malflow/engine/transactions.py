"""The transactional sinks of a run: what they have prepared and not committed.

Two-phase commit with the job's snapshots as the coordinator's log, after Flink's checkpoints: a prepared transaction is
committed if, and only if, a durable snapshot has its handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from malflow.diagnostics import operator_error
from malflow.engine.plan import Program
from malflow.errors import FencedError, GraphError, SnapshotError, short_repr
from malflow.graph import SinkNode
from malflow.sinks.contract import StatelessSink
from malflow.sinks.transactional import SinkOwner, check_transactional
from malflow.store.failpoint import failpoint

__all__ = ["Transactions", "check_deliveries"]

_MOST_PENDING = 4


class Transactions:
    """The transactions of a program's sinks; does nothing if none is transactional.

    Args:
        program: the program.
    """

    def __init__(self, program: Program) -> None:
        nodes = (vertex.node for vertex in program.vertices)
        sinks = [node for node in nodes if isinstance(node, SinkNode) and node.is_transactional]
        self._sinks = {node.name: _SinkTransactions(node.name, node.sink.impl) for node in sinks}

    def __bool__(self) -> bool:
        return bool(self._sinks)

    @property
    def names(self) -> Iterable[str]:
        """The names of the sinks."""
        return self._sinks.keys()

    @property
    def is_full(self) -> bool:
        """Whether a sink has as many uncommitted transactions as it allows: the run must wait for a snapshot."""
        return any(it.is_full for it in self._sinks.values())

    def load(self, positions: Mapping[str, Any]) -> None:
        """Load the transactions in a snapshot, by sink."""
        for name, position in positions.items():
            if name in self._sinks:
                self._sinks[name].load(position)

    def begin(self, job: str, claim: int, *, origin: str, accept_duplicates: bool) -> None:
        """Take the outputs over, commit the pending transactions of the snapshot, and drop everything else.

        Args:
            job: the job's name, different from that of any other job.
            claim: the number of the run's claim.
            origin: where the run starts from, for an error.
            accept_duplicates: whether the run may start behind what a sink has committed.

        Raises:
            SnapshotError: if the run starts behind what a sink has committed.
            FencedError: if a run with a higher claim has an output.
            OperatorError: if a sink fails.
        """
        self._check_owners()
        for it in self._sinks.values():
            it.fence(SinkOwner(job, it.owner, claim, it.committed), origin=origin, accept_duplicates=accept_duplicates)
        for it in self._sinks.values():
            it.commit(it.last)
        for it in self._sinks.values():
            it.abort()

    def prepare(self) -> dict[str, Any]:
        """End the transaction of each sink, and return what a snapshot has to hold, by sink.

        Raises:
            OperatorError: if a sink fails.
        """
        for it in self._sinks.values():
            failpoint("before-prepare")
            it.prepare()
            failpoint("prepared")
        return self.positions

    @property
    def positions(self) -> dict[str, Any]:
        """What the next snapshot has to hold, by sink; nothing of sinks that have never written."""
        return {name: it.position for name, it in self._sinks.items() if it.has_begun}

    def commit(self, positions: Mapping[str, Any]) -> None:
        """Commit the transactions in a snapshot that is durable now.

        Args:
            positions: what it holds, by sink.

        Raises:
            FencedError: if another run has taken an output over.
            OperatorError: if a sink fails.
        """
        for name, position in positions.items():
            if name in self._sinks:
                self._sinks[name].commit(_transaction_of(position))

    def note_records(self) -> None:
        """Note that the run has read records: the output at its end has not been delivered before."""
        for it in self._sinks.values():
            it.has_ended = False

    def end(self) -> None:
        """End the last transaction of each sink, after the last tick of a run whose sources have all ended.

        If an earlier run has ended with the same records, its output is there already: this run's is dropped.

        Raises:
            OperatorError: if a sink fails.
        """
        for it in self._sinks.values():
            it.end()

    def _check_owners(self) -> None:
        by_owner: dict[str, str] = {}
        for name, it in self._sinks.items():
            other = by_owner.setdefault(it.owner, name)
            if other != name:
                raise GraphError(
                    f"sink '{name}' and sink '{other}' have one ledger: one of them was renamed from '{it.owner}'; "
                    "choose another name for the new one",
                    operator=name,
                )


class _SinkTransactions:
    """The transactions of one sink."""

    def __init__(self, name: str, impl: Any) -> None:
        self.owner = name
        self.last = 0
        self.has_ended = False
        self._name = name
        self._impl = impl
        self._pending: list[tuple[int, Any]] = []
        self._most = getattr(impl, "max_pending", _MOST_PENDING)

    @property
    def is_full(self) -> bool:
        return len(self._pending) >= self._most

    @property
    def has_begun(self) -> bool:
        return self.last > 0

    @property
    def committed(self) -> int:
        """The last transaction that is known to be committed."""
        return self._pending[0][0] - 1 if self._pending else self.last

    @property
    def position(self) -> tuple[Any, ...]:
        return (self.owner, self.last, tuple(self._pending), self.has_ended)

    def load(self, position: tuple[Any, ...]) -> None:
        self.owner, self.last, pending, self.has_ended = position
        self._pending = [(number, handle) for number, handle in pending]

    def fence(self, owner: SinkOwner, *, origin: str, accept_duplicates: bool) -> None:
        committed = self._call("fence", owner)
        if committed is not None and (isinstance(committed, bool) or not isinstance(committed, int)):
            text = f"fence() must return the last committed transaction's number or None; got {short_repr(committed)}"
            raise operator_error(self._name, text, None, self._impl)
        if committed is None or committed <= self.last:
            return
        if not accept_duplicates:
            raise SnapshotError(
                f"sink '{self._name}' has committed transaction {committed}, but {origin}, which has transaction "
                f"{self.last}: what was written since then can't be unwritten, and would be written again. Start from "
                "the newest snapshot, or pass sinks='accept_duplicates'"
            )
        self.last, self._pending, self.has_ended = committed, [], False

    def prepare(self) -> None:
        handle = self._call("prepare", self.last + 1)
        if handle is not None:
            self.last += 1
            self._pending.append((self.last, handle))

    def commit(self, last: int) -> None:
        due = [handle for number, handle in self._pending if number <= last]
        if due:
            failpoint("before-commit")
            self._call("commit", due)
            failpoint("committed")
            self._pending = [(number, handle) for number, handle in self._pending if number > last]

    def abort(self) -> None:
        self._call("abort", [handle for _, handle in self._pending])

    def end(self) -> None:
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
            raise operator_error(self._name, error, None, self._impl, about=method) from error


def _transaction_of(position: tuple[Any, ...]) -> int:
    number: int = position[1]
    return number


def check_deliveries(program: Program, *, keeps: bool) -> None:
    """Check that the transactional sinks of a program can deliver exactly once.

    Args:
        program: the program.
        keeps: whether the run takes snapshots.

    Raises:
        GraphError: if it takes none, or one object is several sinks.
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
                "persistence=FsspecBackend(...), or make the sink with delivery='at-least-once'",
                operator=node.name,
                location=vertex.location,
            )
        other = seen.setdefault(id(node.sink.impl), node.name)
        if other != node.name:
            raise GraphError(
                f"sink '{node.name}' and sink '{other}' are one object, which can't end the transactions of "
                "both: make two",
                operator=node.name,
                location=vertex.location,
            )
