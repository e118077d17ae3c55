"""A naive interpreter of dataflows: one record at a time through the whole graph; values have one owner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np

from malflow import MAX, DataMessage
from malflow.event_time.panes import RegularPanes
from malflow.partitioners import stable_hash
from malflow.windows import CountWindows, SessionWindows, TimeWindows
from tests.properties import functions, script
from tests.properties.specs import REFUSES, Dataflow, Part, Step, fresh

__all__ = ["Interpretation", "interpret"]

Record = DataMessage[Any, Any, Any]


@dataclass(frozen=True)
class Interpretation:
    """The messages of sinks and inspectors, and the epochs of frontier inspectors, by the names of their steps.

    Attributes:
        records, epochs: those.
        refused: the records that sinks refuse.
        letters: those before the end: what comes of the end is not kept.
        states: by step and key what is kept when the sources have ended, and nobody knows of it yet; for a sink how
            many records it has got.
    """

    records: dict[str, list[Record]] = field(default_factory=dict)
    epochs: dict[str, list[Any]] = field(default_factory=dict)
    refused: dict[str, list[Record]] = field(default_factory=dict)
    letters: dict[str, list[Record]] = field(default_factory=dict)
    states: dict[str, dict[Any, Any]] = field(default_factory=dict)


def interpret(dataflow: Dataflow) -> Interpretation:
    """Push every record, one after the other, through the whole dataflow; then the end of every source."""
    script.define()
    seen = Interpretation()
    streams: list[Stream] = []
    sources: list[tuple[Stream, Iterator[Record]]] = []
    for step in dataflow.steps:
        outputs = [Stream() for _ in range(step.outputs)]
        if step.kind == "source":
            sources.append((outputs[0], _records(step.arg)))
        else:
            _connect(step, [streams[index] for index in step.inputs], outputs, seen)
        streams.extend(outputs)
    _pump(sources)
    seen.states.update(copy.deepcopy(seen.states))
    seen.letters.update({sink: [*refused] for sink, refused in seen.refused.items()})
    for stream, _ in sources:
        stream.end(MAX)
    return seen


def _records(parts: Iterable[Part]) -> Iterator[Record]:
    """Yield one record of each part in turn, until all have ended."""
    rows = [zip(fresh(part.values), part.timestamps, strict=True) for part in parts]
    keys = [part.key for part in parts]
    while rows:
        for index in range(len(rows) - 1, -1, -1):
            row = next(rows[index], None)
            if row is None:
                del rows[index], keys[index]
            else:
                yield DataMessage(keys[index], *row)


def _pump(sources: list[tuple[Stream, Iterator[Record]]]) -> None:
    open_sources = list(sources)
    while open_sources:
        for source in list(open_sources):
            stream, records = source
            record = next(records, None)
            if record is None:
                open_sources.remove(source)
            else:
                stream.send(record)


class Stream:
    """An output of an operator, and who reads it."""

    def __init__(self) -> None:
        self._readers: list[tuple[Operator, int]] = []

    def read_by(self, operator: Operator, edge: int) -> None:
        self._readers.append((operator, edge))

    def send(self, record: Record) -> None:
        for operator, edge in self._readers:
            operator.on_edge_record(edge, DataMessage(record.key, owned(record.value), record.timestamp))

    def end(self, epoch: Any) -> None:
        for operator, edge in self._readers:
            operator.on_edge_epoch(edge, epoch)


def same(key: Any, other: Any) -> bool:
    """Whether two keys are one, as a dict finds out: numbers of numpy can't be compared with every other key."""
    return hash(key) == hash(other) and bool(key == other)


def owned(value: Any) -> Any:
    """Return a copy of a value for one reader."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(owned, value))
    return copy.deepcopy(value)


class Operator:
    """Does nothing but pass everything on; its function, if any, has the step's name for it."""

    def __init__(self, step: Step, outputs: list[Stream], seen: Interpretation) -> None:
        self.step = step
        self.outputs = outputs
        self.seen = seen
        self._open: list[Any] = [None] * len(step.inputs)
        self._frontier: Any = None
        self.prepare()

    def prepare(self) -> None: ...

    def on_edge_epoch(self, edge: int, epoch: Any) -> None:
        """Keep the latest epoch of each edge; the least of them counts, where all have one and when it grows."""
        self._open[edge] = epoch
        if any(known is None for known in self._open):
            return
        least = self._open[0]
        for known in self._open:
            least = known if known < least else least
        if self._frontier is None or least > self._frontier:
            self._frontier = least
            self.on_epoch(least)

    def on_edge_record(self, _edge: int, record: Record) -> None:
        self.on_record(record)

    def on_record(self, record: Record) -> None:
        self.send(record)

    def on_epoch(self, epoch: Any) -> None:
        self.issue(epoch)

    def send(self, record: Record) -> None:
        """Send to every output. This makes the operator its own `output` for logics."""
        for output in self.outputs:
            output.send(record)

    def issue(self, epoch: Any) -> None:
        for output in self.outputs:
            output.end(epoch)


