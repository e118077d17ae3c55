"""Random long-running dataflows: several parts, exchanges in a row, idle operators, hooks that read all states.

They are those of the property tests, with more records; what is specified of each is known in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from malflow import NoKey
from tests.properties.dataflows import (
    NOTABLE,
    PLAIN,
    SHAPES,
    VALUES,
    Draft,
    Move,
    Traits,
    assign_and_generate,
    grow,
    key_distribute,
    regroup,
    stateful_op,
)
from tests.properties.functions import EQUAL_KEYS
from tests.properties.lifting import lifted
from tests.properties.specs import REFUSES, Dataflow, Order, Part, Place, Step

__all__ = ["Flow", "flows", "resting", "wide"]

HIDDEN = frozenset({"hold", "announce"})
"""Stateless operators whose object keeps something: there is one in each process, and workers move between these."""

_STATES = ("stateful_map", "stateful_op", "ttl_map")
_TIMED = frozenset(
    {
        *("stateful_op", "ttl_map", "window", "early_window", "late_window", "cogroup"),
        *("interval_join", "asof_join", "sort", "batch", "join_table", "expiring_table"),
    }
)
"""Operators whose results, or states, depend on epochs."""
_TIMELESS = frozenset({"audit", "show", "fan", "triples", "renew"})
"""Stateful logics to which epochs are nothing."""

_LETTERS = tuple(key for equal in EQUAL_KEYS for key in equal[:1])


@dataclass(frozen=True)
class Flow:
    """A dataflow, and what more is known of it.

    Attributes:
        dataflow: the dataflow.
        kept: the steps whose states are specified when the sources have ended.
        counted: the sinks that have parts.
        lettered: the sinks whose dead letters are specified then.
    """

    dataflow: Dataflow
    kept: frozenset[str]
    counted: frozenset[str]
    lettered: frozenset[str] = frozenset()

    def named(self, prefix: str) -> Flow:
        """Return the same with names that begin so."""
        steps = tuple(replace(step, name=prefix + step.name) for step in self.dataflow.steps)
        named = (frozenset(prefix + it for it in names) for names in (self.kept, self.counted, self.lettered))
        return Flow(replace(self.dataflow, steps=steps), *named)


class LongDraft(Draft):
    """A draft that notes whose states are specified, and which sinks have parts.

    Attributes:
        rng: decides what is large.
        kept, counted, lettered: see `Flow`.
        unsettled: streams of which it is not specified what has come when the sources have ended.
    """

    def __init__(self, draw: Any, rng: random.Random, *, debug: bool) -> None:
        super().__init__(draw, parallel=True, debug=debug)
        self.rng = rng
        self.kept: set[str] = set()
        self.counted: set[str] = set()
        self.lettered: set[str] = set()
        self.unsettled: set[int] = set()

    def add(self, kind: str, inputs: tuple[int, ...], arg: Any, *outputs: Traits, **more: Any) -> int:
        made = super().add(kind, inputs, arg, *outputs, **more)
        step, before = self.steps[-1], [self.traits[index] for index in inputs]
        timed = all(traits.epochs is not None and not traits.here for traits in before)
        settled = not self.unsettled.intersection(inputs)
        timeless = kind not in _TIMED or arg in _TIMELESS
        if kind in _STATES and settled and (timed or timeless):
            self.kept.add(step.name)
        if not settled or not (timed or timeless):
            self.unsettled.update(range(made, made + len(outputs)))
        if arg == REFUSES and settled:
            self.lettered.add(step.name)
        if kind == "sink" and before[0].keyed and self.rng.random() < 0.4:
            self._count(step, settled=settled)
        return made

    def _count(self, step: Step, *, settled: bool) -> None:
        """Write to a sink with parts; the order between keys is lost."""
        self.counted.add(step.name)
        if step.order is Order.TOTAL:
            self.steps[-1] = replace(step, order=Order.BY_KEY)
        if settled:
            self.kept.add(step.name)

    def flow(self) -> Flow:
        dataflow = self.finish()
        vague = lifted(dataflow.steps, lambda step: step.kind in _TIMED)
        return Flow(dataflow, frozenset(self.kept - vague), frozenset(self.counted), frozenset(self.lettered - vague))


def single_source(draft: LongDraft) -> None:
    """Add a source of one part, whose order is known."""
    items = tuple(draft.rng.choices(VALUES, k=draft.rng.choice([3, 12, 40])))
    traits = Traits(keyed=False, order=Order.TOTAL, place=Place.SOURCE, family=draft.family())
    draft.add("source", (), (Part(NoKey, items, tuple(range(len(items)))),), traits)


def part_source(draft: LongDraft) -> None:
    """Add a source of several parts, which are keys."""
    keys = draft.rng.sample(_LETTERS, draft.rng.randint(2, 4))
    parts = []
    for key in keys:
        items = tuple(draft.rng.choices(VALUES, k=draft.rng.choice([2, 6, 15])))
        parts.append(Part(key, items, tuple(index * draft.rng.choice([1, 2]) for index in range(len(items)))))
    traits = Traits(keyed=True, order=Order.BY_KEY, place=Place.SPREAD, family=draft.family())
    draft.add("source", (), tuple(parts), traits)


def logs_source(draft: LongDraft) -> None:
    """Add a source of several parts that are no keys, as are the files of a folder; the order between them is open."""
    parts = []
    for _ in range(draft.rng.randint(2, 3)):
        items = tuple(draft.rng.choices(VALUES, k=draft.rng.choice([4, 10, 20])))
        parts.append(Part(NoKey, items, tuple(range(len(items)))))
    place = Place.SPREAD if draft.parallel else Place.SOURCE
    draft.add("source", (), tuple(parts), Traits(keyed=False, order=Order.NONE, place=place, family=draft.family()))


def audit(draft: Draft, index: int) -> None:
    """Add an operator that looks at all of its states after each tick."""
    draft.add("stateful_op", (index,), "audit", draft.traits[index])


_LONG = (
    *NOTABLE,
    Move(audit, lambda traits: traits.stateful),
    Move(key_distribute),
    Move(stateful_op, lambda traits: traits.stateful),
    Move(regroup),
)


@st.composite
def long_flows(draw: Any) -> Flow:
    """Make a dataflow with one to three sources."""
    draft = LongDraft(draw, random.Random(draw(st.integers(0, 1 << 30))), debug=draw(st.integers(0, 4)) == 0)
    single_source(draft)
    for _ in range(draw(st.integers(0, 2))):
        draft.choose([single_source, part_source, logs_source])(draft)
    if draw(st.booleans()):
        assign_and_generate(draft, 0)
    for _ in range(draw(st.integers(3, 12))):
        grow(draft, SHAPES, fan_out=True)
        _deepen(draft)
    return draft.flow()


def _deepen(draft: Draft) -> None:
    """Add, now and then, an exchange with a state behind it, or an operator that reads all states."""
    leaves = [index for index in range(len(draft.traits)) if draft.may_read(index) and not draft.readers[index]]
    if not leaves or draft.draw(st.booleans()):
        return
    index = draft.choose(leaves)
    fitting = [move for move in _LONG if move.fits(draft.traits[index])]
    draft.choose(fitting or PLAIN[:5]).add(draft, index)


def _travels(flow: Flow) -> bool:
    return not any(step.kind == "stateless_op" and step.arg in HIDDEN for step in flow.dataflow.steps)


def flows(number: int, count: int) -> list[Flow]:
    """Draw dataflows; the same for the same number."""
    drawn: list[Flow] = []

    @seed(number)
    @settings(
        max_examples=count + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(long_flows().filter(_travels))
    def draw(flow: Flow) -> None:
        drawn.append(flow)

    draw()
    return [flow.named(f"{at}: ") for at, flow in enumerate(drawn[1:])]  # the first is the simplest there is


def wide(rng: random.Random, parallelism: int) -> Flow:
    """Return a dataflow in which all of very many keys change at once, while others in the same stage rest."""
    keys = 6_000 * parallelism
    many = tuple(range(keys)) * 2
    few = tuple(range(20))
    steps: list[Step] = [
        _source("many", many),
        Step("key_distribute", "many-key", (0,), ("weight", "rendezvous")),
        Step("stateful_map", "many-count", (1,), "count"),
        Step("sink", "many-out", (2,), outputs=0, order=Order.BY_KEY),
        _source("few", few + few),
        Step("key_distribute", "few-key", (3,), ("weight", "rendezvous")),
        Step("stateful_map", "few-total", (4,), rng.choice(["total", "history", "tally"])),
        Step("key_distribute", "few-again", (5,), ("modulo", "rendezvous")),
        Step("stateful_op", "few-audit", (6,), "audit"),
        Step("sink", "few-out", (7,), outputs=0, order=Order.NONE),
    ]
    dataflow = Dataflow(tuple(steps), parallel=True, debug=False, movable=True)
    return Flow(dataflow, frozenset({"many-count", "few-total", "few-audit"}), frozenset())


def resting(rng: random.Random) -> Flow:
    """Return a dataflow whose states rest now and then, beside others that are read in each tick."""
    timed, read = rng.choice(["own", "sometimes", 0]), rng.choice(["audit", "flush", "roll", "tumble"])
    kept = rng.choice(["total", "count", "ticket", "history", "tally", "recent"])
    first, second = (tuple(rng.choices(range(12), k=rng.randint(10, 30))) for _ in range(2))
    steps: list[Step] = [
        _source("left", first),
        Step("assign_timestamps", "left-time", (0,), "bumpy"),
        Step("generate_epochs", "left-epochs", (1,), timed, 2),
        Step("key_distribute", "left-key", (2,), (rng.choice(["weight", "modulo"]), "rendezvous")),
        Step("stateful_map", "left-state", (4,), kept),
        Step("stateful_op", "left-read", (5,), read),
        Step("sink", "left-out", (6,), outputs=0, order=Order.BY_KEY),
        _source("right", second),
        Step("key_distribute", "right-key", (7,), ("weight", "rendezvous")),
        Step("stateful_map", "right-state", (8,), rng.choice(["total", "ticket", "distinct"])),
        Step("stateful_op", "right-audit", (9,), "audit"),
        Step("sink", "right-out", (10,), outputs=0, order=Order.BY_KEY),
        Step("sink", "left-late", (3,), outputs=0, order=Order.TOTAL),
    ]
    dataflow = Dataflow(tuple(steps), parallel=True, debug=False, movable=True)
    kept_states = {"left-state", "left-read", "right-state", "right-audit"}
    return Flow(dataflow, frozenset(kept_states), frozenset({"right-out"} if rng.random() < 0.5 else ()))


def _source(name: str, values: Sequence[Any]) -> Step:
    return Step("source", name, (), (Part(NoKey, tuple(values), tuple(range(len(values)))),))
