"""The same dataflow, built with malflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from malflow import DataMessage, NoKey, OnError, Retry, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import PartAssignment
from malflow.engine.state_specs import states_of
from malflow.failures import ErrorPolicy
from malflow.graph import Graph
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatefulSource, StatelessSource
from malflow.states.kinds import StateSpec
from malflow.testing.driven import DrivenRun
from malflow.windows import FOREVER, CountWindows, Timing
from tests.kit.forced_moves import drawn_move
from tests.properties import functions, script
from tests.properties.interpreter import owned
from tests.properties.specs import REFUSES, Dataflow, Part, Step, fresh

__all__ = ["Run", "build", "keyed_states", "needs_epochs", "run", "run_moved", "run_rescaled"]


@dataclass
class Run:
    """The messages that malflow's sinks and inspectors received.

    Attributes:
        new_log: makes what inspectors append to: a list, or, where they are in other processes, a `Log`.
        new_sink: makes the sink of a step, where it is to be another one; it fills `records` itself.
        policy: what becomes of the records that a sink refuses.
        decode: turns what the source of a step reads into its records, where that is something else.
        marks: by step, the workers and epochs in their order, since the number of workers last changed.
        past_epochs: by step, those of the times before, each by worker.
        restarts: how often the run began again from a snapshot.
        moves: how often parts were moved to another worker.
        handed_out: whether parts were handed out while the run read.
    """

    new_log: Callable[[], Any] = list
    new_sink: Callable[[Step], Any] | None = None
    policy: ErrorPolicy = "dead_letter"
    decode: Callable[[Step, Any], Any] | None = None
    sinks: dict[str, VecSink[Any, Any, Any]] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)
    past_epochs: dict[str, list[dict[int, list[Any]]]] = field(default_factory=dict)
    restarts: int = 0
    moves: int = 0
    handed_out: bool = False

    @property
    def epochs(self) -> dict[str, dict[int, list[Any]]]:
        """Return the epochs by step and worker, since the last rescale."""
        epochs: dict[str, dict[int, list[Any]]] = {}
        for name, marks in self.marks.items():
            by_worker = epochs.setdefault(name, {})
            for worker, epoch in marks:
                by_worker.setdefault(worker, []).append(epoch)
        return epochs

    def turn_over(self) -> None:
        """Begin a new time."""
        for name, by_worker in self.epochs.items():
            self.past_epochs.setdefault(name, []).append(by_worker)
            self.marks[name].clear()

    def settle(self) -> None:
        """Read what the sinks have collected."""
        self.records.update({name: list(sink) for name, sink in self.sinks.items()})


def run(dataflow: Dataflow, parallelism: int = 1, chunk: int | None = None) -> Run:
    """Run a dataflow; no poll of a source gives more than `chunk` records."""
    result = Run()
    SingleThreadRuntime(
        lambda provider: build(dataflow, provider, chunk, result),
        parallelism=parallelism,
        debug=dataflow.debug,
        part_assignment="dynamic",
    ).execute()
    result.settle()
    return result


def run_rescaled(dataflow: Dataflow, parallelism: int, chunk: int, rescales: Sequence[tuple[int, int]]) -> Run:
    """Run a dataflow, and change the number of workers after so many ticks each.

    Raises:
        SnapshotError: if it has state under ``key_local``.
    """
    result = Run()
    graph = Graph()
    build(dataflow, StreamProvider(graph), chunk, result)
    with DrivenRun(compile_graph(graph), parallelism=parallelism, tracked=False, debug=dataflow.debug) as engine:
        engine.open()
        for ticks, workers in rescales:
            for _ in range(ticks):
                if not engine.is_finished:
                    engine.tick()
            engine.rescale(workers)
            result.turn_over()
        while not engine.is_finished:
            engine.tick()
        engine.end()
    result.settle()
    return result


def run_moved(
    dataflow: Dataflow, parallelism: int, chunk: int, assignment: PartAssignment, moves: Sequence[tuple[int, int, int]]
) -> Run:
    """Run a dataflow, and move a part of its sources after so many ticks each, where a run may do so.

    Args:
        dataflow: the dataflow.
        parallelism: the number of workers.
        chunk: how many records a poll returns at most.
        assignment: how parts are assigned.
        moves: for each move the ticks before it, the part, and the worker that gets it.
    """
    result = Run()
    graph = Graph()
    build(dataflow, StreamProvider(graph), chunk, result, source=lambda step: _positioned(step.arg, chunk))
    program = replace(compile_graph(graph), part_assignment=assignment)
    with DrivenRun(program, parallelism=parallelism, tracked=False, debug=dataflow.debug) as engine:
        engine.open()
        result.handed_out = engine.ticks.hands_out
        for ticks, which, to in moves:
            for _ in range(ticks + 1):
                if not engine.is_finished:
                    engine.tick()
            move = None if engine.is_finished else drawn_move(program, engine, which, to)
            if move is not None:
                engine.move_parts(move)
                result.turn_over()
                result.moves += 1
        while not engine.is_finished:
            engine.tick()
        engine.end()
    result.settle()
    return result


def keyed_states(dataflow: Dataflow) -> list[StateSpec]:
    """List the states that a dataflow keeps by key."""
    graph = Graph()
    build(dataflow, StreamProvider(graph), None, Run())
    return [spec for spec in states_of(compile_graph(graph)) if spec.kind.is_by_key]


def build(
    dataflow: Dataflow, provider: Any, chunk: int | None, result: Run, *, source: Callable[[Step], Any] | None = None
) -> None:
    """Build a dataflow whose sinks and inspectors write to `result`.

    Args:
        dataflow: the dataflow.
        provider: what gives streams.
        chunk: how many records a poll returns at most.
        result: what comes of it.
        source: makes the source of a step, where it is to be another one.
    """
    script.define()
    streams: list[Any] = []
    for step in dataflow.steps:
        if step.kind == "source":
            made = StatelessSource(_source(step.arg, chunk)) if source is None else source(step)
            stream = provider.new_stream().source(step.name, made)
            streams.append(stream if result.decode is None else result.decode(step, stream))
            continue
        inputs = [streams[index] for index in step.inputs]
        if needs_epochs(step):
            inputs = [_with_epochs(stream, f"{step.name} epochs {at}") for at, stream in enumerate(inputs)]
        streams.extend(_streams(_BUILDERS[step.kind](step, inputs, result)))


def needs_epochs(step: Step) -> bool:
    """Whether a step is refused on a stream without epochs (watermarks); it then gets a generator of none."""
    waiting = (
        "window",
        "early_window",
        "sort",
        "cogroup",
        "interval_join",
        "asof_join",
        "join_table",
        "expiring_table",
    )
    return step.kind in waiting or (step.kind, step.arg) == ("stateful_op", "alarm")


def _with_epochs(stream: Any, name: str) -> Any:
    """Return a stream with a generator of epochs, one that issues none where it had none."""
    if stream._graph.has_epochs(stream._port):
        return stream
    return stream.generate_epochs(name, lambda msg, epoch: None, per_part=False).on_time


def _streams(made: Any) -> Sequence[Any]:
    return made if isinstance(made, (list, tuple)) else () if made is None else (made,)


# Sources


def _source(parts: tuple[Part, ...], chunk: int | None) -> Any:
    if parts[0].key is not NoKey:
        return PartSource(parts, chunk)
    items = fresh(list(parts[0].values))
    return SingleIteratorSource(items) if chunk is None else ChunkedIteratorSource(items, chunk)


class ChunkedIteratorSource(SingleIteratorSource[Any]):
    """The built-in source, which gives no more than so many records at a time."""

    def __init__(self, items: list[Any], chunk: int) -> None:
        super().__init__(items)
        self._chunk = chunk

    def build_part(self, part: Any) -> Any:
        return ChunkedPartition(super().build_part(part), self._chunk)


class ChunkedPartition:
    """A partition, of which each poll but every third gives no more than so many records, and the third none."""

    def __init__(self, partition: Any, chunk: int) -> None:
        self._partition = partition
        self._chunk = chunk
        self._polls = 0

    def poll(self) -> Any:
        return self._partition.poll()

    def poll_batch(self, limit: int) -> Any:
        self._polls += 1
        return ((), ()) if self._polls % 3 == 0 else self._partition.poll_batch(min(limit, self._chunk))

    def is_finished(self) -> bool:
        return bool(self._partition.is_finished())

    def suspend(self) -> None: ...


class PartSource:
    """A source with parts as keys, in another order each time; any object with these methods will do."""

    def __init__(self, parts: tuple[Part, ...], chunk: int | None) -> None:
        self._turn = sum(len(part.values) for part in parts)
        self.bounded = self._turn % 2 == 0  # then many parts are handed out one after the other
        self._parts = {part.key: part for part in parts}
        self._chunk = chunk

    def list_parts(self) -> list[Any]:
        self._turn += 1
        at = self._turn % len(self._parts)
        listed = list(self._parts)
        return listed[at:] + listed[:at]

    def build_part(self, part: Any) -> Any:
        partition = PartPartition(self._parts[part])
        return partition if self._chunk is None else ChunkedPartition(PolledPartition(partition), self._chunk)


def _positioned(parts: tuple[Part, ...], chunk: int) -> Any:
    """Return a source with positions, where its records have keys: its parts can move."""
    if parts[0].key is NoKey:
        return StatelessSource(_source(parts, chunk))
    return StatefulSource(PositionedSource(parts, chunk))


class PositionedSource(PartSource):
    """The same, with positions; many parts are handed out one after the other, unless the run deals them all."""

    def __init__(self, parts: tuple[Part, ...], chunk: int | None) -> None:
        super().__init__(parts, chunk)
        self.bounded = True

    def build_part(self, part: Any, state: int | None = None) -> Any:
        return PositionedPartition(self._parts[part], self._chunk or 1, state or 0)


class PositionedPartition:
    """A partition whose position is the number of its rows that were read; every third poll gives none."""

    def __init__(self, part: Part, chunk: int, at: int) -> None:
        self._rows = list(zip(fresh(part.values), part.timestamps, strict=True))
        self._chunk, self._at, self._polls = chunk, at, at

    def poll_batch(self, limit: int) -> tuple[list[Any], list[int]]:
        self._polls += 1
        until = self._at if self._polls % 3 == 0 else self._at + min(limit, self._chunk)
        taken, self._at = self._rows[self._at : until], min(until, len(self._rows))
        return [value for value, _ in taken], [timestamp for _, timestamp in taken]

    def is_finished(self) -> bool:
        return self._at >= len(self._rows)

    def snapshot(self) -> int:
        return self._at

    def suspend(self) -> None: ...


class PartPartition:
    """Polled record by record."""

    def __init__(self, part: Part) -> None:
        self._rows = list(zip(fresh(part.values), part.timestamps, strict=True))

    def poll(self) -> tuple[Any, int] | None:
        return self._rows.pop(0) if self._rows else None

    def is_finished(self) -> bool:
        return not self._rows

    def suspend(self) -> None: ...


class PolledPartition(PartPartition):
    """Polled in batches."""

    def __init__(self, partition: PartPartition) -> None:
        self._rows = partition._rows

    def poll_batch(self, limit: int) -> tuple[list[Any], list[int]]:
        taken, self._rows = self._rows[:limit], self._rows[limit:]
        return [value for value, _ in taken], [timestamp for _, timestamp in taken]


# Operators

Builder = Callable[[Step, list[Any], Run], Any]


def _with(table: dict[str, Any]) -> Builder:
    return lambda step, inputs, _: getattr(inputs[0], step.kind)(step.name, table[step.arg])


def _bare(step: Step, inputs: list[Any], _: Run) -> Any:
    return getattr(inputs[0], step.kind)(step.name)


def _key_distribute(step: Step, inputs: list[Any], _: Run) -> Any:
    key, partitioner = step.arg
    return inputs[0].key_distribute(step.name, functions.KEYS[key], functions.PARTITIONERS[partitioner])


def _stateful_map(step: Step, inputs: list[Any], _: Run) -> Any:
    mapper = functions.STATEFUL_MAPS[step.arg]
    make = partial(functions.ticket, step.name) if step.arg == "ticket" else mapper.make
    return inputs[0].stateful_map(step.name, make, mapper.default)


RETRIED = OnError("skip", retry=Retry(2, first=0, on=(ValueError,)))


def _fragile(step: Step, inputs: list[Any], _: Run) -> Any:
    return inputs[0].map(step.name, functions.fragile, on_error=RETRIED if step.arg else "skip")


def _fragile_map(step: Step, inputs: list[Any], _: Run) -> Any:
    policy = RETRIED if step.arg else "skip"
    return inputs[0].stateful_map(step.name, functions.fragile_history, list, on_error=policy)


def _stateful_op(step: Step, inputs: list[Any], _: Run) -> Any:
    logic = functions.STATEFUL_OPS[step.arg]
    return inputs[0].stateful_op(step.name, logic.make(), logic.default)


def _connect(step: Step, inputs: list[Any], _: Run) -> Any:
    made = functions.CONNECTS[step.arg]
    logic = made.make()
    functions_of = (logic,) if hasattr(logic, "on_epoch") else (logic.on_left, logic.on_right)
    return inputs[0].connect(step.name, inputs[1], *functions_of, default=made.default)


def _generate_epochs(step: Step, inputs: list[Any], _: Run) -> Any:
    bound = isinstance(step.arg, int)
    generator = limit_out_of_orderness(step.arg) if bound else functions.GENERATORS[step.arg]
    return inputs[0].generate_epochs(step.name, generator, every=step.every, per_part=step.per_part)


def _event_time(step: Step, inputs: list[Any], _: Run) -> Any:
    assigner, bound = step.arg
    stream = inputs[0].event_time(
        step.name, functions.ASSIGNERS[assigner], out_of_orderness=bound, every=step.every, per_part=step.per_part
    )
    return stream, stream.late


def _window(step: Step, inputs: list[Any], _: Run) -> Any:
    windows = functions.WINDOWS[step.arg]
    results = inputs[0].window(windows).aggregate(step.name, agg.count(), agg.sum(functions.weight))
    if isinstance(windows, CountWindows):
        results = results.filter(f"{step.name} whole", lambda result: result.timing is Timing.FINAL)
    return _plain(step, results)


def _early_window(step: Step, inputs: list[Any], _: Run) -> Any:
    windows, early = functions.EARLY[step.arg]
    results = inputs[0].window(windows, early=early).aggregate(step.name, agg.count(), agg.sum(functions.weight))
    return _plain(step, results)


def _late_window(step: Step, inputs: list[Any], _: Run) -> Any:
    name, finds_late, is_one = step.arg
    windows, until = functions.LATE[name]
    windowed = inputs[0].window(windows).allow_late(None if finds_late else inputs[1], until)
    made = windowed.aggregate(step.name, agg.count(), agg.sum(functions.weight))
    if is_one:
        return _plain(step, made.with_revisions()), made.too_late
    return _plain(step, made.results), _plain(step, made.revised, "revised"), made.too_late


def _plain(step: Step, results: Any, what: str = "plain") -> Any:
    return results.map(f"{step.name} {what}", lambda result: (result.start, result.end, *result.value))


def _cogroup(step: Step, inputs: list[Any], _: Run) -> Any:
    results = inputs[0].window(functions.WINDOWS[step.arg]).cogroup(step.name, *inputs[1:])
    return results.map(
        f"{step.name} plain",
        lambda it: (it.start, it.end, *(tuple(sorted(map(functions.weight, group))) for group in it.value)),
    )


def _interval_join(step: Step, inputs: list[Any], _: Run) -> Any:
    name, how = step.arg
    before, after = functions.INTERVALS[name]
    return inputs[0].interval_join(step.name, inputs[1], before=before, after=after, how=how)


def _asof_join(step: Step, inputs: list[Any], _: Run) -> Any:
    name, how = step.arg
    return inputs[0].asof_join(step.name, inputs[1], tolerance=functions.TOLERANCES[name], how=how)


def _to_table(step: Step, inputs: list[Any], _: Run) -> Any:
    table = inputs[0].to_table(step.name, functions.row_of, ttl=step.arg)
    return table.changes().map(f"{step.name} plain", tuple)


def _join_table(step: Step, inputs: list[Any], _: Run) -> Any:
    table = inputs[1].to_table(f"{step.name} rows", functions.row_of)
    return inputs[0].join_table(step.name, table, _pair, how=step.arg)


def _join_tables(step: Step, inputs: list[Any], _: Run) -> Any:
    left, right = (it.to_table(f"{step.name} {at}", functions.row_of) for at, it in enumerate(inputs))
    joined = left.join(f"{step.name} joined", right, _pair, how=step.arg)
    return joined.changes().stateful_op(step.name, functions.Folded(), lambda: None)


def _join_foreign(step: Step, inputs: list[Any], _: Run) -> Any:
    left, right = (it.to_table(f"{step.name} {at}", functions.row_of) for at, it in enumerate(inputs))
    joined = left.join(f"{step.name} joined", right, _pair, on=functions.reference_of, how=step.arg)
    return joined.changes().stateful_op(step.name, functions.Folded(), lambda: None)


def _arrival(step: Step, inputs: list[Any], _: Run) -> Any:
    held, how = step.arg
    records = inputs[0]
    if held:
        records = _until_the_end(records, step.name)
        rows = inputs[0].map(f"{step.name} row", functions.row_of)
    else:
        rows = inputs[0].map_with_key(f"{step.name} row", lambda key, _: functions.row_of_key(key))
    return records.join_table(step.name, rows.to_table(f"{step.name} rows"), _pair, how=how, at="arrival")


def _until_the_end(records: Any, name: str) -> Any:
    """Hold records until the end, by a new time that has no other epoch."""
    untimed = records.assign_timestamps(f"{name} times", lambda msg: msg.timestamp)
    never = untimed.generate_epochs(f"{name} epochs", lambda msg, epoch: None, per_part=False)
    return never.on_time.sort(f"{name} held")


def _broadcast(step: Step, inputs: list[Any], _: Run) -> Any:
    records = inputs[0]
    keyed = records.key_distribute(f"{step.name} key", lambda msg: functions.weight(msg.value) % 5)
    rows = keyed.map_with_key(f"{step.name} row", lambda key, _: functions.row_of_key(key))
    if step.arg:
        return _until_the_end(records, step.name).join_broadcast(step.name, rows, _with_all_rows)
    return records.join_broadcast(step.name, rows.to_table(f"{step.name} rows"), _with_own_row)


def _with_all_rows(value: Any, rows: Any) -> Any:
    return value, tuple(sorted(rows.items()))


def _with_own_row(value: Any, rows: Any) -> Any:
    return value, rows.get(functions.weight(value) % 5)


def _lookup(step: Step, inputs: list[Any], _: Run) -> Any:
    how, cached = step.arg
    cache = timedelta(hours=1) if cached else None
    return inputs[0].lookup(step.name, functions.outside_key, functions.Outside(), _pair, how=how, cache=cache, most=2)


def _grouped(step: Step, inputs: list[Any], _: Run) -> Any:
    table = inputs[0].to_table(f"{step.name} rows", functions.row_of)
    return table.grouped(step.name, functions.group_of).map(f"{step.name} plain", tuple)


def _pair(value: Any, row: Any) -> Any:
    return value, row


def _distinct(step: Step, inputs: list[Any], _: Run) -> Any:
    within = FOREVER if step.arg is None else step.arg
    return inputs[0].distinct(step.name, lambda value: functions.weight(value) % 3, within=within)


def _throttle(step: Step, inputs: list[Any], _: Run) -> Any:
    n, per, kind = step.arg
    return inputs[0].throttle(step.name, n, per=per, kind=kind)


def _batch(step: Step, inputs: list[Any], _: Run) -> Any:
    size, within = step.arg
    return inputs[0].batch(step.name, size, within=within)


def _sink(step: Step, inputs: list[Any], result: Run) -> None:
    refuses = step.arg == REFUSES
    policy = result.policy if refuses else "fail"
    if result.new_sink is not None and (made := result.new_sink(step)) is not None:
        inputs[0].sink(step.name, made, on_error=policy)
        return
    kind = RefusingSink if refuses else VecSink
    inputs[0].sink(step.name, StatelessSink(result.sinks.setdefault(step.name, kind())), on_error=policy)


class RefusingSink(VecSink[Any, Any, Any]):
    """Refuses some records."""

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        if functions.is_refused(msg.value):
            raise ValueError("refused")
        super().sink(msg)


def _inspect(step: Step, inputs: list[Any], result: Run) -> Any:
    seen = result.records.setdefault(step.name, result.new_log())
    return inputs[0].inspect(
        step.name, lambda msg, _: seen.append(DataMessage(msg.key, owned(msg.value), msg.timestamp))
    )


def _inspect_frontier(step: Step, inputs: list[Any], result: Run) -> Any:
    seen = result.marks.setdefault(step.name, result.new_log())
    return inputs[0].inspect_frontier(step.name, lambda epoch, context: seen.append((context.worker_id, epoch)))


_BUILDERS: dict[str, Builder] = {
    "map": _with(functions.MAPS),
    "fragile": _fragile,
    "fragile_map": _fragile_map,
    "map_with_key": _with(functions.KEYED_MAPS),
    "filter": _with(functions.PREDICATES),
    "filter_map": _with(functions.FILTER_MAPS),
    "flat_map": _with(functions.FLAT_MAPS),
    "flatten": _bare,
    "stateless_op": lambda step, inputs, _: inputs[0].stateless_op(step.name, functions.STATELESS_OPS[step.arg]()),
    "key_local": lambda step, inputs, _: inputs[0].key_local(step.name, functions.KEYS[step.arg[0]]),
    "key_distribute": _key_distribute,
    "stateful_map": _stateful_map,
    "stateful_op": _stateful_op,
    "connect": _connect,
    "window": _window,
    "early_window": _early_window,
    "late_window": _late_window,
    "cogroup": _cogroup,
    "interval_join": _interval_join,
    "asof_join": _asof_join,
    "to_table": _to_table,
    "expiring_table": _to_table,
    "join_table": _join_table,
    "join_tables": _join_tables,
    "join_foreign": _join_foreign,
    "arrival": _arrival,
    "broadcast": _broadcast,
    "grouped": _grouped,
    "lookup": _lookup,
    "aggregate": lambda step, inputs, _: inputs[0].aggregate(step.name, agg.count(), agg.sum(functions.weight)),
    "distinct": _distinct,
    "changes": _bare,
    "throttle": _throttle,
    "sort": _bare,
    "batch": _batch,
    "sample": lambda step, inputs, _: inputs[0].sample(step.name, step.arg, functions.weight),
    "ttl_map": _with(functions.TTL_MAPS),
    "assign_timestamps": _with(functions.ASSIGNERS),
    "generate_epochs": _generate_epochs,
    "event_time": _event_time,
    "split": lambda step, inputs, _: inputs[0].split(step.name, functions.SPLITS[step.arg], step.outputs),
    "cloned": lambda step, inputs, _: inputs[0].cloned(step.name, step.outputs),
    "union": lambda _, inputs, __: inputs[0].union(*inputs[1:]),
    "inspect": _inspect,
    "inspect_frontier": _inspect_frontier,
    "sink": _sink,
}
