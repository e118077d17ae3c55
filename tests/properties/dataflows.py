"""Random small dataflows whose results are specified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from malflow import NoKey
from malflow.windows import CountWindows
from tests.properties import functions
from tests.properties.specs import REFUSES, Dataflow, Order, Part, Place, Step

__all__ = ["NOTABLE", "PLAIN", "SHAPES", "VALUES", "Draft", "Move", "Traits", "chains", "dataflows", "grow", "readings"]

ONLY_MAX = 0
"""The origin of epochs where there are none but `MAX`."""


@dataclass(frozen=True)
class Traits:
    """The known properties of a stream, which decide which operators have a specified result on it.

    Attributes:
        keyed: whether it has keys.
        order: how far its order is specified.
        place: where its records are; always on one worker, if the dataflow is for one.
        epochs: which operator made its epochs, where all workers (or the one that has records) see the same ones at
            the same places; None where they depend on the interleaving.
        here: whether these epochs are seen on one worker, while the others wait.
        punctual: whether every record is later than every epoch before it.
        scattered: whether equal keys may be on several workers.
        placed: how its keys came to their workers.
        parts: whether its keys are the parts of its source.
        family: streams of one family may hold the same values.
        stamps: the type of its timestamps; None if it may be any, or `MAX`.
    """

    keyed: bool
    order: Order
    place: Place
    family: int
    epochs: int | None = ONLY_MAX
    here: bool = False
    punctual: bool = True
    scattered: bool = False
    placed: frozenset[str] = frozenset({"rendezvous"})
    parts: bool = False
    stamps: type | None = int

    @property
    def stateful(self) -> bool:
        return self.keyed and not self.scattered and len(self.placed) == 1

    @property
    def ordered(self) -> bool:
        return self.order is not Order.NONE


class Draft:
    """A dataflow in the making."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], *, parallel: bool, debug: bool) -> None:
        self.draw = draw
        self.parallel = parallel
        self.debug = debug
        self.movable = parallel
        self.steps: list[Step] = []
        self.traits: list[Traits] = []
        self.readers: list[int] = []
        self.shared: set[int] = set()
        self.mutated: set[int] = set()
        self.hidden: set[int] = set()
        self._families = 0

    def choose(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def add(self, kind: str, inputs: tuple[int, ...], arg: Any, *outputs: Traits, **more: Any) -> int:
        """Add a step; return the number of its first output."""
        for index in inputs:
            self.readers[index] += 1
            if self.readers[index] > 1:
                self.shared.add(self.traits[index].family)
        name = f"{kind}-{len(self.steps)}"
        self.steps.append(Step(kind, name, inputs, arg, len(outputs), **more))
        self.traits.extend(outputs)
        self.readers.extend([0] * len(outputs))
        return len(self.traits) - len(outputs)

    def family(self, *, shared_with: int | None = None, shared: bool = False) -> int:
        """Begin a family of values: a new one, whose members are shared if those of another are."""
        self._families += 1
        if shared or shared_with in self.shared:
            self.shared.add(self._families)
        return self._families

    def join_families(self, families: set[int]) -> int:
        """Make one family of several."""
        least = min(families)
        self.traits = [replace(t, family=least) if t.family in families else t for t in self.traits]
        for group in (self.shared, self.mutated):
            if families & group:
                group.add(least)
        return least

    def may_read(self, index: int) -> bool:
        """Whether one more operator may read a stream: not if another one changes its values."""
        if index in self.hidden:
            return False
        return self.readers[index] == 0 or self.traits[index].family not in self.mutated

    def may_mutate(self, index: int) -> bool:
        return not self.debug and self.readers[index] == 0 and self.traits[index].family not in self.shared

    def finish(self) -> Dataflow:
        """Put a sink on every stream that has no reader, but now and then none, and on some that have."""
        for index in range(len(self.traits)):
            if self.may_read(index) and self.draw(st.integers(0, 9)) < (2 if self.readers[index] else 9):
                sink(self, tell_epochs(self, index))
        return Dataflow(tuple(self.steps), self.parallel, self.debug, self.movable)


# Sources

VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 4, 5, 6, 7, 11, -3),
    *("", "a", "ab", "abcd"),
    *((), (1, "a"), ((2,), [3])),
    *([], [1], [2, "a"], [[1], 2], [[1, [2]], []]),
)
LISTS = tuple(value for value in VALUES if isinstance(value, list)) * 3 + VALUES
NAMES = [f"part-{number}" for number in range(6)]
PART_KEYS = st.sampled_from([key for equal in functions.EQUAL_KEYS for key in equal] + NAMES)


