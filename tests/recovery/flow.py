"""A dataflow with every kind of state, in several versions, and the fold that computes its expected state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from malflow.engine.plan import PartAssignment, Program
from malflow.engine.state_specs import states_of
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.snapshot import Persistence
from malflow.snapshot.persistence import RestoredState, RestoreOptions, Session
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourcePartition
from malflow.states.kinds import StateSpec
from malflow.streams.stream import StreamProvider
from malflow.testing.driven import DrivenRun
from malflow.testing.trial import built
from tests.kit.forced_moves import drawn_move
from tests.recovery.scenario import Observed, Violation

__all__ = [
    "PARTS",
    "REACHED",
    "Event",
    "Flow",
    "FlowRun",
    "Listing",
    "Positions",
    "Record",
    "Shape",
    "Version",
    "merged",
]

REACHED: Counter[str] = Counter()
"""How many ticks of this session might hand parts out, and how many parts were moved."""

LAG = 2
TTL = 3


class Record(NamedTuple):
    """A change of a key; without an amount it drops the key."""

    key: Any
    amount: int | None


class Event(NamedTuple):
    """Something with a time, which is forgotten after a while; after `ttl`."""

    key: Any
    time: int
    ttl: int = TTL


class Positions(NamedTuple):
    """The position of each part; `pieces` has those of the uneven source, and `pages` those of the one that ends."""

    left: int = 0
    right: int = 0
    events: int = 0
    pieces: Mapping[Hashable, int] = MappingProxyType({})
    pages: Mapping[Hashable, int] = MappingProxyType({})

    @property
    def total(self) -> int:
        return self.left + self.right + self.events + sum(self.pieces.values()) + sum(self.pages.values())


PARTS = {"records": ("left", "right"), "events": ("events",)}


@dataclass(frozen=True)
class Version:
    """A version of the program.

    Attributes:
        counter: the name of its first operator.
        has_extra: whether it has one more operator.
        has_map: whether it has an operator that keeps nothing.
        version: the version of one operator's state.
    """

    counter: str = "count"
    has_extra: bool = False
    has_map: bool = False
    version: int = 1


class Shape(NamedTuple):
    """The subject of a snapshot: a version of the program, and the position at which its extra operator began."""

    version: Version
    extra_since: Positions


States = dict[str, dict[Any, Any]]


# The model: what must be held, by a plain fold


def fold(
    fed: Mapping[str, Sequence[Any]],
    pieces: Mapping[Hashable, Sequence[int]],
    pages: Mapping[Hashable, Sequence[int]],
    at: Positions,
    shape: Shape,
) -> States:
    """Fold all that was fed, up to the positions."""
    version = shape.version
    counts: dict[Any, Any] = {}
    sizes: dict[Any, int] = {}
    extra: dict[Any, int] = {}
    for part in ("left", "right"):
        since = getattr(shape.extra_since, part)
        for position, record in enumerate(fed[part][: getattr(at, part)]):
            if record.amount is None:
                counts.pop(record.key, None)
            else:
                total, first = counts.get(record.key, (0, (part, position)))
                counts[record.key] = (total + record.amount, first)
            size = sizes.pop(record.amount or 0, 0) + 1
            if size < _FULL:
                sizes[record.amount or 0] = size
            if position >= since:
                extra[record.key] = extra.get(record.key, 0) + 1
    states: States = {
        version.counter: counts,
        "sizes": {key: size if version.version == 1 else ("v2", size) for key, size in sizes.items()},
        **_fold_events(fed["events"][: at.events]),
        **_fold_parts("by part", "sums", {part: pieces[part][:until] for part, until in at.pieces.items()}),
        **_fold_parts("by page", "page sums", {part: pages[part][:until] for part, until in at.pages.items()}),
    }
    if version.has_extra:
        states["extra"] = extra
    return states


def _fold_events(events: Sequence[Event]) -> States:
    now: int | None = None
    recent: dict[Any, dict[int, tuple[int, int]]] = {}
    windows: dict[int, tuple[int, int]] = {}
    late: dict[Any, int] = {}
    for number, event in enumerate(events):
        if now is not None and event.time <= now:
            late[event.key] = late.get(event.key, 0) + 1
        else:
            recent.setdefault(event.key, {})[number] = (event.time, event.time + event.ttl)
            latest, size = windows.get(event.time % 2, (event.time, 0))
            windows[event.time % 2] = (max(latest, event.time), size + 1)
        if now is None or event.time - LAG > now:
            now = event.time - LAG
            recent = {key: left for key, held in recent.items() if (left := _unexpired(held, now))}
            windows = {key: held for key, held in windows.items() if held[0] > now}
    return {"recent": recent, "windows": windows, "late": late}


def _fold_parts(by_part: str, by_rest: str, read: Mapping[Hashable, Sequence[int]]) -> States:
    sums: dict[Any, Any] = {}
    for numbers in read.values():
        for number in numbers:
            sums[number % 3] = sums.get(number % 3, 0) + number
    return {by_part: {part: (len(numbers), sum(numbers)) for part, numbers in read.items() if numbers}, by_rest: sums}


def _unexpired(held: dict[int, tuple[int, int]], now: int) -> dict[int, tuple[int, int]]:
    return {number: entry for number, entry in held.items() if entry[1] > now}


# The dataflow

_FULL = 4


class Fed:
    """A source of what the test has fed so far; it never ends. How many records come does not depend on the clock."""

    keyed = True

    def __init__(self, name: str, fed: Mapping[str, Sequence[Any]]) -> None:
        self._name, self._fed = name, fed

    def list_parts(self) -> list[str]:
        return list(PARTS[self._name])

    def build_part(self, part: str, state: int | None) -> FedPart:
        return FedPart(self._fed[part], state or 0)


class FedPart(StatefulSourcePartition[Any, Any, int]):
    """The position of one part."""

    def __init__(self, fed: Sequence[Any], position: int) -> None:
        self._fed, self._position = fed, position

    def poll(self) -> tuple[Any, Any] | None:
        values, times = self.poll_batch(1)
        return (values[0], times[0]) if values else None

    def poll_batch(self, _limit: int) -> tuple[list[Any], list[Any]]:
        start, self._position = self._position, min(self._position + 1, len(self._fed))
        return [*enumerate(self._fed[start : self._position], start)], [*range(start, self._position)]

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self._position


_AT_ONCE = 4
"""The most records of a piece in a tick."""


class Listing:
    """The way in which the uneven source lists its parts, which is another one each time.

    Attributes:
        names: the parts.
        left_out: those that are forgotten for now.
        turn: where the list begins.
        is_twice: whether it lists the first one again at the end.
    """

    def __init__(self) -> None:
        self.names: list[Hashable] = []
        self.left_out: set[Hashable] = set()
        self.turn = 0
        self.is_twice = False

    def parts(self) -> list[Hashable]:
        at = self.turn % len(self.names) if self.names else 0
        listed = [name for name in self.names[at:] + self.names[:at] if name not in self.left_out]
        return [*listed, *(listed[:1] if self.is_twice else ())]


class Pieces:
    """A source of parts with drawn names, one of which may be much longer than the others; it never ends."""

    keyed = True

    def __init__(self, pieces: Mapping[Hashable, Sequence[int]], listing: Listing) -> None:
        self._pieces, self._listing = pieces, listing

    def list_parts(self) -> list[Hashable]:
        return self._listing.parts()

    def build_part(self, part: Hashable, state: int | None) -> PiecePart:
        return PiecePart(self._pieces[part], state or 0)


class PiecePart(FedPart):
    """The position in one piece."""

    def poll_batch(self, _limit: int) -> tuple[list[Any], list[Any]]:
        start, self._position = self._position, min(self._position + _AT_ONCE, len(self._fed))
        return [*enumerate(self._fed[start : self._position], start)], [*range(start, self._position)]


class Pages(Pieces):
    """A source of parts that end: many of them are handed out one after the other."""

    bounded = True

    def part_sizes(self, parts: Sequence[Hashable]) -> dict[Hashable, int]:
        """Return the sizes of some of the parts."""
        return {part: len(self._pieces[part]) for part in parts if len(self._pieces[part]) % 3}

    def build_part(self, part: Hashable, state: int | None) -> PagePart:
        return PagePart(self._pieces[part], state or 0)


class PagePart(PiecePart):
    """The position in one page."""

    def is_finished(self) -> bool:
        return self._position >= len(self._fed)


def _follow(part: Any, value: Any, state: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """Sum up the numbers of a part, which must come once and in their order, to the worker with its state."""
    at, number = value
    if at != state[0]:
        raise Violation("state", f"part {part!r} goes on at {at}, and its state is at {state[0]}")
    return number, (at + 1, state[1] + number)


def _count(_key: Any, value: Any, state: Any) -> tuple[Any, Any]:
    part, position, record = value
    total, first = state or (0, (part, position))
    return record, None if record.amount is None else (total + record.amount, first)


def _fill(message: Any, state: Any, _output: Any) -> Any:
    return None if state + 1 == _FULL else state + 1


def _fill_2(message: Any, state: Any, output: Any) -> Any:
    size = _fill(message, state[1], output)
    return None if size is None else ("v2", size)


def _remember(_key: Any, value: Any, time: int, held: Any) -> tuple[Any, Any]:
    number, event = value
    held.insert(number, time, time + event.ttl)
    return value, held


class _Windows:
    """Counts by the parity of times, as long as there is a new one now and then."""

    def on_data(self, message: Any, state: Any, _output: Any) -> Any:
        latest, size = state or (message.timestamp, 0)
        return max(latest, message.timestamp), size + 1

    def on_epoch(self, epoch: Any, states: Any, _output: Any) -> None:
        for key in [key for key, (latest, _) in states.items() if latest <= epoch]:
            del states[key]


def _plus_one(_key: Any, value: Any, state: int) -> tuple[Any, int]:
    return value, state + 1


def _sum(_key: Any, number: int, total: int) -> tuple[int, int]:
    return number, total + number


def build(
    fed: Mapping[str, Sequence[Any]],
    pieces: tuple[Mapping[Hashable, Sequence[int]], Listing],
    pages: tuple[Mapping[Hashable, Sequence[int]], Listing],
    version: Version,
) -> Program:
    """Build a version of the program."""

    def build_dataflow(provider: StreamProvider) -> None:
        records: Any = provider.new_stream().source("records", StatefulSource(Fed("records", fed)))
        records = records.stateless_op("with its part", _with_part)
        if version.has_map:
            records = records.map("as it is", lambda value: value)
        counted = records.key_distribute("by key", lambda message: message.value[2].key)
        counted = counted.stateful_map(version.counter, _count)
        if version.has_extra:
            counted = counted.stateful_map("extra", _plus_one, default=int)
        sizes = counted.key_distribute("by size", lambda message: message.value.amount or 0)
        if version.version == 1:
            sizes = sizes.stateful_op("sizes", _fill, default=int)
        else:
            sizes = sizes.stateful_op(
                "sizes", _fill_2, lambda: ("v2", 0), version=2, migrate=lambda old, _: ("v2", old)
            )
        sizes.sink("sizes out", VecSink())
        events: Any = provider.new_stream().source("events", StatefulSource(Fed("events", fed)))
        timed = events.assign_timestamps("time", lambda message: message.value[1].time)
        on_time, late = timed.generate_epochs("epochs", lambda message, _: message.timestamp - LAG)
        late.key_distribute("by late key", lambda message: message.value[1].key).stateful_map("late", _plus_one, int)
        recent = on_time.key_distribute("by event key", lambda message: message.value[1].key).ttl_map(
            "recent", _remember
        )
        uneven: Any = provider.new_stream().source("pieces", StatefulSource(Pieces(*pieces)))
        numbers = uneven.stateful_map("by part", _follow, default=lambda: (0, 0))
        numbers.key_distribute("by rest", lambda message: message.value % 3).stateful_map("sums", _sum, default=int)
        ending: Any = provider.new_stream().source("pages", StatefulSource(Pages(*pages)))
        lines = ending.stateful_map("by page", _follow, default=lambda: (0, 0))
        lines.key_distribute("by line", lambda message: message.value % 3).stateful_map("page sums", _sum, default=int)
        recent.key_distribute("by parity", lambda message: message.timestamp % 2).stateful_op("windows", _Windows())

    return built(build_dataflow)


def _with_part(message: Any, output: Any) -> None:
    position, record = message.value
    output.send(DataMessage(message.key, (message.key, position, record), message.timestamp))


# The engine


class Flow:
    """Runs the dataflow, and knows of each snapshot what it is of.

    Attributes:
        fed: what was fed, by part.
        pieces: what was fed to the uneven source, by part.
        listing: how this source lists its parts.
        pages: what the source has whose parts end, by part.
        page_listing: how this source lists its parts.
        assignment: how the next run assigns parts.
        wanted: the version that the next run has.
        shapes: what each snapshot is of.
        writers: what each run that has started writes.
    """

    def __init__(
        self, new_list: Callable[[str], list[Any]] = lambda _: [], driven: Callable[..., Any] = DrivenRun
    ) -> None:
        self.fed: dict[str, list[Any]] = {part: new_list(part) for parts in PARTS.values() for part in parts}
        self.pieces: dict[Hashable, list[int]] = {}
        self.listing = Listing()
        self.pages: dict[Hashable, list[int]] = {}
        self.page_listing = Listing()
        self.assignment: PartAssignment = "auto"
        self._new_list = new_list
        self.driven = driven
        self.wanted = Version()
        self.shapes: dict[int, Shape] = {0: Shape(Version(), Positions())}
        self.writers: dict[str, Shape] = {}
        pieces, pages = (self.pieces, self.listing), (self.pages, self.page_listing)
        self.program = cache(lambda version: build(self.fed, pieces, pages, version))

    @property
    def records(self) -> list[Any]:
        every: tuple[Mapping[Any, Sequence[Any]], ...] = (self.fed, self.pieces, self.pages)
        return [record for parts in every for part in parts.values() for record in part]

    def add_piece(self, name: Hashable) -> None:
        """Add a part to the uneven source, which programs list from their next start on."""
        if name not in self.pieces:
            self.pieces[name] = self._new_list(f"piece-{len(self.pieces)}")
            self.listing.names.append(name)

    def add_page(self, rows: int) -> None:
        """Add a part that ends, which programs list from their next start on."""
        self.pages[len(self.pages)] = [*range(rows)]
        self.page_listing.names.append(len(self.pages) - 1)

    def states_of(self, version: Version) -> tuple[StateSpec, ...]:
        return states_of(self.program(version))

    def begin(self, backend: Persistence, start: RestoreOptions, parallelism: int) -> FlowRun:
        return FlowRun(self, backend, start, parallelism)

    def observe(self, restored: RestoredState | None, opened: Version) -> Observed:
        """Compare what was restored with the fold."""
        if restored is None:
            return Observed(0, 0, "")
        at, shape = positions(restored.states), self.shapes[restored.snapshot]
        expected = fold(self.fed, self.pieces, self.pages, at, shape)
        if shape.version.counter != opened.counter:
            expected[opened.counter] = expected.pop(shape.version.counter)
        if not opened.has_extra:
            expected.pop("extra", None)  # it was allowed to drop that
        return Observed(restored.snapshot, at.total, differences(restored.states, expected))


class _Remembering:
    """A persistence that remembers what it gave."""

    is_enabled = True

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence
        self.restored: RestoredState | None = None

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        session, self.restored = self._persistence.open(states, start)
        return session, self.restored


class FlowRun:
    """A `DrivenRun` of one version of the program."""

    def __init__(self, flow: Flow, backend: Persistence, start: RestoreOptions, parallelism: int) -> None:
        self._flow, version = flow, flow.wanted
        remembering = _Remembering(backend)
        self._program = replace(flow.program(version), part_assignment=flow.assignment)
        self.live = flow.driven(self._program, parallelism=parallelism, persistence=remembering, start=start)
        self.snapshots = self.live.snapshots
        try:
            self.live.resume()
        except BaseException as error:
            if not isinstance(self.live, DrivenRun):
                self.live.close(error)  # its processes have started
            raise
        restored = remembering.restored
        at = Positions() if restored is None else positions(restored.states)
        old = flow.shapes[0 if restored is None else restored.snapshot]
        since = old.extra_since if restored is not None and old.version.has_extra else at
        self.shape = Shape(version, since)
        self.position = at.total
        flow.writers[self.session._claim.head.runner] = self.shape

    @property
    def session(self) -> Any:
        return self.snapshots._session

    @property
    def parallelism(self) -> int:
        return self.live.parallelism

    def tick(self, ticks: int) -> None:
        for _ in range(ticks):
            REACHED["handed out"] += self.live.ticks.hands_out
            self.position += self.live.tick()

    def process(self, until: int) -> None:
        while self.position < until:
            self.tick(1)

    def commit(self) -> Future[int]:
        future = self.snapshots.take()
        assert future is not None
        return future

    def rescale(self, parallelism: int) -> None:
        self.live.rescale(parallelism)

    def move(self, which: int, to: int) -> None:
        """Move a part to another worker, once all parts are handed out, and take the tick that follows a move."""
        if self.parallelism == 1:
            self.rescale(2)
        while self.live.ticks.hands_out:
            self.tick(1)
        move = drawn_move(self._program, self.live, which, to)
        if move is None:
            return
        self.live.move_parts(move)
        REACHED["moved"] += 1
        self.tick(1)

    def differs(self) -> str:
        """Compare what it holds now with the fold."""
        if not isinstance(self.live, DrivenRun):
            states = self.live.states()
            return differences(states, self._due(positions(states)))
        states = {}
        for worker in self.live._workers:
            for name, state in worker.states.live().items():
                states.setdefault(name, {})[worker.worker_id] = state
        at = {name: dict(merged(states[name])) for name in ("pieces", "pages")}  # also of parts that are not listed now
        others: dict[str, int] = {}
        for source in self.live._sources:
            found = at.get(source.context.operator_name, others)
            found.update({part: reader.partition.snapshot() for part, reader in source._readers.items()})
        return differences(states, self._due(Positions(**others, **at)))

    def _due(self, at: Positions) -> States:
        flow = self._flow
        return fold(flow.fed, flow.pieces, flow.pages, at, self.shape)


def positions(states: Mapping[str, Mapping[int, Mapping[Any, Any]]]) -> Positions:
    """Find out how far the sources are."""
    known = {part: at for name in PARTS for part, at in merged(states.get(name, {})).items()}
    return Positions(**known, pieces=merged(states.get("pieces", {})), pages=merged(states.get("pages", {})))


def merged(by_worker: Mapping[int, Mapping[Any, Any]]) -> dict[Any, Any]:
    """Put together what the workers hold; no two of them may hold the same."""
    together: dict[Any, Any] = {}
    for held in by_worker.values():
        if not together.keys().isdisjoint(held):
            raise Violation("state", f"two workers hold {together.keys() & held.keys()}")
        together.update(held)
    return together


def differences(states: Mapping[str, Mapping[int, Mapping[Any, Any]]], expected: States) -> str:
    """Say in which operator something differs."""
    found = []
    for name, due in expected.items():
        held = {key: getattr(state, "_entries", state) for key, state in merged(states.get(name, {})).items()}
        if held != due:
            found.append(f"{name} is {held}, not {due}")
    return "; ".join(found)