class Map(Operator):
    def on_record(self, record: Record) -> None:
        self.send(DataMessage(record.key, functions.MAPS[self.step.arg](record.value), record.timestamp))


class Fragile(Operator):
    """Drops the records at which the function fails, each of which it gets as it came."""

    def on_record(self, record: Record) -> None:
        try:
            value = functions.fragile(owned(record.value))
        except ValueError:
            return
        self.send(DataMessage(record.key, value, record.timestamp))


class Filter(Operator):
    def on_record(self, record: Record) -> None:
        if functions.PREDICATES[self.step.arg](record.value):
            self.send(record)


class MapWithKey(Operator):
    def on_record(self, record: Record) -> None:
        value = functions.KEYED_MAPS[self.step.arg](record.key, record.value)
        self.send(DataMessage(record.key, value, record.timestamp))


class FilterMap(Operator):
    def on_record(self, record: Record) -> None:
        value = functions.FILTER_MAPS[self.step.arg](record.value)
        if value is not None:
            self.send(DataMessage(record.key, value, record.timestamp))


class FlatMap(Operator):
    def on_record(self, record: Record) -> None:
        for value in functions.FLAT_MAPS[self.step.arg](record.value):
            self.send(DataMessage(record.key, value, record.timestamp))


class Flatten(Operator):
    def on_record(self, record: Record) -> None:
        for value in record.value:
            self.send(DataMessage(record.key, value, record.timestamp))


class StatelessOp(Operator):
    def prepare(self) -> None:
        self._logic = functions.STATELESS_OPS[self.step.arg]()

    def on_record(self, record: Record) -> None:
        self._logic.on_data(record, self)

    def on_epoch(self, epoch: Any) -> None:
        if hasattr(self._logic, "on_epoch"):
            self._logic.on_epoch(epoch, self)
        self.issue(epoch)


class Key(Operator):
    def on_record(self, record: Record) -> None:
        self.send(DataMessage(functions.KEYS[self.step.arg[0]](record), record.value, record.timestamp))


class Stateful(Operator):
    """Holds a state for every key, in the order in which keys come."""

    def prepare(self) -> None:
        self._states: dict[Any, Any] = {}
        self.seen.states[self.step.name] = self._states

    def take(self, key: Any, default: Callable[[], Any] | None) -> Any:
        if key in self._states:
            return self._states[key]
        return None if default is None else default()

    def keep(self, key: Any, state: Any) -> None:
        if state is not None:
            self._states[key] = state
        elif key in self._states:
            del self._states[key]


class StatefulMap(Stateful):
    def on_record(self, record: Record) -> None:
        mapper = functions.STATEFUL_MAPS[self.step.arg]
        value, state = mapper.make(record.key, record.value, self.take(record.key, mapper.default))
        self.keep(record.key, state)
        self.send(DataMessage(record.key, value, record.timestamp))


class FragileMap(Stateful):
    """Drops the records at which the function fails, and keeps the state from before."""

    def on_record(self, record: Record) -> None:
        state = copy.deepcopy(self.take(record.key, list))
        try:
            value, state = functions.fragile_history(record.key, owned(record.value), state)
        except ValueError:
            return
        self.keep(record.key, state)
        self.send(DataMessage(record.key, value, record.timestamp))


