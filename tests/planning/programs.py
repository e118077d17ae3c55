"""Programs as data: two versions of a job can be generated, and the second corrected fault by fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from malflow import ExpireMap, Stream, StreamProvider, agg
from malflow.sinks import StatelessSink, TextFileSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from malflow.windows import session, tumbling
from tests.kit.evolving import module

ITEMS = [*range(1, 8)]
FIELDS = ("count", "total")
"""The field of a class before and after an edit."""


@dataclass(frozen=True)
class Op:
    """An operator with keyed state.

    Attributes:
        name: its name.
        kind: the method that adds it.
        key: how its keys are placed: ``slots``, ``modulo`` or ``local``.
        version: the version of its state.
        migrate: ``none``, ``good``, ``drops`` or ``bad``.
        size: the size of its windows.
        total: whether it sums, rather than counts.
        held: the class of its states, and whether it has been edited; None for numbers.
    """

    name: str
    kind: str
    key: str = "slots"
    version: int = 1
    migrate: str = "none"
    size: int = 3
    total: bool = False
    held: tuple[str, int] | None = None


@dataclass(frozen=True)
class Program:
    """A program and its start options.

    Attributes:
        ops: its operators.
        source: the name of its source.
        sink: the name of its sink, a file.
        parallelism: the number of workers.
        renamed: new names by old ones.
        dropped: the names of operators whose states may be dropped.
    """

    ops: tuple[Op, ...]
    source: str = "source"
    sink: str = "file"
    parallelism: int = 1
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Its start options."""
        return {
            "parallelism": self.parallelism,
            "renamed": dict(self.renamed),
            "allow_dropped_state": [*self.dropped],
        }

    def builder(self, folder: Path) -> Callable[[StreamProvider], None]:
        """Return a function that builds it, with its output in a file in this folder."""
        texts = [f"@dataclass\nclass {it.held[0]}:\n    {FIELDS[it.held[1]]}: int = 0" for it in self.ops if it.held]

        def build_dataflow(provider: StreamProvider) -> None:
            classes = module("\n".join(texts), "a_planned_job")
            items = provider.new_stream().source(self.source, StatefulSource(ScriptedSource(ITEMS)))
            timed = items.event_time("time", _value, out_of_orderness=0)
            for op in self.ops:
                _add(timed, op, classes)
            timed.sink(self.sink, StatelessSink(TextFileSink(str(folder / f"{self.sink}.txt"))))

        return build_dataflow

    def with_op(self, name: str, /, **changes: Any) -> Program:
        """Return the program with another definition of an operator."""
        return replace(self, ops=tuple(replace(it, **changes) if it.name == name else it for it in self.ops))


def _value(msg: Any) -> int:
    return int(msg.value)


def _key(msg: Any) -> int:
    return int(msg.value) % 3


def modulo(key: int, workers: Sequence[int]) -> int:
    return workers[key % len(workers)]


def _add(stream: Stream[Any, Any, Any], op: Op, classes: ModuleType) -> None:
    by: Any = {
        "slots": lambda: stream.key_distribute(f"key of {op.name}", _key),
        "modulo": lambda: stream.key_distribute(f"key of {op.name}", _key, modulo),
        "local": lambda: stream.key_local(f"key of {op.name}", _key),
    }[op.key]()
    versioned: dict[str, Any] = {"version": op.version, "migrate": _migration(op)}
    match op.kind:
        case "stateful_map":
            default = int if op.held is None else getattr(classes, op.held[0])
            by.stateful_map(op.name, _updated, default=default, **versioned)
        case "stateful_op":
            by.stateful_op(op.name, _counted, default=int, **versioned)
        case "ttl_map":
            by.ttl_map(op.name, _expiring, **versioned)
        case "window":
            by.window(tumbling(op.size)).aggregate(op.name, agg.sum() if op.total else agg.count(), **versioned)
        case "session":
            by.window(session(op.size)).aggregate(op.name, agg.sum() if op.total else agg.count(), **versioned)
        case "distinct":
            by.distinct(op.name, within=op.size, version=op.version)
        case "letters":
            by.map(op.name, _failing, on_error="dead_letter")


def _updated(_key: int, value: int, state: Any) -> tuple[int, Any]:
    return value, state if not isinstance(state, int) else state + 1


def _counted(_msg: Any, state: int, _output: Any) -> int:
    return state + 1


