"""Dead letters in a process: replays of a worker's letters, and the letters of a sink that its process keeps.

The letters of a sink are of records that it did not take, and of records that a commit refused. They are states beside
the sink's position. The letters of a refused commit are in the snapshot that has the rest of its transaction, and in no
other: either the old handle, or the new one and the letters, is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from malflow.diagnostics import operator_error
from malflow.engine.plan import Program
from malflow.engine.stage_operators import StageOperators
from malflow.engine.state_specs import OldStates, hidden_id
from malflow.errors import OperatorError, RecordsRefused
from malflow.event_time.tick import Tick
from malflow.failures import FAIL, Budget, DeadLetter, Failures, Fate, OnError, Replay, Replayed
from malflow.message import NoKey
from malflow.nodes import LETTERS_OUTPUT, SinkNode, TimestampsNode
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.failures.dead_letters import REFUSED, UNWRITTEN, Chosen, Letters
from malflow.operators.failures.guard import Guard, is_fatal
from malflow.operators.hosting.sink import SinkWriter, open_sink
from malflow.records.batch import Batch
from malflow.sinks.transactional import Divided, DroppedTransaction, Refused
from malflow.states.keyed import Delta, StateDelta
from malflow.words import short_repr

__all__ = ["SinkLetters", "WorkerReplays", "replay", "total"]

_USUAL = Budget(0.999)
"""The budget without one of the user's: a transaction of 100 records or more that is refused whole ends the run."""


def replay(
    request: Replay, operator: Operator, letters: Letters, reached: Any, emit: Callable[[Sequence[Batch]], object]
) -> Replayed:
    """Serve a request about the dead letters of an operator; each leaves the state when its record is processed.

    A record that fails again becomes a letter with one more attempt. If its key is parked, that letter takes the old
    place, and the later letters of the key stay.

    Args:
        request: the request.
        operator: the operator.
        letters: its letters on this worker.
        reached: the last epoch (watermark) of its input, or None.
        emit: takes the output of the operator.

    Raises:
        OperatorError: if a record fails and the policy is to fail.
    """
    found = letters.chosen(request.ids)
    if request.discards:
        for entry, _ in found:
            letters.drop(entry)
        return Replayed(len(found))
    fates: Counter[str] = Counter()
    queues = letters.queues()
    together: list[Chosen] = []
    for entry, letter in found:
        fate = "done"
        if letter.is_parked and queues[entry[1]][0] != letter.id:
            fate = "parked"
        elif letter.is_text:
            fate = "texts"
        elif _is_late(letter, reached):
            fate = "late"
        elif operator.replays_together and not letter.is_parked:
            if together and letters.columns_of(together[0][0]) != letters.columns_of(entry):
                _settle_together(operator, letters, together, emit)
            together.append((entry, letter))
        else:
            _settle_together(operator, letters, together, emit)  # older ones come first
            if _settled(operator, letters, [(entry, letter)], emit) and letter.is_parked:
                queues[entry[1]].popleft()
        fates[fate] += 1
    _settle_together(operator, letters, together, emit)
    return Replayed(**fates)


def _settle_together(
    operator: Operator, letters: Letters, group: list[Chosen], emit: Callable[[Sequence[Batch]], object]
) -> None:
    if group:
        _settled(operator, letters, group, emit)
        group.clear()


class WorkerReplays:
    """Serves requests about the dead letters of a stage on one worker, before the input of their operators.

    The requests of a tick are served once, however many runs share the tick.

    Args:
        program: the whole program.
        operators: the operators of the stage.

    Attributes:
        done: the outcomes since the last call of `take_done`, by operator.
    """

    def __init__(self, program: Program, operators: StageOperators) -> None:
        self.done: dict[str, Replayed] = {}
        self._program = program
        self._operators = operators
        self._tick = 0

    def requests(self, tick: Tick) -> Sequence[Replay]:
        """Return the requests of a tick, unless a run of the same tick has returned them."""
        before, self._tick = self._tick, tick.number
        return () if tick.number == before else tick.replays

    def serve(self, vertex: int, requests: Sequence[Replay]) -> int:
        """Serve the requests about the dead letters of an operator; return the number of records that it processed.

        Raises:
            OperatorError: if a record fails and the policy is to fail.
        """
        letters, active, records = self._operators.letters.get(vertex), self._operators.active[vertex], 0
        if letters is None:
            return 0
        name = active.operator.context.operator_name
        for request in requests:
            if request.operator == name:
                reached = _reached_by(self._program, self._operators.operators, vertex)
                found = replay(request, active.operator, letters, reached, active.emit)
                self.done[name] = total([self.done.get(name, Replayed()), found])
                records += 0 if request.discards else found.done
        return records

    def take_done(self) -> dict[str, Replayed]:
        """Return the outcomes since the last call, by operator."""
        done, self.done = self.done, {}
        return done