class StatefulOp(Stateful):
    def prepare(self) -> None:
        super().prepare()
        self._default = functions.STATEFUL_OPS[self.step.arg].default
        self._logic = functions.STATEFUL_OPS[self.step.arg].make()
        self._on_data = getattr(self._logic, "on_data", self._logic)
        self._timers: dict[Any, Any] = {}
        self._key: Any = None

    def on_record(self, record: Record) -> None:
        self._key = record.key
        self.keep(self._key, self._on_data(record, self.take(self._key, self._default), self))

    def keep(self, key: Any, state: Any) -> None:
        super().keep(key, state)
        if state is None:
            self._timers.pop(key, None)

    def wake(self, at: Any) -> None:
        """Set the timer of the key at hand; this and `sleep` are for logics."""
        self._timers[self._key] = at

    def sleep(self) -> None:
        self._timers.pop(self._key, None)

    def on_epoch(self, epoch: Any) -> None:
        if epoch is MAX:
            for key, at in sorted(self._timers.items(), key=itemgetter(1)):
                self._fire(key, at)
        while due := [(at, key) for key, at in self._timers.items() if epoch is not MAX and at <= epoch]:
            at, key = min(due, key=itemgetter(0))
            self._fire(key, at)
        if hasattr(self._logic, "on_epoch"):
            self._logic.on_epoch(epoch, self._states, self)
        self.issue(epoch)

    def _fire(self, key: Any, at: Any) -> None:
        self._key = key
        del self._timers[key]
        self.keep(key, self._logic.on_timer(key, at, self._states[key], self))


class Connect(Stateful):
    def prepare(self) -> None:
        super().prepare()
        self._default = functions.CONNECTS[self.step.arg].default
        self._logic = functions.CONNECTS[self.step.arg].make()

    def on_edge_record(self, edge: int, record: Record) -> None:
        take = (self._logic.on_left, self._logic.on_right)[edge]
        self.keep(record.key, take(record, self.take(record.key, self._default), self))

    def on_epoch(self, epoch: Any) -> None:
        if hasattr(self._logic, "on_epoch"):
            self._logic.on_epoch(epoch, self._states, self)
        self.issue(epoch)


class Entries:
    """The map of a `ttl_map`, without any order but the dict's."""

    def __init__(self) -> None:
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def insert(self, key: Any, value: Any, expiry: Any) -> Any:
        before = self.get(key)
        self._entries[key] = (value, expiry)
        return before

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries[key][0] if key in self._entries else default

    def remove(self, key: Any) -> Any:
        return self._entries.pop(key, (None, None))[0]

    def expire(self, epoch: Any) -> None:
        self._entries = {key: entry for key, entry in self._entries.items() if entry[1] > epoch}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)


class TtlMap(Stateful):
    def on_record(self, record: Record) -> None:
        mapper, entries = functions.TTL_MAPS[self.step.arg], self.take(record.key, Entries)
        value, entries = mapper(record.key, record.value, record.timestamp, entries)
        self.keep(record.key, entries)
        self.send(DataMessage(record.key, value, record.timestamp))

    def on_epoch(self, epoch: Any) -> None:
        for key, entries in list(self._states.items()):
            entries.expire(epoch)
            self.keep(key, entries if len(entries) else None)
        self.issue(epoch)


class Window(Operator):
    """Keeps all records, and finds all windows again at each epoch."""

    def prepare(self) -> None:
        self._records: list[tuple[Any, Any, Any]] = []
        self._sent: set[Any] = set()
        self._windows = self.windows()

    def windows(self) -> Any:
        return functions.WINDOWS[self.step.arg]

    def on_record(self, record: Record) -> None:
        self._records.append((record.key, record.timestamp, functions.weight(record.value)))
        if isinstance(self._windows, CountWindows):
            own = [it for it in self._records if same(it[0], record.key)]
            size, every = self._windows.size, self._windows.every
            if len(own) >= size and (len(own) - size) % every == 0:
                self.send_result(record.key, own[-size][1], record.timestamp + 1, own[-size:], record.timestamp)

    def on_epoch(self, epoch: Any) -> None:
        self.close(epoch)
        self.issue(epoch)

    def close(self, epoch: Any) -> None:
        """Send the results of windows that are over."""
        for end, start, key, found in sorted(self._found(), key=itemgetter(0, 1)):
            if end - 1 <= epoch and (key, start, end) not in self._sent:
                self._sent.add((key, start, end))
                self.send_result(key, start, end, found, end - 1)

    def send_result(self, key: Any, start: Any, end: Any, found: list[Any], timestamp: Any) -> None:
        self.send(DataMessage(key, (start, end, len(found), sum(weight for *_, weight in found)), timestamp))

    def _found(self) -> Iterator[tuple[Any, Any, Any, list[Any]]]:
        for key in {key: None for key, *_ in self._records}:
            own = sorted(it for it in ((at, weight) for other, at, weight in self._records if same(other, key)))
            for start, end in self._bounds([at for at, _ in own]):
                yield end, start, key, [it for it in own if start <= it[0] < end]

    def _bounds(self, times: list[Any]) -> Iterable[tuple[Any, Any]]:
        match self._windows:
            case SessionWindows(gap=gap):
                groups: list[list[Any]] = []
                for at in times:
                    if groups and at < groups[-1][-1] + gap:
                        groups[-1].append(at)
                    else:
                        groups.append([at])
                return [(group[0], group[-1] + gap) for group in groups]
            case TimeWindows(panes=RegularPanes(size=unit, offset=offset), span=span, step=step):
                size, every = unit * span, unit * step
                offset %= every
                first = (times[0] - size - offset) // every * every + offset
                bounds = [(start, start + size) for start in range(first, times[-1] + 1, every)]
                return [it for it in bounds if any(it[0] <= at < it[1] for at in times)]
            case _:
                return ()

    def bounds_of(self, at: Any) -> list[tuple[Any, Any]]:
        """Return the windows that contain a timestamp."""
        return [*self._bounds([at])]