def _expiring(_key: int, value: int, at: int, states: ExpireMap[Any, Any, int]) -> tuple[int, Any]:
    states.insert("last", value, at + 100)
    return value, states


def _failing(value: int) -> int:
    if value % 3 == 0:
        raise ValueError(f"{value} is not good")
    return value


def _bad(_state: Any, version: int) -> Any:
    raise ValueError(f"no way from version {version}")


def _dropping(_state: Any, _version: int) -> None:
    return None


def _same(state: Any, _version: int) -> Any:
    return state


def _migration(op: Op) -> Any:
    return {"none": None, "good": _same, "drops": _dropping, "bad": _bad}[op.migrate]


NAMES = ["a", "b", "c", "d"]
KINDS = ["stateful_map", "stateful_op", "ttl_map", "window", "session", "distinct", "letters"]


@st.composite
def ops(draw: Any, name: str, *, is_first: bool = True) -> Op:
    kind = draw(st.sampled_from(KINDS))
    held = draw(st.sampled_from([None, (f"Held_{name}", 0)])) if kind == "stateful_map" and is_first else None
    return Op(
        name,
        kind,
        draw(st.sampled_from(["slots", "slots", "modulo", "local"])),
        draw(st.integers(1, 2)),
        "good",
        draw(st.integers(2, 4)),
        draw(st.booleans()),
        held,
    )


@st.composite
def pairs(draw: Any) -> tuple[Program, Program]:
    """Generate a program and an edited version of it."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    before = Program(tuple(draw(ops(name)) for name in names), parallelism=draw(st.integers(1, 2)))
    after = before
    for _ in range(draw(st.integers(0, 4))):
        after = draw(_changed(before, after))
    return before, after


_CHANGES = ["name", "kind", "version", "size", "total", "key", "held", "gone", "new", "other"]


@st.composite
def _changed(draw: Any, before: Program, program: Program) -> Program:
    change, names = draw(st.sampled_from(_CHANGES)), [it.name for it in program.ops]
    if change == "new" and (free := [it for it in NAMES if it not in names]):
        return replace(program, ops=(*program.ops, draw(ops(draw(st.sampled_from(free)), is_first=False))))
    changed: Program = draw(_other_options(before, program) if change == "other" or not names else _op(change, program))
    return changed


@st.composite
def _op(draw: Any, change: str, program: Program) -> Program:
    names = [it.name for it in program.ops]
    name = draw(st.sampled_from(names))
    op = next(it for it in program.ops if it.name == name)
    match change:
        case "name":
            free = [it for it in NAMES if it not in names] or [name]
            new = draw(st.sampled_from(free))
            renamed = {**program.renamed, name: new} if draw(st.booleans()) else program.renamed
            return replace(program.with_op(name, name=new), renamed=renamed)
        case "gone":
            dropped = (*program.dropped, name) if draw(st.booleans()) else program.dropped
            return replace(program, ops=tuple(it for it in program.ops if it.name != name), dropped=dropped)
        case "kind":
            return program.with_op(name, kind=draw(st.sampled_from(KINDS)), held=None)
        case "version":
            migrate = draw(st.sampled_from(["none", "good", "drops", "bad"]))
            return program.with_op(name, version=draw(st.integers(1, 3)), migrate=migrate)
        case "size":
            return program.with_op(name, size=draw(st.integers(2, 4)))
        case "total":
            return program.with_op(name, total=not op.total)
        case "key":
            return program.with_op(name, key=draw(st.sampled_from(["slots", "modulo", "local"])))
        case _:
            return program if op.held is None else program.with_op(name, held=(op.held[0], 1))


@st.composite
def _other_options(draw: Any, before: Program, program: Program) -> Program:
    match draw(st.sampled_from(["parallelism", "renamed", "dropped", "source", "sink"])):
        case "parallelism":
            return replace(program, parallelism=draw(st.integers(1, 3)))
        case "renamed":
            old = draw(st.sampled_from([*NAMES, before.source]))
            return replace(program, renamed={**program.renamed, old: draw(st.sampled_from([*NAMES, "e"]))})
        case "dropped":
            return replace(program, dropped=(*program.dropped, draw(st.sampled_from([*NAMES, before.source]))))
        case "source":
            return replace(program, source=draw(st.sampled_from(["source", "input"])))
        case _:
            return replace(program, sink=draw(st.sampled_from(["file", "output"])))