def _reached_by(program: Program, operators: Mapping[int, Operator], vertex: int) -> Any:
    """Return the last epoch (watermark) that has reached an operator, from upstream in its stage, or None.

    Args:
        program: the program.
        operators: the operators of the stage on a worker, by vertex.
        vertex: the operator.
    """
    if not program.vertices[vertex].inputs:
        return None
    if (edges := operators[vertex].edges_reached()) is not None:
        return _least(edges)
    (port, *_) = program.vertices[vertex].inputs
    while port.output != LETTERS_OUTPUT and port.vertex in operators:
        operator, upstream = operators[port.vertex], program.vertices[port.vertex]
        if isinstance(operator, GenerateEpochs):
            return operator.epoch
        if (edges := operator.edges_reached()) is not None:
            return _least(edges)
        if isinstance(upstream.node, TimestampsNode) or not upstream.inputs:
            return None
        port = upstream.inputs[0]
    return None


def _least(edges: Mapping[int, Any]) -> Any:
    """Return the least epoch of the edges of an operator, or None if one has none."""
    return None if not edges or None in edges.values() else min(edges.values())


def total(found: Sequence[Replayed]) -> Replayed:
    """Return the sum over workers."""
    return Replayed(*map(sum, zip(*found, strict=True))) if found else Replayed()


def _settled(
    operator: Operator, letters: Letters, group: Sequence[Chosen], emit: Callable[[Sequence[Batch]], object]
) -> bool:
    """Process the records of letters; return whether all the letters left. The next one of a key can then follow."""
    chosen = [letter for _, letter in group]
    is_keyed = any(letter.key is not NoKey for letter in chosen)  # some may be from before the stream had keys
    keys = [letter.key for letter in chosen] if is_keyed else None
    batch = Batch(keys, [letter.value for letter in chosen], [letter.timestamp for letter in chosen])
    guard = operator.guard
    operator.turn_to(chosen[0].input)
    operator.turn_to_columns(letters.columns_of(group[0][0]))
    if guard is None:
        for entry, _ in group:
            letters.drop(entry)
        emit(operator.process_again(batch))
        return True
    with guard.replaying(group):
        emit(operator.process_again(batch))
    return not any(entry in letters for entry, _ in group)


def _is_late(letter: DeadLetter, reached: Any) -> bool:
    try:
        return reached is not None and not letter.timestamp > reached
    except Exception:  # noqa: BLE001 - a timestamp that can't be compared with the epoch is not after it
        return True


