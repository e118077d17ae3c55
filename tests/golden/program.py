"""The dataflow whose snapshots are kept for ever: it has every kind of state, and keys and states of many types.

It must not change: its results are in the golden files.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

from malflow import MAX, MIN, DataMessage, NoKey, StreamProvider
from malflow.operators.ttl import ExpireMap
from malflow.sinks import StatefulSink
from malflow.snapshot import MsgpackCodec
from malflow.snapshot.codecs.contract import Codec, PickleCodec
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed

__all__ = ["CODECS", "DROP", "VALUES", "Colour", "Pair", "Reading", "build_dataflow", "events"]

DROP = "drop the key"


@dataclass
class Reading:
    """A class of a program."""

    sensor: str
    values: list[float] = field(default_factory=list)


class Pair(NamedTuple):
    """Another."""

    left: Any
    right: Any


class Colour(Enum):
    """A third."""

    RED = "red"
    GREEN = "green"


CODECS: Mapping[str, Codec] = {
    "pickle": PickleCodec(),
    "msgpack": MsgpackCodec({"reading": Reading, "pair": Pair, "colour": Colour}),
}

VALUES: Mapping[Any, Any] = {
    "": "the empty key",
    "é": "\u00e9 \ud83d\ude00 \0 \n",
    "e\u0301": {"another": "form"},
    0: 0,
    -7: -1,
    2**70: 2**80,
    1.5: float("inf"),
    b"bytes": b"\x00\xff",
    ("a", 1): ("a", (1, ("nested", None))),
    ("a", 2): [1, [2, [3, {}]]],
    "bool": True,
    "float": -0.1,
    "complex": 1 - 2j,
    "bytearray": bytearray(b"ab"),
    "dict": {"a": {1: [None, False]}, ("b", 2): b""},
    "set": {1, "a", (2, 3)},
    "frozenset": frozenset({1, 2}),
    "deque": deque([1, 2, 3], maxlen=5),
    "counter": Counter("abracadabra"),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    "naive": datetime(2026, 1, 2),
    "timedelta": timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.10"),
    "fraction": Fraction(1, 3),
    "uuid": UUID(int=2**127 + 1),
    "dataclass": Reading("north", [1.0, 2.5]),
    "namedtuple": Pair(1, Pair("in", ["ner"])),
    "enum": Colour.GREEN,
    "ends of time": (MIN, MAX),
    "no key": NoKey,
    "message": DataMessage("a", 1, 5),
    "text of a kilobyte": "malflow " * 128,
}


def events() -> ScriptedSource:
    """Return the source: it ends twice, to be restarted, and then for good.

    The values come in two ticks, in two parts; then single keys change, one a tick.
    """
    values = list(VALUES.items())
    first: list[Any] = [Timed(value, 10) for value in values[::2]]
    second: list[Any] = [Timed(value, 20) for value in values[1::2]]
    changes: list[Any] = []
    for tick in range(12):
        changes += [PAUSE, Timed(("changing", tick), 30 + tick), Timed((f"gone {tick}", tick), 30 + tick)]
        if tick:
            changes.append(Timed((f"gone {tick - 1}", DROP), 30 + tick))
    early = [PAUSE, Timed(("dropped and set again", DROP), 50), PAUSE, Timed(("dropped and set again", 2), 51)]
    tail = [Timed(("changing", 99), 60), Timed(("", "not empty"), 61), Timed(("gone 11", DROP), 62)]
    return ScriptedSource(
        {
            "x": [*first, Timed(("dropped and set again", 1), 10), *changes, END, *early, END, *tail],
            "y": [*second, END, Timed(("y", "the second run"), 52), END, Timed(("y", "the last run"), 63)],
        }
    )


class Parts:
    """A sink in parts, which counts what each has got.

    Attributes:
        written: the counts, by part.
    """

    def __init__(self) -> None:
        self.written: dict[str, int] = {}

    def assign_part(self, msg: DataMessage[Any, Any, Any]) -> str:
        return type(msg.key).__name__

    def build_part(self, part: str, state: int | None) -> Part:
        self.written[part] = state or 0
        return Part(self.written, part)


class Part:
    """One of them."""

    def __init__(self, written: dict[str, int], part: str) -> None:
        self._written = written
        self._part = part

    def sink(self, _: DataMessage[Any, Any, Any]) -> None:
        self._written[self._part] += 1

    def snapshot(self) -> int:
        return self._written[self._part]


def latest(_key: Any, value: Any, _state: Any) -> tuple[Any, Any]:
    """Keep the last value of each key."""
    return value[1], None if value[1] == DROP else value[1]


def count(msg: DataMessage[Any, Any, Any], state: int, output: Any) -> int:
    """Count the records of each kind."""
    output.send(msg)
    return state + 1


def remember(_key: Any, value: Any, timestamp: int, seen: ExpireMap[Any, Any, int]) -> tuple[Any, Any]:
    """Keep each record for fifteen units of time."""
    seen.insert(str(value[0]), value[1], timestamp + 15)
    return value, seen


def build_dataflow(
    provider: StreamProvider, source: ScriptedSource, sink: Parts, on_change: Callable[[], object] = lambda: None
) -> None:
    """Build it: a source with parts, stateful operators of each kind, epochs, exchanges, unions, a sink with parts.

    Args:
        provider: makes streams.
        source: gives the events.
        sink: counts.
        on_change: called when a key changes that changes in every tick.
    """
    stream = provider.new_stream().source("events", StatefulSource(source))
    stream = stream.inspect("changing", lambda msg, _: on_change() if msg.value[0] == "changing" else None)
    by_key = stream.key_distribute("by key", lambda msg: msg.value[0]).stateful_map("latest", latest)
    by_kind = stream.key_distribute("by kind", lambda msg: type(msg.value[1]).__name__)
    counted = by_kind.stateful_op("count", count, default=int)
    timed, late = stream.assign_timestamps("time", lambda msg: msg.timestamp).generate_epochs(
        "epochs", lambda msg, _: msg.timestamp - 5
    )
    recent = timed.union(late).key_distribute("by part", lambda msg: msg.key).ttl_map("recent", remember)
    by_key.union(counted, recent).sink("written", StatefulSink(sink))