class EarlyWindow(Window):
    """Notes as well which windows have changed since their last early result."""

    def prepare(self) -> None:
        super().prepare()
        self._every = functions.EARLY[self.step.arg][1]
        self._changed: set[tuple[Any, Any, Any]] = set()
        self._before: Any = None

    def windows(self) -> Any:
        return functions.EARLY[self.step.arg][0]

    def on_record(self, record: Record) -> None:
        super().on_record(record)
        self._changed |= {(record.key, *bounds) for bounds in self.bounds_of(record.timestamp)}

    def on_epoch(self, epoch: Any) -> None:
        self.close(epoch)
        if epoch is not MAX:
            self._changed -= self._sent
            for key, start, end in sorted(self._changed, key=itemgetter(1)):
                instant = start + (epoch + 1 - start) // self._every * self._every - 1
                if instant >= start and (self._before is None or instant > self._before):
                    self._changed.discard((key, start, end))
                    found = [it for it in self._records if same(it[0], key) and start <= it[1] < end]
                    self.send_result(key, start, end, found, instant)
            self._before = epoch
        self.issue(epoch)


class LateWindow(Window):
    """Adds late records to those of their windows that are open, or else that are kept."""

    def prepare(self) -> None:
        name, _, is_one = self.step.arg
        self._windows, self._until = functions.LATE[name]
        self._results, self._revised, self._too_late = (0, 0, 1) if is_one else (0, 1, 2)
        super().prepare()
        self._added: dict[tuple[Any, Any, Any], list[Any]] = {}

    def windows(self) -> Any:
        return self._windows

    def on_record(self, record: Record) -> None:
        epoch, found = self._frontier, self.bounds_of(record.timestamp)
        entry = (record.timestamp, functions.weight(record.value))
        now_open = [it for it in found if epoch is None or it[1] - 1 > epoch]
        for bounds in now_open:
            self._added.setdefault((record.key, *bounds), []).append(entry)
        if not found or now_open:
            return
        ((start, end),) = found[-1:]
        if end - 1 + self._until <= epoch:
            self.outputs[self._too_late].send(record)
            return
        held = self._added.setdefault((record.key, start, end), [])
        held.append(entry)
        self._sent.add((record.key, start, end))
        self._send_to(self._revised, record.key, start, end)

    def close(self, epoch: Any) -> None:
        for window in sorted(self._added, key=itemgetter(2)):
            if window[2] - 1 <= epoch and window not in self._sent:
                self._sent.add(window)
                self._send_to(self._results, *window)

    def _send_to(self, output: int, key: Any, start: Any, end: Any) -> None:
        found = self._added[key, start, end]
        value = (start, end, len(found), sum(weight for _, weight in found))
        self.outputs[output].send(DataMessage(key, value, end - 1))


class Cogroup(Window):
    """Keeps the records of all edges."""

    def on_edge_record(self, edge: int, record: Record) -> None:
        self._records.append((record.key, record.timestamp, (edge, functions.weight(record.value))))

    def send_result(self, key: Any, start: Any, end: Any, found: list[Any], timestamp: Any) -> None:
        groups = [
            tuple(sorted(weight for *_, (at, weight) in found if at == edge)) for edge in range(len(self.step.inputs))
        ]
        self.send(DataMessage(key, (start, end, *groups), timestamp))