class SinkLetters:
    """The dead letters of one sink in this process.

    Args:
        node: the sink.
        policy: its policy; None if every failure ends the run, in which case earlier letters stay.

    Attributes:
        writer: the operator that writes to the sink.
        survives: whether the run may continue without a record.
    """

    def __init__(self, node: SinkNode, policy: OnError | None) -> None:
        self._name = node.name
        context = OperatorContext(node.name, tracked=True)
        self._unwritten, self._refused = Letters(context, None, "u"), Letters(context, None, "r")
        self.writer: SinkWriter = open_sink(context, node.sink, policy, self._unwritten)
        self.survives = policy is not None
        self._impl: Any = node.sink.impl
        self._budget = _USUAL if policy is None or policy.budget is None else policy.budget
        self._guard = Guard(self.writer, FAIL if policy is None else policy, self._refused)
        self._kept = {hidden_id(node, UNWRITTEN): self._unwritten, hidden_id(node, REFUSED): self._refused}
        self._sizes: dict[int, int] = {}
        self._found: Counter[int] = Counter()

    # The states

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._kept)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of letters in each state that has ever had one."""
        return {name: len(it) for name, it in self._kept.items() if it.state is not None}

    @property
    def entries(self) -> list[tuple[Any, Any]]:
        """The entries of all letters."""
        return [entry for it in self._kept.values() for entry in (it.state or {}).items()]

    def restore(self, states: OldStates) -> None:
        """Load the letters in a snapshot."""
        for name, letters in self._kept.items():
            entries = {entry: it for by_key in states.get(name, {}).values() for entry, it in by_key.items()}
            if entries:
                letters.apply(Delta(entries, whole=True))

    def deltas(self, *, whole: bool = False) -> Iterator[StateDelta]:
        """Yield the changes since the last snapshot, or the whole states."""
        for name in self._kept:
            yield from self._delta(name, whole=whole)

    def amendments(self) -> Iterator[StateDelta]:
        """Yield the letters of what commits have refused since the last snapshot. They amend that snapshot."""
        yield from self._delta(next(name for name, it in self._kept.items() if it is self._refused))

    def _delta(self, name: str, *, whole: bool = False) -> Iterator[StateDelta]:
        letters = self._kept[name]
        if whole:
            letters.forget()
        delta = letters.delta()
        if delta:
            yield StateDelta(0, name, delta, len(letters))

    def note_lost(self) -> None:
        """Record that the last snapshot failed. The next one then has all letters."""
        for it in self._kept.values():
            it.forget()

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick after which letters are made."""
        for it in self._kept.values():
            it.begin_tick(tick)

    # What a commit refused

    def take(self, transaction: int, divided: Divided[Any], fate: Fate | None = None) -> None:
        """Decide about the records that a transaction was refused for.

        Args:
            transaction: its number.
            divided: the transaction without them.
            fate: their fate, whatever the policy and its budget; None to apply them.

        Raises:
            OperatorError: if the policy is to fail, or so many are refused that the program or the target is at fault.
        """
        self._sizes.setdefault(transaction, divided.size)
        self._found[transaction] += len(divided.refused)
        if fate is None:
            self._check_share(transaction, divided.refused)
        for it in divided.refused:
            self._guard.take(it.error, (it.key, it.value, it.timestamp), attempts=1, fate=fate)

    def drop(self, transaction: int, handle: Any) -> None:
        """Keep a whole, uncommitted transaction as one letter.

        Raises:
            OperatorError: if it exceeds the bounds of letters.
        """
        error = RecordsRefused(f"transaction {transaction} was dropped: malflow errors release --drop")
        self._guard.take(error, (NoKey, DroppedTransaction(transaction, handle), None), attempts=1, fate="dead_letter")

    def forget(self, transaction: int) -> None:
        """Note that a transaction is committed."""
        self._sizes.pop(transaction, None)
        self._found.pop(transaction, None)

    def _check_share(self, transaction: int, refused: Sequence[Refused]) -> None:
        size, found, budget = self._sizes[transaction], self._found[transaction], self._budget
        if not refused or size < budget.least or found <= budget.share * size:
            return
        first = refused[0]
        raise operator_error(
            self._name,
            f"{found:,} of the {size:,} records of a transaction are refused, for example "
            f"{short_repr(first.value)}: {first.error}; mend the target or the program, or allow a greater share by "
            "on_error=OnError('dead_letter', budget=Budget(1.0))",
            None,
            self._impl,
        ) from first.error

    # Replays

    def replay(self, request: Replay, write: Callable[[Sequence[Refused]], object]) -> Replayed:
        """Replay or discard letters, with the open transaction.

        Args:
            request: the request.
            write: writes items that a commit refused.

        Raises:
            OperatorError: if a record fails and the policy is to fail.
        """
        if request.discards or len(self._unwritten):
            found = replay(request, self.writer, self._unwritten, None, lambda _: None)
        else:
            found = Replayed()
        again = self._replay_refused(request, write)
        return Replayed(*(one + other for one, other in zip(found, again, strict=True)))

    def _replay_refused(self, request: Replay, write: Callable[[Sequence[Refused]], object]) -> Replayed:
        letters, done, texts = self._refused, 0, 0
        for entry, letter in letters.chosen(request.ids):
            is_whole = isinstance(letter.value, DroppedTransaction)
            if (letter.is_text or is_whole) and not request.discards:
                texts += 1
                continue
            done += 1
            if request.discards or not self.survives:
                letters.drop(entry)
            if request.discards:
                continue
            record = letter.key, letter.value, letter.timestamp
            again = Refused(letter.value, ValueError(letter.message), letter.key, letter.timestamp)
            if not self.survives:
                self._write(write, again)
                continue
            with self._guard.replaying([(entry, letter)]):
                try:
                    write([again])
                except Exception as error:
                    if is_fatal(error):
                        raise self.writer.error(error, record) from error
                    self._guard.take(error, record, attempts=1)
        return Replayed(done, 0, texts)

    def _write(self, write: Callable[[Sequence[Refused]], object], it: Refused) -> None:
        try:
            write([it])
        except OperatorError:
            raise
        except Exception as error:
            raise self.writer.error(error, (it.key, it.value, it.timestamp)) from error

    # Reports

    def take_counts(self) -> Counter[str]:
        """Return the counters of failures since the last call."""
        counts: Counter[str] = Counter()
        counts.update(self._guard.take_counts())
        counts.update(self.writer.take_counts())
        return counts

    def gauges(self) -> Mapping[str, int]:
        """Return the gauges: the letters kept here."""
        return {name: number + self.writer.gauges().get(name, 0) for name, number in self._guard.gauges().items()}

    def take_failures(self) -> Failures | None:
        """Return the refusals of commits since the last call."""
        return self._guard.take_failures()
