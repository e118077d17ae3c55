"""Drawn dataflows over a source that emits the same records as columns, as dicts, or as objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from malflow import MalflowError, SingleThreadRuntime, StreamProvider, agg
from malflow.columns import Column, Frame
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import counting, cumulating, session, sliding, tumbling

__all__ = ["Flow", "Form", "Record", "flows", "outcome", "scripts", "zoneless"]

Form = Literal["columns", "dicts", "objects"]


@dataclass
class Record:
    """A record as an object, with the fields of the dicts."""

    town: Any
    n: Any
    x: Any
    ts: Any
    flag: Any


TYPES = {"town": pa.string(), "n": pa.int64(), "x": pa.float64(), "ts": pa.int64(), "flag": pa.bool_()}

Script = dict[str, list[list[Record]]]
"""The polls of each part."""

_FLOATS = [0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 3.5, float("inf")]
_ODD = [float("nan"), None]
_TOWNS = ["Ulm", "Bonn", "Köln", "Kiel", ""]
_LARGE = [2**53 + 1, 2**62, -(2**62), 2**63 - 1]


@st.composite
def scripts(draw: Any) -> tuple[Script, bool]:
    """Draw what a source emits, and whether its timestamps are instants; some scripts have odd values."""
    odd = draw(st.integers(0, 5)) == 0
    numbers = st.integers(-5, 5) | st.sampled_from(_LARGE if odd else [7])
    floats = st.sampled_from(_FLOATS + (_ODD if odd else []))
    towns = st.sampled_from(_TOWNS + ([None] if draw(st.integers(0, 9)) == 0 else []))
    zoned = draw(st.booleans())
    script: Script = {}
    for part in ["a", "b", "c"][: draw(st.integers(1, 3))]:
        clock = draw(st.integers(0, 20))
        polls = []
        for _ in range(draw(st.integers(1, 4))):
            poll = []
            for _ in range(draw(st.integers(0, 12))):
                clock += draw(st.integers(-3, 6))
                stamp: Any = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=clock) if zoned else clock
                poll.append(Record(draw(towns), draw(numbers), draw(floats), stamp, draw(st.booleans())))
            polls.append(poll)
        script[part] = polls
    return script, zoned


class Source(StatefulSourceImpl[str, Any, Any, int]):
    """Emits the polls of a script in one form."""

    def __init__(self, script: Script, form: Form, *, zoned: bool, shared: bool) -> None:
        self.script, self.form, self.zoned, self.shared = script, form, zoned, shared

    def list_parts(self) -> list[str]:
        """Return the parts."""
        return [*self.script]

    def build_part(self, part: str, state: int | None) -> Reader:
        """Return a reader."""
        return Reader(self, self.script[part], state or 0)


class Reader(StatefulSourcePartition[Any, Any, int]):
    """Emits one poll after the other."""

    def __init__(self, source: Source, polls: Sequence[list[Record]], position: int) -> None:
        self._source, self._polls, self._position = source, polls, position

    def poll(self) -> Any:
        """Never called, since there is `poll_batch`."""
        raise NotImplementedError

    def poll_batch(self, limit: int) -> tuple[Any, Any]:
        """Return the next poll."""
        del limit
        if self._position == len(self._polls):
            return (), ()
        records, first = self._polls[self._position], 100 * self._position
        self._position += 1
        stamps = range(first, first + len(records))
        if self._source.form == "objects":
            return [Record(**vars(it)) for it in records], stamps
        if self._source.form == "dicts":
            return [dict(vars(it)) for it in records], stamps
        types = {**TYPES, "ts": pa.timestamp("us", "UTC")} if self._source.zoned else TYPES
        columns = {name: pa.array([getattr(it, name) for it in records], kind) for name, kind in types.items()}
        if self._source.shared:
            columns["town"] = columns["town"].dictionary_encode()
        return Frame(pa.record_batch(columns)), Column(pa.array(stamps, pa.int64())) if first % 200 else stamps

    def is_finished(self) -> bool:
        """Whether all polls were emitted."""
        return self._position == len(self._polls)

    def snapshot(self) -> int:
        """Return the number of polls."""
        return self._position


@dataclass(frozen=True)
class Flow:
    """A dataflow of operators by field."""

    every: int | None
    bound: int
    per_part: bool
    timed: bool
    key: str
    before: str
    after: str
    end: str
    aggregators: tuple[str, ...]
    guarded: bool


AGGREGATORS: dict[str, Callable[[], Any]] = {
    "count": agg.count,
    "count of a field": lambda: agg.count("flag"),
    "sum": lambda: agg.sum("n"),
    "sum of int": lambda: agg.sum("n", of=int),
    "sum of floats": lambda: agg.sum("x"),
    "min": lambda: agg.min("n"),
    "max": lambda: agg.max("n"),
    "min of floats": lambda: agg.min("x"),
    "max of floats": lambda: agg.max("x"),
    "max of texts": lambda: agg.max("town"),
    "mean": lambda: agg.mean("n"),
    "mean of floats": lambda: agg.mean("x"),
    "variance": lambda: agg.variance("x"),
    "stddev": lambda: agg.stddev("n"),
    "first": lambda: agg.first("n"),
    "last": lambda: agg.last("x"),
    "collect": lambda: agg.collect("n"),
    "distinct": lambda: agg.count_distinct("town"),
    "into": lambda: agg.into(dict, total=agg.sum("n"), mean=agg.mean("x")),
}

STEPS: dict[str, Callable[[Any, str], Any]] = {
    "none": lambda stream, name: stream,
    "filter": lambda stream, name: stream.filter(f"filter {name}", _is_flagged),
    "clones": lambda stream, name: stream.cloned(f"clones {name}", 2)[1],
    "union": lambda stream, name: stream.union(stream.cloned(f"both {name}", 2)[0], name=f"union {name}"),
    "copies": lambda stream, name: stream.map(f"copies {name}", _copied),
}


def _in_batches(stream: Any, name: str) -> Any:
    """Add functions that fail at some rows and drop others: of batches for columns, of records for others."""
    form, zoned = _FORM
    if form != "columns":
        mapped = stream.map(f"invert {name}", _inverted, on_error="skip")
        return mapped.filter(f"not two {name}", _is_not_two)
    schema = {**TYPES, "ts": pa.timestamp("us", "UTC")} if zoned else TYPES
    columns = stream.to_columns(f"columns {name}", schema=schema)
    mapped = columns.map_batches(f"invert {name}", _all_inverted, on_error="skip")
    return mapped.filter_batches(f"not two {name}", _are_not_two)


STEPS["batches"] = _in_batches

_FORM: list[Any] = ["dicts", False]
"""The form of the records in the flow that is built now, and whether their timestamps are instants."""


def _inverted(value: Any) -> Any:
    fields = dict(value) if isinstance(value, dict) else dict(vars(value))
    if fields["n"] == _FAILING:
        raise ValueError("three")
    fields["flag"] = not fields["flag"]
    return fields if isinstance(value, dict) else Record(**fields)


def _all_inverted(batch: Any) -> Any:
    if _FAILING in batch["n"].to_pylist():
        raise ValueError("three")
    at = batch.schema.get_field_index("flag")
    return batch.set_column(at, "flag", pc.invert(batch["flag"]))


_FAILING = 3


def _is_not_two(value: Any) -> bool:
    return bool((value["n"] if isinstance(value, dict) else value.n) != 2)


def _are_not_two(batch: Any) -> Any:
    return pc.not_equal(batch["n"], 2)


def _is_flagged(value: Any) -> bool:
    return bool(value["flag"] if isinstance(value, dict) else value.flag)


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else Record(**vars(value))


@st.composite
def flows(draw: Any) -> Flow:
    """Draw a dataflow."""
    return Flow(
        every=draw(st.none() | st.sampled_from([1, 3, 5])),
        bound=draw(st.integers(0, 4)),
        per_part=draw(st.booleans()),
        timed=draw(st.integers(0, 3)) > 0,
        key=draw(st.sampled_from(["town", "n", "flag", "function", "x"])),
        before=draw(st.sampled_from(sorted(STEPS))),
        after=draw(st.sampled_from(sorted(STEPS))),
        end=draw(st.sampled_from(["running", "tumbling", "tumbling", "sliding", "growing", "session", "counting"])),
        aggregators=tuple(draw(st.lists(st.sampled_from(sorted(AGGREGATORS)), min_size=1, max_size=3))),
        guarded=draw(st.integers(0, 4)) == 0,
    )


def build(flow: Flow, source: Any, zoned: bool, sinks: Sequence[Any]) -> Callable[[StreamProvider], None]:
    """Return the function that builds a dataflow."""
    second: Any = timedelta(seconds=1) if zoned and flow.timed else 1
    policy: Any = {"on_error": "skip"} if flow.guarded else {}

    def build_dataflow(provider: StreamProvider) -> None:
        stream: Any = STEPS[flow.before](provider.new_stream().source("source", source), "before")
        if flow.timed:
            stream = stream.assign_timestamps("stamps", "ts", **policy)
        every = None if flow.every is None else flow.every * second
        limit = {"out_of_orderness": flow.bound * second, "every": every}
        if flow.end not in ("running", "counting"):
            stream, late = _with_epochs(stream, flow, limit)
            late.sink("late", sinks[1])
        by = flow.key if flow.key != "function" else _town_of
        stream = STEPS[flow.after](stream.key_distribute("key", by, **policy), "after")
        aggregators = [AGGREGATORS[name]() for name in flow.aggregators]
        windows: Any = {
            "tumbling": tumbling(5 * second),
            "sliding": sliding(6 * second, 2 * second),
            "growing": cumulating(6 * second, 2 * second),
            "session": session(3 * second),
            "counting": counting(4, 2),
        }
        keyed = stream if flow.end == "running" else stream.window(windows[flow.end])
        keyed.aggregate("results", *aggregators).sink("results out", sinks[0])

    return build_dataflow


def _with_epochs(stream: Any, flow: Flow, limit: Any) -> tuple[Any, Any]:
    from malflow import limit_out_of_orderness  # noqa: PLC0415 - of this function alone

    generator = limit_out_of_orderness(limit["out_of_orderness"])
    per_part = flow.per_part and flow.before != "union"
    timed = stream.generate_epochs("epochs", generator, every=limit["every"], per_part=per_part)
    return timed.on_time, timed.late


def _town_of(msg: Any) -> Any:
    value = msg.value["town"] if isinstance(msg.value, dict) else msg.value.town
    return value or "none"


def outcome(flow: Flow, source: Source, *, workers: int, debug: bool = False, **options: Any) -> Any:
    """Run a dataflow; return all that came out, as text, or the error's text."""
    sinks = [VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()]
    _FORM[:] = source.form, source.zoned
    built = build(flow, StatefulSource(source), source.zoned, sinks)
    try:
        SingleThreadRuntime(built, parallelism=workers, debug=debug, **options).execute()
    except MalflowError as error:
        return zoneless(str(error))
    return [[_told(msg) for msg in sink] for sink in sinks]


def _told(msg: Any) -> tuple[str, str, str]:
    value = vars(msg.value) if isinstance(msg.value, Record) else msg.value
    return _text(msg.key), _text(value), _text(msg.timestamp)


def _text(thing: Any) -> str:
    """Return a text of types and bits. The zone UTC has several objects."""
    return zoneless(repr(thing))


def zoneless(text: str) -> str:
    """Return a text with one object for the zone UTC."""
    return text.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