class IntervalJoin(Operator):
    """Keeps all records, and compares each with all of the other side."""

    def prepare(self) -> None:
        name, self._how = self.step.arg
        self._before, self._after = functions.INTERVALS[name]
        self._sides: tuple[list[Record], list[Record]] = ([], [])
        self._single: list[tuple[int, int, Record]] = []  # when it is emitted alone, its side, the record

    def on_edge_record(self, edge: int, record: Record) -> None:
        self._sides[edge].append(record)
        partners = [other for other in self._sides[1 - edge] if self._are_near(*((record, other)[:: 1 - 2 * edge]))]
        for other in partners:
            pair = (record.value, other.value)[:: 1 - 2 * edge]
            self.send(DataMessage(record.key, owned(pair), max(record.timestamp, other.timestamp)))
        self._single = [it for it in self._single if not any(it[2] is other for other in partners)]
        if not partners and self._how in (("left", "right")[edge], "outer"):
            reach = (self._after, self._before)[edge]
            self._single.append((record.timestamp + max(reach, 0), edge, record))

    def _are_near(self, left: Record, right: Record) -> bool:
        difference = right.timestamp - left.timestamp
        return bool(same(left.key, right.key) and -self._before <= difference <= self._after)

    def on_epoch(self, epoch: Any) -> None:
        for deadline, edge, record in [it for it in self._single if it[0] <= epoch]:
            self.send(DataMessage(record.key, (owned(record.value), None)[:: 1 - 2 * edge], deadline))
        self._single = [it for it in self._single if not it[0] <= epoch]
        self.issue(epoch)


class AsofJoin(Operator):
    """Keeps all right records, and looks at all of them for each left one."""

    def prepare(self) -> None:
        name, self._how = self.step.arg
        self._tolerance = functions.TOLERANCES[name]
        self._left: list[Record] = []
        self._right: list[Record] = []

    def on_edge_record(self, edge: int, record: Record) -> None:
        (self._left, self._right)[edge].append(record)

    def on_epoch(self, epoch: Any) -> None:
        for record in sorted((it for it in self._left if it.timestamp <= epoch), key=lambda it: it.timestamp):
            best = None
            for other in self._right:
                if same(other.key, record.key) and other.timestamp <= record.timestamp and self._is_near(record, other):
                    best = other if best is None or other.timestamp >= best.timestamp else best
            if best is not None or self._how == "left":
                pair = (owned(record.value), None if best is None else owned(best.value))
                self.send(DataMessage(record.key, pair, record.timestamp))
        self._left = [it for it in self._left if not it.timestamp <= epoch]
        self.issue(epoch)

    def _is_near(self, left: Record, right: Record) -> bool:
        return self._tolerance is None or left.timestamp - right.timestamp <= self._tolerance


class JoinTable(Operator):
    """Keeps all rows, and looks at all of them for each left record."""

    def prepare(self) -> None:
        self._left: list[Record] = []
        self._rows: list[tuple[Any, Any, int | None]] = []

    def on_edge_record(self, edge: int, record: Record) -> None:
        if edge == 0:
            self._left.append(record)
        else:
            self._rows.append((record.key, record.timestamp, functions.row_of(record.value)))

    def on_epoch(self, epoch: Any) -> None:
        for record in sorted((it for it in self._left if it.timestamp <= epoch), key=lambda it: it.timestamp):
            since, valid = None, None
            for key, at, row in self._rows:
                if same(key, record.key) and at <= record.timestamp and (since is None or at >= since):
                    since, valid = at, row
            if valid is not None or self.step.arg == "left":
                self.send(DataMessage(record.key, (owned(record.value), valid), record.timestamp))
        self._left = [it for it in self._left if not it.timestamp <= epoch]
        self.issue(epoch)


class JoinTables(Operator):
    """Keeps the last row of each side and key, and joins them at the end."""

    def prepare(self) -> None:
        self._sides: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})

    def on_edge_record(self, edge: int, record: Record) -> None:
        self._sides[edge][record.key] = functions.row_of(record.value)

    def on_epoch(self, epoch: Any) -> None:
        left, right = self._sides
        for key in {**left, **right} if epoch is MAX else ():
            pair = left.get(key), right.get(key)
            needed = {"inner": pair, "left": pair[:1], "outer": [next(filter(None, pair), None)]}[self.step.arg]
            if None not in needed:
                self.send(DataMessage(key, pair, epoch))
        self.issue(epoch)


class JoinForeign(Operator):
    """Keeps the last row of each side and key, and joins them at the end by the keys that left rows refer to."""

    def prepare(self) -> None:
        self._sides: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})

    def on_edge_record(self, edge: int, record: Record) -> None:
        self._sides[edge][record.key] = functions.row_of(record.value)

    def on_epoch(self, epoch: Any) -> None:
        left, right = self._sides
        for key, row in left.items() if epoch is MAX else ():
            partner = None if row is None else right.get(functions.reference_of(row))
            if row is not None and (partner is not None or self.step.arg == "left"):
                self.send(DataMessage(key, (row, partner), epoch))
        self.issue(epoch)


