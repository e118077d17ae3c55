"""The sinks of a run: their positions in snapshots, and the transactions that snapshots commit.

Two-phase commit with the job's snapshots as the coordinator's log, after Flink's checkpoints: a prepared transaction is
committed if, and only if, a durable snapshot has its handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from malflow.engine.dead_letters import SinkLetters
from malflow.engine.plan import key_of_count
from malflow.engine.reports import Report
from malflow.engine.sink_transactions import Cut, SinkTransactions, StoredPieces, check_owners
from malflow.engine.state_specs import OldStates
from malflow.errors import offers
from malflow.event_time.tick import Tick
from malflow.failures import OnError, Replay, Replayed
from malflow.message import DataMessage
from malflow.nodes import SinkNode
from malflow.sinks.contract import StatelessSink
from malflow.sinks.distributed import is_distributed
from malflow.sinks.transactional import Refused
from malflow.states.keyed import Delta, StateDelta
from malflow.store.failpoint import failpoint

__all__ = ["RunSinks", "delta_of", "position_in"]

_POSITION = "position"
"""The only key in the state of a resumable or transactional stateless sink, on worker 0."""


class RunSinks:
    """The stateless sinks of a run in this process, each one object for all workers.

    A resumable sink has a position; the position of a transactional sink is its prepared transactions.

    Args:
        nodes: the sinks; stateful ones are ignored, since their state belongs to the workers.
        pieces: the stored pieces of distributed sinks, if the workers write them; by default this process does.
        policy: returns the policy of a sink for records that are refused; None if they end the run.

    Attributes:
        writers: the operator of each sink, in the order of `nodes`.
        captured: the position of each sink in the last snapshot taken, or a `Cut`; replaced by the next, never mutated.
    """

    def __init__(
        self,
        nodes: Iterable[SinkNode],
        pieces: StoredPieces | None = None,
        policy: Callable[[SinkNode], OnError | None] = lambda _: None,
    ) -> None:
        stateless = [node for node in nodes if isinstance(node.sink, StatelessSink)]
        self._letters = {node.name: SinkLetters(node, policy(node)) for node in stateless}
        self._surviving = {name: it for name, it in self._letters.items() if it.survives}
        self.writers = [it.writer for it in self._letters.values()]
        self._pieces = pieces
        self._impls: dict[str, Any] = {node.name: node.sink.impl for node in stateless}
        self._awaits_division = False
        for node in stateless:
            if offers(node.sink.impl, "divide"):
                node.sink.impl.divides = policy(node) is not None  # type: ignore[union-attr] # it has a divide()
        self.captured: Mapping[str, Any] = {}
        self._nobody_reads = False
        self._resumable = {it.context.operator_name: it for it in self.writers if it.is_resumable}
        self._transactions = {
            it.name: SinkTransactions(
                it.name, it.sink.impl, pieces if is_distributed(it.sink.impl) else None, self._letters[it.name]
            )
            for it in stateless
            if it.is_transactional
        }

    @property
    def names(self) -> frozenset[str]:
        """The states of the sinks: positions, by their names, and dead letters."""
        letters = (it.names for it in self._letters.values())
        return frozenset(self._resumable).union(self._transactions, *letters)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of entries of each state in the last snapshot taken."""
        letters = {name: size for it in self._letters.values() for name, size in it.sizes.items()}
        return {**dict.fromkeys(self.captured, 1), **letters}

    @property
    def reader_is_gone(self) -> bool:
        """Whether the output of a sink, or what the workers print, has lost its reader (a broken pipe)."""
        return self._nobody_reads or any(writer.reader_is_gone for writer in self.writers)

    def note_reader(self, *, is_gone: bool) -> None:
        """Note whether what the workers print has lost its reader."""
        self._nobody_reads = self._nobody_reads or is_gone

    # Positions

    def split(self, states: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the states of the workers, and the positions of these sinks."""
        ours = {name: states[name] for name in self.names if name in states}
        return {name: it for name, it in states.items() if name not in ours}, ours

    def restore(self, states: OldStates) -> None:
        """Return the resumable sinks to their positions in a snapshot, and load its transactions.

        Args:
            states: the states in the snapshot.

        Raises:
            OperatorError: if a sink fails.
        """
        for letters in self._letters.values():
            letters.restore(states)
        found = {name: position_in(states, name) for name in (*self._resumable, *self._transactions)}
        for name, writer in self._resumable.items():
            writer.restore(found[name])
        self.captured = _known(found)
        for name, it in self._transactions.items():
            if name in self.captured:
                it.load(self.captured[name])

    def has_unkept(self) -> bool:
        """End the transactions, and return whether the last snapshot lacks the position of a sink.

        If so, a resumed run could not return to it.

        Raises:
            OperatorError: if a sink fails.
        """
        return bool(self._changed(self._positions()))

    def deltas(self, *, whole: bool = False) -> list[StateDelta]:
        """End the transactions, and return the positions that have changed since the last snapshot, but no `cuts`.

        Args:
            whole: whether to return all positions.

        Raises:
            OperatorError: if a sink fails.
        """
        positions = self._positions()
        changed = positions if whole else self._changed(positions)
        self.captured = positions
        letters = [delta for it in self._letters.values() for delta in it.deltas(whole=whole)]
        return [*_deltas_of(changed), *letters]

    @property
    def cuts(self) -> list[Cut]:
        """The transactions in the last snapshot taken that its job seals."""
        return [it for it in self.captured.values() if isinstance(it, Cut)]

    def check(self, cuts: Iterable[Cut]) -> None:
        """Call the sinks' checks of sealed transactions, before the snapshot with them is durable.

        Raises:
            OperatorError: if a sink refuses one.
        """
        for cut in cuts:
            self._transactions[cut.sink].check(cut)

    def transaction_deltas(self) -> list[StateDelta]:
        """Return the transactions that have changed since the last snapshot, as an amendment to it."""
        changed = self._changed(self._prepared)
        self.captured = {**self.captured, **changed}
        letters = [delta for it in self._letters.values() for delta in it.amendments()]
        return [*_deltas_of(changed), *letters]

    def note_lost(self) -> None:
        """Record that the last snapshot failed. The next one then has all positions."""
        for cut in self.cuts:
            self._transactions[cut.sink].note_lost()
        for letters in self._letters.values():
            letters.note_lost()
        self.captured = {}

    def _positions(self) -> dict[str, Any]:
        """Return the positions of the resumable sinks, and end the transactions of the others."""
        found = {name: writer.position() for name, writer in self._resumable.items()}
        cuts = {name: cut for name, it in self._transactions.items() if (cut := it.cut()) is not None}
        for name, it in self._transactions.items():
            failpoint("before-prepare")
            if name not in cuts:
                it.prepare()
            failpoint("prepared")
        return _known(found | self._prepared | cuts)

    @property
    def _prepared(self) -> dict[str, Any]:
        """The transactions for a snapshot, by sink, without sinks that have never written."""
        return {name: it.position for name, it in self._transactions.items() if it.has_begun}

    def _changed(self, positions: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: position for name, position in positions.items() if self.captured.get(name) != position}

    # Transactions

    @property
    def has_transactions(self) -> bool:
        """Whether any of the sinks is transactional."""
        return bool(self._transactions)

    @property
    def uncommitted(self) -> dict[str, tuple[int, int]]:
        """The number of uncommitted transactions of each transactional sink, and its limit."""
        return {name: (it.uncommitted, it.most) for name, it in self._transactions.items()}

    @property
    def is_full(self) -> bool:
        """Whether a sink has reached its limit of uncommitted transactions: the run must wait for a snapshot."""
        return any(it.is_full for it in self._transactions.values())

    def begin(self, job: str, claim: int, *, origin: str, accept_duplicates: bool, store: object = None) -> None:
        """Take over the outputs, commit the pending transactions of the snapshot, and abort all others.

        Args:
            job: the job's name, different from that of any other job.
            claim: the number of the run's claim.
            origin: the start of the run, for an error.
            accept_duplicates: whether the run may start before the last commit of a sink.
            store: the store of the snapshots, where sinks with records on the workers may keep these.

        Raises:
            SnapshotError: if the run starts before the last commit of a sink.
            FencedError: if a run with a higher claim has an output.
            OperatorError: if a sink fails.
        """
        sinks = self._transactions.values()
        check_owners(sinks)
        for it in sinks:
            it.fence(job, claim, origin=origin, accept_duplicates=accept_duplicates, store=store)
        done = [it.commit(it.position, divides=False) for it in sinks]
        self._awaits_division = not all(done)
        for it in sinks:
            it.abort()

    @property
    def awaits_snapshot(self) -> bool:
        """Whether a transaction of the restored snapshot was refused, and is divided after the next snapshot."""
        return self._awaits_division

    def commit(self, positions: Mapping[str, Any]) -> bool:
        """Commit the transactions in a snapshot that is now durable.

        Args:
            positions: the positions in it, as `captured` was when it was taken.

        Returns:
            Whether all are committed. If not, one was refused and divided: amend the snapshot, and call it again.

        Raises:
            FencedError: if another run has taken over an output.
            OperatorError: if a sink fails.
        """
        for name, it in self._transactions.items():
            position = positions.get(name)
            if isinstance(position, Cut):
                it.add(position)
                self.captured = {**self.captured, name: position.position}
        due = [(it, positions[name]) for name, it in self._transactions.items() if name in positions]
        done = [it.commit(at.position if isinstance(at, Cut) else at) for it, at in due]
        self._awaits_division = not all(done)
        return not self._awaits_division

    # Dead letters

    def begin_tick(self, tick: Tick, *, is_first: bool = False) -> None:
        """Receive the tick after which dead letters are made.

        Args:
            tick: the tick.
            is_first: whether it is the tick of the restored snapshot; its transactions may have been released.
        """
        for it in (self._letters if is_first else self._surviving).values():
            it.begin_tick(tick)

    def letters_of(self, sink: str) -> list[tuple[Any, Any]]:
        """Return the entries of the dead letters of a sink that this process keeps."""
        return self._letters[sink].entries if sink in self._letters else []

    def replay(self, request: Replay) -> Replayed:
        """Replay or discard the dead letters of a sink that this process keeps; no snapshot may be being written.

        Raises:
            OperatorError: if a record fails and the policy is to fail.
        """
        name = request.operator
        if name not in self._letters:
            return Replayed()
        return self._letters[name].replay(request, partial(self._write_refused, name))

    def _write_refused(self, name: str, records: Sequence[Refused]) -> None:
        impl = self._impls[name]
        if self._pieces is not None and is_distributed(impl):
            self._pieces.add(name, impl.encode_refused(records))
        elif offers(impl, "write_refused"):
            impl.write_refused(records)
        else:
            for it in records:
                impl.sink(DataMessage(it.key, it.value, it.timestamp))

    def report(self) -> Report | None:
        """Return a report of the failures that the letters here are about; None without a policy."""
        mine = self._surviving
        if not mine:
            return None
        counts = {key_of_count(name, at): n for name, it in mine.items() for at, n in it.take_counts().items() if n}
        gauges = {key_of_count(name, at): n for name, it in mine.items() for at, n in it.gauges().items() if n}
        failures = {name: found for name, it in mine.items() if (found := it.take_failures()) is not None}
        return Report(0, counts, gauges, failures=failures)

    def note_records(self) -> None:
        """Record that the run has read records. The output at its end is then new."""
        for it in self._transactions.values():
            it.has_ended = False

    def end(self) -> None:
        """End the last transaction of each sink, after the last tick of a run once all its sources have ended.

        If an earlier run has ended with the same records, their output already exists, and this run's is dropped.

        Raises:
            OperatorError: if a sink fails.
        """
        for it in self._transactions.values():
            it.end()


def _known(positions: Mapping[str, Any]) -> dict[str, Any]:
    return {name: position for name, position in positions.items() if position is not None}


def position_in(states: OldStates, sink: str) -> Any:
    """Return the position of a sink in a snapshot, or None."""
    held = [by_key[_POSITION] for by_key in states.get(sink, {}).values() if _POSITION in by_key]
    return held[0] if held else None


def _deltas_of(positions: Mapping[str, Any]) -> list[StateDelta]:
    ended = ((name, it) for name, it in positions.items() if not isinstance(it, Cut))
    return [delta_of(name, it) for name, it in ended]


def delta_of(sink: str, position: Any) -> StateDelta:
    """Return the position of a sink as a change of state."""
    return StateDelta(0, sink, Delta({_POSITION: position}, whole=True), 1)