def _items(draft: Draft, values: Sequence[Any], most: int) -> tuple[Any, ...]:
    """Draw values, mostly many: of few records few have the same key."""
    least = draft.choose([most // 2, most // 4, 0])
    return tuple(draft.draw(st.lists(st.sampled_from(values), min_size=least, max_size=most)))


def single_source(draft: Draft, values: Sequence[Any] = VALUES) -> None:
    items = _items(draft, values, 24)
    traits = Traits(keyed=False, order=Order.TOTAL, place=Place.SOURCE, family=draft.family())
    draft.add("source", (), (Part(NoKey, items, tuple(range(len(items)))),), traits)


def part_source(draft: Draft, fewest: int = 1) -> None:
    """Add a source of a few or of many parts, one of which may be much longer than the others."""
    most = max(fewest, draft.choose([4, 4, 9]))
    keys = draft.draw(st.lists(PART_KEYS, min_size=fewest, max_size=most, unique=True))
    times = draft.choose([1, 1, 1, 6])
    parts = (_part(draft, keys[0], times), *(_part(draft, key) for key in keys[1:]))
    place = Place.SPREAD if draft.parallel else Place.SOURCE
    traits = Traits(keyed=True, order=Order.BY_KEY, place=place, family=draft.family(), parts=True)
    draft.add("source", (), parts, traits)


def _part(draft: Draft, key: Any, times: int = 1) -> Part:
    items = _items(draft, VALUES, 10) * times
    step = draft.choose([1, 2, 7])
    return Part(key, items, tuple(index * step % 11 for index in range(len(items))))


# Operators: each takes a draft and the stream to go on from


def map_values(draft: Draft, index: int) -> None:
    traits, name = draft.traits[index], draft.choose(["tag", "wrap", "weigh", "relist", "pair"])
    if name in ("weigh", "relist"):
        traits = replace(traits, family=draft.family())
    if name == "pair":
        traits = replace(traits, family=draft.family(shared=True))
    draft.add("map", (index,), name, traits)


def mutate(draft: Draft, index: int) -> None:
    draft.mutated.add(draft.traits[index].family)
    draft.add("map", (index,), "mutate", draft.traits[index])


def fragile(draft: Draft, index: int) -> None:
    """Call a function that changes its input before it fails, with or without a retry."""
    draft.mutated.add(draft.traits[index].family)
    draft.add("fragile", (index,), draft.draw(st.booleans()), replace(draft.traits[index], family=draft.family()))


def fragile_map(draft: Draft, index: int) -> None:
    draft.mutated.add(draft.traits[index].family)
    draft.add("fragile_map", (index,), draft.draw(st.booleans()), replace(draft.traits[index], family=draft.family()))


def map_with_key(draft: Draft, index: int) -> None:
    name = draft.choose(list(functions.KEYED_MAPS))
    draft.add("map_with_key", (index,), name, replace(draft.traits[index], family=draft.family(shared=True)))


def filter_values(draft: Draft, index: int) -> None:
    draft.add("filter", (index,), draft.choose(list(functions.PREDICATES)), draft.traits[index])


def filter_map(draft: Draft, index: int) -> None:
    draft.add("filter_map", (index,), draft.choose(list(functions.FILTER_MAPS)), draft.traits[index])


def flat_map(draft: Draft, index: int) -> None:
    traits, name = draft.traits[index], draft.choose(list(functions.FLAT_MAPS))
    if name == "generated":  # its values overlap: it yields a value after the elements of it
        traits = replace(traits, family=draft.family(shared=True))
    draft.add("flat_map", (index,), name, traits)


def flatten(draft: Draft, index: int) -> None:
    listed = draft.add("map", (index,), "elements", draft.traits[index])
    draft.add("flatten", (listed,), None, draft.traits[index])


def stateless_op(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    settled = traits.place is Place.SOURCE and traits.epochs is not None and traits.order is Order.TOTAL
    name = draft.choose(list(functions.STATELESS_OPS) if settled else ["repeat", "twice"])
    draft.add(
        "stateless_op", (index,), name, replace(traits, family=draft.family(shared=True), parts=False, stamps=None)
    )


def key_local(draft: Draft, index: int) -> None:
    traits, key = draft.traits[index], draft.choose(list(functions.KEYS))
    if (key != "same" or not traits.keyed) and traits.order is not Order.TOTAL:
        traits = replace(traits, order=Order.NONE, scattered=traits.place is Place.SPREAD)
    draft.add("key_local", (index,), (key,), replace(traits, keyed=True, placed=frozenset({"local"}), parts=False))


def key_distribute(draft: Draft, index: int) -> None:
    partitioner = draft.choose(list(functions.PARTITIONERS))
    _distribute(draft, index, draft.choose(list(functions.KEYS)), partitioner)


def regroup(draft: Draft, index: int) -> None:
    """Bring equal keys together, from several workers, and count on it."""
    stateful_op(draft, _distribute(draft, index, draft.choose(["two", "mixed"]), "rendezvous"))


def _distribute(draft: Draft, index: int, key: str, partitioner: str) -> int:
    traits = draft.traits[index]
    order, place = _distributed(traits, key, parallel=draft.parallel)
    traits = replace(
        traits,
        keyed=True,
        order=order,
        place=place,
        epochs=None if traits.here else traits.epochs,
        here=False,
        scattered=False,
        placed=frozenset({partitioner}),
        parts=False,
    )
    return draft.add("key_distribute", (index,), (key, partitioner), traits)


def _distributed(traits: Traits, key: str, *, parallel: bool) -> tuple[Order, Place]:
    """Return the order after an exchange: none where several workers send the same key."""
    total = traits.order is Order.TOTAL
    if not parallel:
        return (traits.order if total or key == "same" else Order.NONE), Place.SOURCE
    if key == "constant":
        return (traits.order if total else Order.NONE), Place.GATHERED
    return (Order.BY_KEY if total or (key == "same" and traits.ordered) else Order.NONE), Place.SPREAD


def stateful_map(draft: Draft, index: int) -> None:
    mappers = [name for name in functions.STATEFUL_MAPS if name != "absorb" or draft.may_mutate(index)]
    traits, name = draft.traits[index], draft.choose(mappers)
    if name == "absorb":
        draft.mutated.add(traits.family)
    if name not in ("previous", "swap"):
        traits = replace(traits, family=draft.family(shared_with=traits.family if name == "history" else None))
    draft.add("stateful_map", (index,), name, traits)


def stateful_op(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    name = draft.choose(_stateful_ops(traits))
    keeps_values = name in ("show", "triples", "renew", "roll")
    order = traits.order
    if name == "alarm":
        traits = replace(traits, order=Order.BY_KEY, family=draft.family(), parts=False)
        draft.add("stateful_op", (index,), name, traits)
        return
    if name in ("flush", "tumble", "final"):
        order = Order.TOTAL if order is Order.TOTAL and traits.epochs is not None else Order.BY_KEY
    family = traits.family
    if name != "clock":
        family = draft.family(shared_with=traits.family if keeps_values else None)
    draft.add("stateful_op", (index,), name, replace(traits, order=order, family=family, parts=False, stamps=None))


def _stateful_ops(traits: Traits) -> list[str]:
    """List the logics with a specified result: those that look at the order, at epochs, or at neither."""
    names = ["final"]
    if traits.ordered:
        names += ["show", "show inside", "fan", "triples", "renew"]
    if traits.epochs is not None:
        names += ["flush", "clock"]
    if traits.punctual:
        names += ["tumble"]
    if traits.ordered and traits.epochs is not None:
        names += ["roll", "decay"]
    if _timed_and_punctual(traits):
        names += ["alarm"] * 3
    return names


def connect(draft: Draft, index: int) -> None:
    """Bring two streams into one state, or a stream and itself; each has its own order in it."""
    left = draft.traits[index]
    others = [
        other
        for other, traits in enumerate(draft.traits)
        if draft.may_read(other) and _connectable(traits) and traits.placed == left.placed
    ]
    if not others:
        sample(draft, index)
        return
    other = draft.choose(others)
    joined = _joined([left, draft.traits[other]])
    name = draft.choose(["final", *["sides"] * (left.ordered and draft.traits[other].ordered)])
    order = Order.BY_KEY if name == "final" else Order.NONE
    draft.add("connect", (index, other), name, replace(joined, order=order, family=draft.family(), stamps=None))


def ttl_map(draft: Draft, index: int) -> None:
    traits = replace(draft.traits[index], family=draft.family())
    name = draft.choose(list(functions.TTL_MAPS))
    made = draft.add("ttl_map", (index,), name, traits)
    if name == "entries":
        draft.hidden.add(made)
        draft.add("map", (made,), "thaw", traits)


def window(draft: Draft, index: int) -> None:
    """Aggregate in windows; of those of a number of records leave out the rest, whose time depends on the epochs."""
    traits = draft.traits[index]
    names = [name for name, it in functions.WINDOWS.items() if traits.ordered or not isinstance(it, CountWindows)]
    traits = replace(traits, order=Order.BY_KEY, family=draft.family(), parts=False)
    draft.add("window", (index,), draft.choose(names), traits)


def early_window(draft: Draft, index: int) -> None:
    """Aggregate in windows that have early results, which depend on the epochs."""
    traits = replace(draft.traits[index], order=Order.BY_KEY, family=draft.family(), parts=False)
    draft.add("early_window", (index,), draft.choose(list(functions.EARLY)), traits)


def late_window(draft: Draft, index: int) -> None:
    """Generate epochs, and add the late records to windows of those on time, on one worker or after an exchange.

    The late records are named or found, and the revised results are a stream of their own or come with the others.
    """
    stamps = _stamps(draft, index, draft.choose(["weight", "double", "bumpy"])) if draft.draw(st.booleans()) else None
    names = [0, 1, 3] if stamps is not None else ["own", "back", "sometimes", 0, 1, 3]
    on_time = _generate(draft, index, draft.choose(names), len(draft.steps), here=False, stamps=stamps)
    key = draft.choose(list(functions.KEYS)) if draft.traits[index].keyed else draft.choose(["two", "mixed", "modulo"])
    keyed, late = (_distribute(draft, it, key, "rendezvous") for it in (on_time, on_time + 1))
    traits = replace(draft.traits[keyed], order=Order.BY_KEY, parts=False, punctual=False)
    arg = draft.choose(list(functions.LATE)), draft.draw(st.booleans()), draft.draw(st.booleans())
    results, revised = (replace(traits, family=draft.family(), punctual=it) for it in (True, False))
    outputs = [_joined([results, revised])] if arg[2] else [results, revised]
    draft.add("late_window", (keyed, late), arg, *outputs, replace(traits, order=draft.traits[late].order))


def select(draft: Draft, index: int) -> None:
    """Drop, hold back, reorder or group records, or add them up."""
    draft.choose([_select, _distinct, _throttle, _sort, _batch])(draft, index)


def _select(draft: Draft, index: int) -> None:
    traits, kind = draft.traits[index], draft.choose(["aggregate", "changes"])
    draft.add(kind, (index,), None, traits if kind == "changes" else replace(traits, family=draft.family()))


def table(draft: Draft, index: int) -> None:
    """Make a table: send its changes, group them, or join records with its rows."""
    draft.choose([_changes, _grouped, _grouped, _arrival])(draft, index)


def _changes(draft: Draft, index: int) -> None:
    draft.add("to_table", (index,), None, replace(draft.traits[index], family=draft.family()))


def _grouped(draft: Draft, index: int) -> None:
    """Group the rows of a table, which brings those of several keys together."""
    traits = draft.traits[index]
    order, place = _distributed(traits, "two", parallel=draft.parallel)
    epochs = None if traits.here else traits.epochs
    traits = replace(traits, order=order, place=place, epochs=epochs, here=False, family=draft.family(), parts=False)
    draft.add("grouped", (index,), None, replace(traits, placed=frozenset({"rendezvous"})))


def _arrival(draft: Draft, index: int) -> None:
    """Join records with rows by arrival, where it is plain which rows are known.

    These are the last ones, since the records wait for the end, or the only ones, since a tick's rows come first.
    """
    held = draft.draw(st.booleans())
    traits = replace(draft.traits[index], family=draft.family(shared=True), parts=False)
    _share(draft, index)
    if held:
        traits = replace(traits, epochs=ONLY_MAX, here=False)
    draft.add("arrival", (index,), (held, draft.choose(["left", "inner"])), traits)


def lookup(draft: Draft, index: int) -> None:
    cached = draft.draw(st.booleans())
    draft.add("lookup", (index,), (draft.choose(["left", "inner"]), cached), draft.traits[index])


def expiring_table(draft: Draft, index: int) -> None:
    """Keep rows that expire, which depends on the epochs."""
    traits = replace(draft.traits[index], order=Order.BY_KEY, family=draft.family(), parts=False)
    draft.add("expiring_table", (index,), draft.choose([1, 5]), traits)


def _distinct(draft: Draft, index: int) -> None:
    draft.add("distinct", (index,), draft.choose([None, 3, 8]), draft.traits[index])


def _throttle(draft: Draft, index: int) -> None:
    _share(draft, index)
    draft.add(
        "throttle",
        (index,),
        draft.choose([(1, 5, "sliding"), (2, 7, "sliding"), (2, 9, "bucket"), (3, 4, "bucket")]),
        *[draft.traits[index]] * 2,
    )


def _sort(draft: Draft, index: int) -> None:
    draft.add("sort", (index,), None, replace(draft.traits[index]))


def _batch(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    family = draft.family(shared_with=traits.family)
    traits = replace(traits, order=Order.BY_KEY, family=family, parts=False)
    draft.add("batch", (index,), draft.choose([(2, 5), (3, 20), (4, 3)]), traits)


def broadcast(draft: Draft, index: int) -> None:
    """Join records with rows that all workers have: those of a tick come first, and all are there at the end.

    The records may have any keys or none; they can only be held until the end by key.
    """
    held = _selectable(draft.traits[index]) and draft.draw(st.booleans())
    traits = replace(draft.traits[index], family=draft.family(shared=True), parts=False)
    _share(draft, index)
    if held:
        traits = replace(traits, epochs=ONLY_MAX, here=False)
    draft.add("broadcast", (index,), held, traits)


def sample(draft: Draft, index: int) -> None:
    draft.add("sample", (index,), draft.choose([0.2, 0.7, 1]), draft.traits[index])


def join(draft: Draft, index: int) -> None:
    """Join with another stream, or with the stream itself; the results of a record come in any order."""
    left = draft.traits[index]
    others = [
        other
        for other, traits in enumerate(draft.traits)
        if draft.may_read(other) and _windowed(traits) and traits.placed == left.placed
    ]
    if not others:  # nor may the stream itself be read twice
        sample(draft, index)
        return
    other = draft.choose(others)
    ordered = [*["asof_join", "join_table"] * draft.traits[other].ordered]
    are_ordered = left.ordered and draft.traits[other].ordered
    ordered += ["join_tables"] * are_ordered + ["join_foreign"] * (are_ordered and "local" not in left.placed)
    kind = draft.choose(["interval_join", "cogroup", *ordered])
    for read in (index, other):
        _share(draft, read)
    joined = replace(_joined([left, draft.traits[other]]))
    if kind == "cogroup":
        names = [name for name, it in functions.WINDOWS.items() if not isinstance(it, CountWindows)]
        traits = replace(joined, order=Order.BY_KEY, family=draft.family())
        draft.add(kind, (index, other), draft.choose(names), traits)
        return
    traits = replace(joined, family=draft.family(shared=True))
    if kind == "interval_join":
        arg = draft.choose(list(functions.INTERVALS)), draft.choose(["inner", "left", "right", "outer"])
    elif kind == "join_table":
        arg = draft.choose(["left", "inner"])
    elif kind == "join_foreign":
        arg = draft.choose(["left", "inner"])
        traits = replace(traits, order=Order.BY_KEY, family=draft.family(), stamps=None)
    elif kind == "join_tables":  # which rows it has had depends on the order between the two; its last ones do not
        arg = draft.choose(["left", "inner", "outer"])
        traits = replace(traits, order=Order.BY_KEY, family=draft.family(), stamps=None)
    else:
        arg = draft.choose(list(functions.TOLERANCES)), draft.choose(["left", "inner"])
    draft.add(kind, (index, other), arg, traits)


def keyed_in_time(draft: Draft, index: int) -> None:
    """Set times, epochs and keys, and add operators that need all of these."""
    assigner = draft.choose(["weight", "double", "bumpy"])
    name = draft.choose(["own", "back", "sometimes", 0, 1, 3, 8])
    index, stamps = _stamp(draft, index, assigner, name)
    here = draft.traits[index].place is Place.GATHERED
    on_time = _generate(draft, index, name, len(draft.steps), here=here, stamps=stamps)
    keyed = _distribute(draft, on_time, draft.choose(["two", "two", "mixed", "modulo"]), "rendezvous")
    for _ in range(draft.draw(st.integers(1, 2))):
        fitting = [move for move in _TIMED_MOVES if move.fits(draft.traits[keyed])]
        draft.choose(fitting or PLAIN[:5]).add(draft, keyed)


def assign_and_generate(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    assigner = draft.choose(list(functions.ASSIGNERS))
    known = traits.parts or traits.order is Order.TOTAL
    name = draft.choose([*functions.GENERATORS, "own", "sometimes", 0, 1, 3] if known else ["never", "distant"])
    index, stamps = _stamp(draft, index, assigner, name)
    if traits.parts:
        _generate_per_part(draft, index, name, stamps)
        return
    epochs = ONLY_MAX if name == "never" else len(draft.steps) if known else None
    here = epochs != ONLY_MAX and traits.place is Place.GATHERED
    _generate(draft, index, name, epochs, here=here, stamps=stamps)


@dataclass(frozen=True)
class Stamps:
    """What `event_time` does before it generates epochs: its assigner, and the stream that this makes."""

    assigner: str
    traits: Traits


def _stamps(draft: Draft, index: int, assigner: str) -> Stamps:
    kind = float if assigner in ("halves", "single") else int
    return Stamps(assigner, replace(draft.traits[index], epochs=ONLY_MAX, here=False, stamps=kind))


def _stamp(draft: Draft, index: int, assigner: str, name: Any) -> tuple[int, Stamps | None]:
    """Set times, by a step of its own or by that which generates epochs with a bound."""
    stamps = _stamps(draft, index, assigner)
    if isinstance(name, int) and draft.draw(st.booleans()):
        return index, stamps
    stamped = draft.add("assign_timestamps", (index,), assigner, stamps.traits)
    draft.hidden.add(stamped)
    return stamped, None


def generate_epochs(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    if traits.parts and traits.punctual:
        _generate_per_part(draft, index, draft.choose([*functions.GENERATORS, "own", "sometimes", 0, 1, 3]))
        return
    known = traits.order is Order.TOTAL and traits.epochs is not None
    name = draft.choose([name for name in functions.GENERATORS if name != "distant"] if known else ["never"])
    epochs = len(draft.steps) if name != "never" or traits.epochs not in (None, ONLY_MAX) else traits.epochs
    _generate(draft, index, name, epochs, here=traits.here or (name != "never" and traits.place is Place.GATHERED))


def _generate_per_part(draft: Draft, index: int, name: Any, stamps: Stamps | None = None) -> None:
    """Generate epochs for each part: what is late is the same at every parallelism; when epochs come is not."""
    traits = draft.traits[index] if stamps is None else stamps.traits
    epochs = traits.epochs if name == "never" else None
    _add_epochs(draft, index, name, replace(traits, epochs=epochs), stamps, per_part=True)


def _generate(
    draft: Draft, index: int, name: Any, epochs: int | None, *, here: bool, stamps: Stamps | None = None
) -> int:
    traits = draft.traits[index] if stamps is None else stamps.traits
    if name != "never" and traits.place is Place.GATHERED:
        draft.movable = False  # the time of the one worker that has records is not that of the others
    return _add_epochs(draft, index, name, replace(traits, epochs=epochs, here=here), stamps)


def _add_epochs(
    draft: Draft, index: int, name: Any, traits: Traits, stamps: Stamps | None, *, per_part: bool = False
) -> int:
    kind, arg = ("generate_epochs", name) if stamps is None else ("event_time", (stamps.assigner, name))
    on_time, late = replace(traits, punctual=True), replace(traits, punctual=False)
    return draft.add(kind, (index,), arg, on_time, late, per_part=per_part, every=_every(draft))


def _every(draft: Draft) -> int | None:
    return draft.choose([None, None, 1, 3, 10])  # type: ignore[no-any-return] # of these


def split(draft: Draft, index: int) -> None:
    name, outputs = draft.choose(list(functions.SPLITS)), draft.choose([1, 2, 3])
    _share(draft, index)
    draft.add("split", (index,), name, *[draft.traits[index]] * outputs)


def cloned(draft: Draft, index: int) -> None:
    outputs = draft.choose([1, 2, 3])
    _share(draft, index)
    draft.add("cloned", (index,), None, *[draft.traits[index]] * outputs)


def _share(draft: Draft, index: int) -> None:
    draft.shared.add(draft.traits[index].family)


def union(draft: Draft, index: int) -> None:
    others = [other for other in range(len(draft.traits)) if draft.may_read(other)]
    chosen = draft.draw(st.lists(st.sampled_from(others), min_size=1, max_size=2))
    inputs = (index, *chosen)
    family = draft.join_families({draft.traits[i].family for i in inputs})
    if any(draft.readers[i] for i in inputs) or len(set(inputs)) < len(inputs):
        draft.shared.add(family)
    draft.add("union", inputs, None, _joined([draft.traits[i] for i in inputs]))


_BY_KEY = [frozenset({partitioner}) for partitioner in functions.PARTITIONERS]


def _joined(traits: list[Traits]) -> Traits:
    places = {t.place for t in traits}
    place = Place.SOURCE if places == {Place.SOURCE} else Place.SPREAD
    placed = frozenset().union(*(t.placed for t in traits))
    origins = {t.epochs for t in traits}  # epochs of several operators merge by how they interleave
    return Traits(
        keyed=all(t.keyed for t in traits),
        order=Order.NONE,
        place=place,
        family=traits[0].family,
        epochs=traits[0].epochs if len(origins) == 1 and not any(t.here for t in traits) else None,
        punctual=all(t.punctual for t in traits),
        scattered=any(t.scattered for t in traits) or (place is Place.SPREAD and placed not in _BY_KEY),
        placed=placed,
        stamps=traits[0].stamps if len({t.stamps for t in traits}) == 1 else None,
    )


def inspect(draft: Draft, index: int) -> None:
    draft.add("inspect", (index,), None, draft.traits[index], order=draft.traits[index].order)


def inspect_frontier(draft: Draft, index: int) -> None:
    traits = draft.traits[index]
    place = None if traits.epochs is None else Place.SOURCE if traits.here else traits.place
    draft.add("inspect_frontier", (index,), None, traits, epochs=place)


def tell_epochs(draft: Draft, index: int) -> int:
    """Put a clock on a stream, if it has epochs at known places and can have a state."""
    if draft.traits[index].epochs in (None, ONLY_MAX) or draft.draw(st.booleans()):
        return index
    if not draft.traits[index].keyed:
        spread = draft.traits[index].place is Place.SPREAD and draft.traits[index].order is not Order.TOTAL
        traits = replace(draft.traits[index], keyed=True, placed=frozenset({"local"}), scattered=spread)
        index = draft.add("key_local", (index,), ("same",), traits)
    if not draft.traits[index].stateful:
        return index
    return draft.add("stateful_op", (index,), "clock", draft.traits[index])


def sink(draft: Draft, index: int) -> None:
    refuses = draft.draw(st.integers(0, 3)) == 0
    draft.add("sink", (index,), REFUSES if refuses else None, order=draft.traits[index].order)


# Dataflows


@dataclass(frozen=True)
class Move:
    """An operator to add, and where it has a place."""

    add: Callable[[Draft, int], None]
    fits: Callable[[Traits], bool] = field(default=lambda _: True)


def _generable(traits: Traits) -> bool:
    return traits.epochs is not None or traits.punctual


def _windowed(traits: Traits) -> bool:
    return traits.stateful and traits.punctual and traits.stamps is int


def _joinable(traits: Traits) -> bool:
    return _windowed(traits) and traits.placed in _BY_KEY


def _connectable(traits: Traits) -> bool:
    return traits.stateful and traits.placed in _BY_KEY


def _selectable(traits: Traits) -> bool:
    return _windowed(traits) and traits.ordered


def _timed_and_punctual(traits: Traits) -> bool:
    return _selectable(traits) and traits.epochs is not None


def _generable_on_one_worker(traits: Traits) -> bool:
    """Whether all records are on one worker, so that it is known which of them are late, and by how much."""
    known = traits.order is Order.TOTAL and traits.epochs is not None
    return known and traits.place is Place.SOURCE and traits.stamps is int


def _stateful_and_ordered(traits: Traits) -> bool:
    return traits.stateful and traits.ordered


def _timed(traits: Traits) -> bool:
    return _stateful_and_ordered(traits) and traits.epochs is not None


_TIMED_MOVES = (
    Move(window, _windowed),
    Move(early_window, lambda traits: _timed_and_punctual(traits) and traits.epochs != ONLY_MAX),
    Move(expiring_table, lambda traits: _timed_and_punctual(traits) and traits.epochs != ONLY_MAX),
    Move(stateful_op, lambda traits: _timed_and_punctual(traits) and traits.epochs != ONLY_MAX),
    Move(select, _selectable),
    Move(table, _selectable),
    *[Move(join, _joinable)] * 2,
)

PLAIN = (
    Move(map_values),
    Move(filter_values),
    Move(filter_map),
    Move(map_with_key, lambda traits: traits.keyed),
    Move(flat_map),
    Move(flatten),
    Move(stateless_op),
    Move(key_distribute),
    Move(key_local),
    Move(generate_epochs, _generable),
    Move(assign_and_generate),
    Move(inspect_frontier),
    Move(sample),
    Move(lookup),
    Move(broadcast),
)
SHAPES = (Move(split), Move(cloned), Move(union), Move(union), Move(inspect))
NOTABLE = (
    Move(key_distribute, lambda traits: not traits.stateful),
    Move(assign_and_generate, lambda traits: traits.order is Order.TOTAL and traits.epochs == ONLY_MAX),
    *[Move(stateful_map, _stateful_and_ordered)] * 2,
    *[Move(stateful_op, lambda traits: traits.stateful)] * 2,
    Move(connect, _connectable),
    Move(window, _windowed),
    Move(window, lambda traits: _windowed(traits) and traits.epochs != ONLY_MAX),
    Move(late_window, lambda traits: _generable_on_one_worker(traits) and traits.epochs != ONLY_MAX),
    *[Move(keyed_in_time, lambda traits: traits.order is Order.TOTAL)] * 3,
    *_TIMED_MOVES,
    Move(ttl_map, _timed),
    *[Move(ttl_map, lambda traits: _timed(traits) and traits.epochs != ONLY_MAX)] * 2,
    Move(regroup, lambda traits: traits.place is Place.SPREAD),
)
"""What the properties are mostly about."""


def grow(draft: Draft, shapes: Sequence[Move], *, fan_out: bool) -> None:
    """Add an operator, mostly to a stream that has no reader yet."""
    candidates = [index for index in range(len(draft.traits)) if draft.may_read(index)]
    leaves = [index for index in candidates if not draft.readers[index]]
    if fan_out and (not leaves or draft.draw(st.integers(0, 4)) == 0):
        leaves = candidates
    if not leaves:
        return
    index = draft.choose(leaves)
    mutators = [Move(mutate)] * 2 if draft.may_mutate(index) else []
    if mutators:
        mutators += [Move(fragile)] * 2 + [Move(fragile_map, _stateful_and_ordered)] * 2
    kind = draft.choose([PLAIN, NOTABLE, [*NOTABLE, *mutators], shapes])
    fitting = [move for move in kind if move.fits(draft.traits[index])]
    draft.choose(fitting or PLAIN[:5]).add(draft, index)


@st.composite
def dataflows(draw: Any) -> Dataflow:
    """Make a dataflow of one to three sources and some operators, with any shape."""
    draft = Draft(draw, parallel=draw(st.integers(0, 3)) > 0, debug=draw(st.integers(0, 4)) == 0)
    single_source(draft)
    for _ in range(draw(st.integers(0, 4)) // 3):
        draft.choose([single_source, part_source])(draft)
    if draw(st.booleans()):
        assign_and_generate(draft, 0)
    if draw(st.integers(0, 2)) == 0:
        part_source(draft)
        assign_and_generate(draft, len(draft.traits) - 1)
    for _ in range(draw(st.integers(1, 14))):
        grow(draft, SHAPES, fan_out=True)
    return draft.finish()


@st.composite
def readings(draw: Any) -> Dataflow:
    """Make a dataflow that begins with one or two sources of parts; it has the same results on any workers."""
    draft = Draft(draw, parallel=True, debug=draw(st.integers(0, 4)) == 0)
    for _ in range(draw(st.integers(1, 2))):
        part_source(draft, fewest=draft.choose([9, 9, 5]))
    if draw(st.booleans()):
        assign_and_generate(draft, 0)
    for _ in range(draw(st.integers(1, 10))):
        grow(draft, SHAPES, fan_out=True)
    return draft.finish()


@st.composite
def chains(draw: Any) -> Dataflow:
    """Make a dataflow without fan-out, in which operators change the lists that they get."""
    draft = Draft(draw, parallel=draw(st.integers(0, 3)) > 0, debug=False)
    single_source(draft, LISTS)
    if draw(st.booleans()):
        assign_and_generate(draft, 0)
    for _ in range(draw(st.integers(2, 9))):
        grow(draft, NOTABLE, fan_out=False)
    return draft.finish()