class Arrival(Operator):
    """Joins a record with the row of its key: the last one at the end, or else the only one."""

    def prepare(self) -> None:
        self._held, self._how = self.step.arg
        self._records: list[Record] = []

    def on_record(self, record: Record) -> None:
        if self._held:
            self._records.append(record)
        else:
            self._join(record, functions.row_of_key(record.key))

    def on_epoch(self, epoch: Any) -> None:
        if not self._held:
            self.issue(epoch)
        elif epoch is MAX:
            rows = {record.key: functions.row_of(record.value) for record in self._records}
            for record in sorted(self._records, key=lambda it: it.timestamp):
                self._join(record, rows[record.key])
            self.issue(epoch)

    def _join(self, record: Record, row: Any) -> None:
        if row is not None or self._how == "left":
            self.send(DataMessage(record.key, (owned(record.value), row), record.timestamp))


class Broadcast(Operator):
    """Joins a record with rows that are a function of their key: its own one, or all that there are at the end."""

    def prepare(self) -> None:
        self._records: list[Record] = []

    def on_record(self, record: Record) -> None:
        if self.step.arg:
            self._records.append(record)
            return
        key = functions.weight(record.value) % 5
        self.send(DataMessage(record.key, (owned(record.value), functions.row_of_key(key)), record.timestamp))

    def on_epoch(self, epoch: Any) -> None:
        if not self.step.arg:
            self.issue(epoch)
        elif epoch is MAX:
            rows = {key: functions.row_of_key(key) for key in (functions.weight(it.value) % 5 for it in self._records)}
            known = tuple(sorted((key, row) for key, row in rows.items() if row is not None))
            for record in sorted(self._records, key=lambda it: it.timestamp):
                self.send(DataMessage(record.key, (owned(record.value), known), record.timestamp))
            self.issue(epoch)


class Lookup(Operator):
    def on_record(self, record: Record) -> None:
        row = functions.Outside.row(functions.outside_key(record.value))
        if row is not None or self.step.arg[0] == "left":
            self.send(DataMessage(record.key, (record.value, row), record.timestamp))


class Grouped(Operator):
    def prepare(self) -> None:
        self._rows: dict[Any, Any] = {}

    def on_record(self, record: Record) -> None:
        before, row = self._rows.get(record.key), functions.row_of(record.value)
        self._rows[record.key] = row
        if before is None or row is None or functions.group_of(before) == functions.group_of(row):
            self._tell(record, before, row)
        else:
            self._tell(record, before, None)
            self._tell(record, None, row)

    def _tell(self, record: Record, before: Any, after: Any) -> None:
        if before != after:
            group = functions.group_of(before if after is None else after)
            self.send(DataMessage(group, (before, after), record.timestamp))


class Table(Operator):
    def prepare(self) -> None:
        self._rows: dict[Any, tuple[int, Any]] = {}

    def on_record(self, record: Record) -> None:
        row = functions.row_of(record.value)
        before, _ = self._rows.pop(record.key, (None, None))
        if row is not None:
            self._rows[record.key] = row, None if self.step.arg is None else record.timestamp + self.step.arg
        if before != row:
            self.send(DataMessage(record.key, (before, row), record.timestamp))

    def on_epoch(self, epoch: Any) -> None:
        due = [] if self.step.arg is None or epoch is MAX else [it for it in self._rows.items() if it[1][1] <= epoch]
        for key, (row, at) in sorted(due, key=lambda it: it[1][1]):
            del self._rows[key]
            self.send(DataMessage(key, (row, None), at))
        self.issue(epoch)


class Running(Operator):
    def prepare(self) -> None:
        self._totals: dict[Any, tuple[int, int]] = {}

    def on_record(self, record: Record) -> None:
        count, total = self._totals.get(record.key, (0, 0))
        self._totals[record.key] = count + 1, total + functions.weight(record.value)
        self.send(DataMessage(record.key, self._totals[record.key], record.timestamp))


class Distinct(Operator):
    def prepare(self) -> None:
        self._passed: list[tuple[Any, Any, Any]] = []

    def on_record(self, record: Record) -> None:
        name, within = functions.weight(record.value) % 3, self.step.arg
        for key, other, at in self._passed:
            if same(key, record.key) and other == name and (within is None or abs(at - record.timestamp) < within):
                return
        self._passed.append((record.key, name, record.timestamp))
        self.send(record)


class Changes(Operator):
    def prepare(self) -> None:
        self._last: dict[Any, Any] = {}

    def on_record(self, record: Record) -> None:
        differs = record.key not in self._last or self._last[record.key] != record.value
        self._last[record.key] = owned(record.value)
        if differs:
            self.send(record)


class Throttle(Operator):
    """Keeps all timestamps that passed, or buckets of tokens, as fractions."""

    def prepare(self) -> None:
        self._buckets: dict[Any, tuple[Fraction, int]] = {}
        self._passed: dict[Any, list[int]] = {}

    def on_record(self, record: Record) -> None:
        n, per, kind = self.step.arg
        (self._spend if kind == "bucket" else self._look_around)(record, n, per)

    def _look_around(self, record: Record, n: int, per: int) -> None:
        """Try each span that begins with a record and has this one in it."""
        at, passed = record.timestamp, self._passed.setdefault(record.key, [])
        starts = [start for start in [*passed, at] if start <= at < start + per]
        fullest = max(sum(start <= it < start + per for it in passed) for start in starts)
        passes = fullest < n and sum(it > at for it in passed) <= n
        if passes:
            passed.append(at)
        self.outputs[0 if passes else 1].send(record)

    def _spend(self, record: Record, n: int, per: int) -> None:
        tokens, then = self._buckets.get(record.key, (Fraction(n), record.timestamp))
        now = max(then, record.timestamp)
        tokens = min(Fraction(n), tokens + Fraction(n * (now - then), per))
        self._buckets[record.key] = (tokens - 1 if tokens >= 1 else tokens, now)
        self.outputs[0 if tokens >= 1 else 1].send(record)


class Sort(Operator):
    def prepare(self) -> None:
        self._waiting: list[Record] = []

    def on_record(self, record: Record) -> None:
        self._waiting.append(record)

    def on_epoch(self, epoch: Any) -> None:
        for record in sorted(self._waiting, key=lambda it: it.timestamp):
            if record.timestamp <= epoch:
                self.send(record)
        self._waiting = [it for it in self._waiting if not it.timestamp <= epoch]
        self.issue(epoch)


class Batches(Operator):
    def prepare(self) -> None:
        self._lists: dict[Any, tuple[int, list[Any]]] = {}

    def on_record(self, record: Record) -> None:
        size, within = self.step.arg
        if record.key in self._lists and record.timestamp >= self._lists[record.key][0]:
            self._emit(record.key, self._lists[record.key][0])
        _, values = self._lists.setdefault(record.key, (record.timestamp + within, []))
        values.append(record.value)
        if len(values) == size:
            self._emit(record.key, record.timestamp)

    def on_epoch(self, epoch: Any) -> None:
        for key, (end, _) in sorted(self._lists.items(), key=lambda it: it[1][0]):
            if end <= epoch:
                self._emit(key, end)
        self.issue(epoch)

    def _emit(self, key: Any, timestamp: Any) -> None:
        _, values = self._lists.pop(key)
        self.send(DataMessage(key, values, timestamp))


class Sample(Operator):
    def on_record(self, record: Record) -> None:
        if stable_hash(functions.weight(record.value)) < self.step.arg * 2**64:
            self.send(record)


class AssignTimestamps(Operator):
    def on_record(self, record: Record) -> None:
        self.send(stamped(record, self.step.arg))

    def on_epoch(self, epoch: Any) -> None:
        if epoch is MAX:
            self.issue(epoch)


def stamped(record: Record, assigner: str) -> Record:
    timestamp = functions.ASSIGNERS[assigner](record)
    plain = timestamp.item() if isinstance(timestamp, np.generic) else timestamp
    return DataMessage(record.key, record.value, plain)


class GenerateEpochs(Operator):
    def prepare(self) -> None:
        self._name = self.step.arg
        self._answered: Any = None
        self._by_part: dict[Any, Any] = {}

    def on_record(self, record: Record) -> None:
        if self.step.per_part:
            self._on_record_of_part(record)
            return
        candidate = self._candidate(record, self._answered)
        self.outputs[self._is_late(record, self._answered)].send(record)
        if candidate is not None:
            self._answer(candidate)

    def on_epoch(self, epoch: Any) -> None:
        self._answer(epoch)

    def _answer(self, epoch: Any) -> None:
        before = self._answered
        if before is None or epoch > before:
            self._answered = epoch
            if before is None or self._thinned(epoch) > self._thinned(before):
                self.issue(self._thinned(epoch))

    def _on_record_of_part(self, record: Record) -> None:
        """Look at the epoch of the part alone; the epochs of the stream are not specified, and so not made."""
        own = self._by_part.get(record.key)
        candidate = self._candidate(record, own)
        self.outputs[self._is_late(record, own)].send(record)
        if candidate is not None and (own is None or candidate > own):
            self._by_part[record.key] = candidate

    def _is_late(self, record: Record, epoch: Any) -> bool:
        return epoch is not None and record.timestamp <= self._thinned(epoch)

    def _thinned(self, epoch: Any) -> Any:
        every = self.step.every
        return epoch if every is None or epoch is MAX else epoch - epoch % every

    def _candidate(self, record: Record, previous: Any) -> Any:
        if isinstance(self._name, int):  # the bound of out-of-orderness
            return record.timestamp - self._name
        return functions.GENERATORS[self._name](record, previous)


class EventTime(GenerateEpochs):
    """Sets times, and generates epochs by them alone."""

    def prepare(self) -> None:
        super().prepare()
        self._assigner, self._name = self.step.arg

    def on_record(self, record: Record) -> None:
        super().on_record(stamped(record, self._assigner))

    def on_epoch(self, epoch: Any) -> None:
        if epoch is MAX:
            super().on_epoch(epoch)


class Split(Operator):
    def on_record(self, record: Record) -> None:
        flags = [False] * self.step.outputs
        functions.SPLITS[self.step.arg](record, flags)
        for flag, output in zip(flags, self.outputs, strict=True):
            if flag:
                output.send(record)


class Sink(Operator):
    def prepare(self) -> None:
        self.seen.records[self.step.name] = []
        self._counts = self.seen.states[self.step.name] = {}
        self._refused: list[Record] | None = None
        if self.step.arg == REFUSES:
            self._refused = self.seen.refused[self.step.name] = []

    def on_record(self, record: Record) -> None:
        count = self._counts.setdefault(record.key, 0)
        if self._refused is not None and functions.is_refused(record.value):
            self._refused.append(owned_record(record))
            return
        self._counts[record.key] = count + 1
        self.seen.records[self.step.name].append(owned_record(record))
        self.send(record)


class InspectFrontier(Operator):
    def prepare(self) -> None:
        self.seen.epochs[self.step.name] = []

    def on_epoch(self, epoch: Any) -> None:
        self.seen.epochs[self.step.name].append(epoch)
        self.issue(epoch)


def owned_record(record: Record) -> Record:
    return DataMessage(record.key, owned(record.value), record.timestamp)


OPERATORS: dict[str, type[Operator]] = {
    "map": Map,
    "fragile": Fragile,
    "fragile_map": FragileMap,
    "filter": Filter,
    "filter_map": FilterMap,
    "map_with_key": MapWithKey,
    "flat_map": FlatMap,
    "flatten": Flatten,
    "stateless_op": StatelessOp,
    "key_local": Key,
    "key_distribute": Key,
    "stateful_map": StatefulMap,
    "stateful_op": StatefulOp,
    "connect": Connect,
    "ttl_map": TtlMap,
    "window": Window,
    "early_window": EarlyWindow,
    "late_window": LateWindow,
    "cogroup": Cogroup,
    "interval_join": IntervalJoin,
    "asof_join": AsofJoin,
    "to_table": Table,
    "expiring_table": Table,
    "join_table": JoinTable,
    "join_tables": JoinTables,
    "join_foreign": JoinForeign,
    "arrival": Arrival,
    "broadcast": Broadcast,
    "grouped": Grouped,
    "lookup": Lookup,
    "aggregate": Running,
    "distinct": Distinct,
    "changes": Changes,
    "throttle": Throttle,
    "sort": Sort,
    "batch": Batches,
    "sample": Sample,
    "assign_timestamps": AssignTimestamps,
    "generate_epochs": GenerateEpochs,
    "event_time": EventTime,
    "split": Split,
    "cloned": Operator,
    "union": Operator,
    "inspect": Sink,
    "inspect_frontier": InspectFrontier,
    "sink": Sink,
}


def _connect(step: Step, inputs: list[Stream], outputs: list[Stream], seen: Interpretation) -> None:
    operator = OPERATORS[step.kind](step, outputs, seen)
    for edge, stream in enumerate(inputs):
        stream.read_by(operator, edge)
