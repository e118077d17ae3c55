"""Every place where a dataflow calls user code, each with a trap in it.

A kind is a function that builds a dataflow around a trap; the operator that calls the trapped code is named "op". What
the dataflow totals is kept under "sum", so that nothing can be lost unseen.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from operator import eq, gt, le, lt, ne
from pathlib import Path
from typing import Any

from malflow import DataMessage, ExpireMap, StatefulLogic, StreamProvider
from malflow.sinks import JsonLinesSink, StatefulSink, StdOutSink, TextFileSink, VecSink
from malflow.sources import StatefulSource, TextFileSource
from malflow.testing import ScriptedSource
from malflow.testing.scripted import PAUSE, ScriptedPart

__all__ = ["KINDS", "RAISED", "Mute", "Trap"]

SIZE = 40
AT = 25
"""The value at which a trap springs."""

ITEMS = [item for number in range(SIZE) for item in ([number] if number % 10 else [PAUSE, number])]


class Mute(Exception):
    """An exception that can't be told."""

    def __str__(self) -> str:
        raise LookupError("it has no text")


RAISED: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (StopIteration, ValueError, Mute, GeneratorExit, KeyboardInterrupt, SystemExit)
}


class Trap:
    """Raises in user code, in any process, as long as it is armed.

    Args:
        folder: where it is noted whether it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._armed = folder / "armed"

    def arm(self, kind: str) -> None:
        """Arm it to raise an exception of this name."""
        self._armed.write_text(kind)

    def disarm(self) -> None:
        """Disarm it."""
        self._armed.unlink()

    def spring(self, value: Any = AT) -> Any:
        """Raise at the one value, and return the others."""
        if value == AT and os.path.exists(self._armed):  # noqa: PTH110 - called very often
            raise RAISED[self._armed.read_text()]
        return value


class Trapped:
    """A value of whose methods one is a trap; for all else it is its number."""

    def __init__(self, trap: Trap, number: int) -> None:
        self.trap = trap
        self.number = number

    def spring(self, answer: Any = None) -> Any:
        self.trap.spring(self.number)
        return self.number if answer is None else answer


COMPARISONS = {"__eq__": eq, "__ne__": ne, "__lt__": lt, "__le__": le, "__gt__": gt}


def comparing(compare: Callable[[int, int], bool]) -> Callable[[Any, Any], Any]:
    """Compare by number, numbers too; but nothing equals what is no such value."""

    def by_number(one: Any, other: Any) -> Any:
        comparable = isinstance(other, Trapped if compare in (eq, ne) else (Trapped, int))
        return compare(one.number, getattr(other, "number", other)) if comparable else NotImplemented

    return by_number


def springing(compare: Callable[[int, int], bool]) -> Callable[[Any, Any], Any]:
    """Compare likewise, after the trap."""
    return lambda one, other: comparing(compare)(one.spring(one), other)


METHODS: dict[str, dict[str, Any]] = {
    "": {},
    "key": {"__eq__": comparing(eq), "__hash__": lambda it: it.number, "__stable_key__": lambda it: it.number},
    "order": {"__hash__": lambda it: it.number, **{name: comparing(it) for name, it in COMPARISONS.items()}},
}
"""What values have besides the method that springs, by what they are for."""


@functools.cache
def trapped(method: str, methods: str = "") -> type[Trapped]:
    """Make a class of values that spring in one of their special methods.

    Args:
        method: that one.
        methods: what others they have: "key" or "order".
    """
    answers: dict[str, Callable[..., Any]] = {
        "__bool__": lambda self: self.spring(True),
        "__iter__": lambda self: iter([self.spring()]),
        "__str__": lambda self: str(self.spring()),
        "__repr__": lambda self: str(self.spring()),
        "__stable_key__": lambda self: self.spring(),
        "__hash__": lambda self: hash(self.spring()),
        **{name: springing(compare) for name, compare in COMPARISONS.items()},
    }
    others = {name: it for name, it in METHODS[methods].items() if name != method}
    return type(
        "Trapped",
        (Trapped,),
        {
            **others,
            method: answers[method],
            "__reduce__": lambda self: (again, (method, methods, self.trap, self.number)),
        },
    )


def again(method: str, methods: str, trap: Trap, number: int) -> Trapped:
    """Make a value of such a class."""
    return trapped(method, methods)(trap, number)


KINDS: dict[str, Callable[[StreamProvider, Trap], None]] = {}
"""By what is trapped, what builds the dataflow."""


def kind(build: Callable[[StreamProvider, Trap], None]) -> Callable[[StreamProvider, Trap], None]:
    KINDS[build.__name__] = build
    return build


def operator(name: str) -> Callable[[Callable[[Any, Trap], Any]], Callable[[Any, Trap], Any]]:
    """Note a kind that is an operator in the middle of a stream."""

    def note(apply: Callable[[Any, Trap], Any]) -> Callable[[Any, Trap], Any]:
        def build(provider: StreamProvider, trap: Trap) -> None:
            total(apply(numbers(provider), trap))

        KINDS[name] = build
        return apply

    return note


def numbers(provider: StreamProvider, name: str = "numbers") -> Any:
    return provider.new_stream().source(name, ScriptedSource(ITEMS))


def add(_key: Any, value: Any, total: int) -> tuple[int, int]:
    number = getattr(value, "number", value)
    return total + number, total + number


def total(stream: Any, sink: Any = None) -> None:
    keyed = stream.key_distribute("key", lambda msg: getattr(msg.value, "number", msg.value) % 3)
    keyed.stateful_map("sum", add, default=int).sink("out", VecSink() if sink is None else sink)


def keyed(stream: Any) -> Any:
    return stream.key_distribute("by", lambda msg: msg.value % 5)


def timed(stream: Any) -> Any:
    return stream.generate_epochs("now", lambda msg, _: msg.timestamp)[0]


# Functions of a value or a message

operator("mapper")(lambda s, trap: s.map("op", trap.spring))
operator("mapper with a key")(
    lambda s, trap: s.key_local("k", lambda m: 1).map_with_key("op", lambda k, v: trap.spring(v))
)
operator("predicate")(lambda s, trap: s.filter("op", lambda v: trap.spring(v) >= 0))
operator("truth of a predicate")(lambda s, trap: s.filter("op", functools.partial(trapped("__bool__"), trap)))
operator("filter_map")(lambda s, trap: s.filter_map("op", trap.spring))
operator("elements")(lambda s, trap: s.map("m", functools.partial(trapped("__iter__"), trap)).flatten("op"))
operator("generated elements")(lambda s, trap: s.map("m", lambda v: (trap.spring(i) for i in [v])).flatten("op"))
operator("inspector")(lambda s, trap: s.inspect("op", lambda msg, _: trap.spring(msg.value)))
operator("inspector of the frontier")(lambda s, trap: timed(s).inspect_frontier("op", lambda it, _: trap.spring(it)))
operator("key of a worker")(lambda s, trap: s.key_local("op", lambda msg: trap.spring(msg.value)))
operator("key function")(lambda s, trap: s.key_distribute("op", lambda msg: trap.spring(msg.value)))
operator("partitioner")(lambda s, trap: s.key_distribute("op", lambda m: m.value, lambda key, w: trap.spring(key) * 0))
operator("assigner")(lambda s, trap: timed(s.assign_timestamps("op", lambda msg: trap.spring(msg.value))))
operator("generator")(lambda s, trap: s.generate_epochs("op", lambda msg, _: trap.spring(msg.timestamp))[0])


@operator("function of stateless_op")
def _(stream: Any, trap: Trap) -> Any:
    def send(msg: Any, output: Any) -> None:
        output.send(DataMessage(msg.key, trap.spring(msg.value), msg.timestamp))

    return stream.stateless_op("op", send)


class Sending:
    def __init__(self, trap: Trap, hook: str) -> None:
        self.trap = trap
        self.hook = hook

    def on_data(self, msg: Any, output: Any) -> None:
        output.send(msg)
        if self.hook == "on_data":
            self.trap.spring(msg.value)

    def on_epoch(self, epoch: Any, output: Any) -> None:
        if self.hook == "on_epoch":
            self.trap.spring(epoch)


for hook in ("on_data", "on_epoch"):
    operator(f"{hook} of stateless_op")(lambda s, trap, hook=hook: timed(s).stateless_op("op", Sending(trap, hook)))


@operator("partitioner of a split")
def _(stream: Any, trap: Trap) -> Any:
    def both(msg: Any, outputs: list[bool]) -> None:
        trap.spring(msg.value)
        outputs[msg.value % 2] = True

    left, right = stream.split("op", both, 2)
    return left.union(right)


@operator("truth of a flag")
def _(stream: Any, trap: Trap) -> Any:
    def both(msg: Any, outputs: list[Any]) -> None:
        outputs[msg.value % 2] = trapped("__bool__")(trap, msg.value)

    left, right = stream.split("op", both, 2)
    return left.union(right)


for method in ("__stable_key__", "__eq__", "__hash__"):
    make = trapped(method, "key")

    @operator(f"{method} of keys")
    def _(stream: Any, trap: Trap, make: Any = make) -> Any:
        return stream.key_distribute("op", lambda msg: make(trap, min(msg.value, AT))).stateful_map(
            "keep", lambda k, v, n: (v, 1)
        )


for method in ("__ne__", "__gt__"):
    make = trapped(method, "order")

    @operator(f"{method} of timestamps")
    def _(stream: Any, trap: Trap, make: Any = make) -> Any:
        stamped = stream.assign_timestamps("stamp", lambda msg: make(trap, msg.value))
        on_time, late = stamped.generate_epochs("epochs", lambda msg, _: make(trap, msg.value))
        return on_time.union(late)


# Functions that keep a state

operator("mapper of states")(lambda s, trap: keyed(s).stateful_map("op", lambda k, v, n: (trap.spring(v), 1)))


@operator("default of stateful_map")
def _(stream: Any, trap: Trap) -> Any:
    return keyed(stream).stateful_map("op", lambda k, v, n: (v, None), default=trap.spring)


@operator("default of stateful_op")
def _(stream: Any, trap: Trap) -> Any:
    return keyed(stream).stateful_op("op", lambda msg, state, output: output.send(msg), default=trap.spring)


class Keeping(StatefulLogic[Any, Any, Any, Any, Any]):
    def __init__(self, trap: Trap, hook: str) -> None:
        self.trap = trap
        self.hook = hook

    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        output.send(msg)
        if self.hook == "on_data":
            self.trap.spring(msg.value)
        return int(msg.value)

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if self.hook == "on_epoch":
            self.trap.spring(epoch)

    def on_schedule(self, states: Any, output: Any) -> None:
        if self.hook == "on_schedule" and AT in states.values():
            self.trap.spring()


for hook in ("on_data", "on_epoch", "on_schedule"):
    operator(f"{hook} of stateful_op")(
        lambda s, trap, hook=hook: keyed(timed(s)).stateful_op("op", Keeping(trap, hook))
    )


@operator("mapper of ttl_map")
def _(stream: Any, trap: Trap) -> Any:
    def mapper(key: Any, value: Any, timestamp: Any, seen: ExpireMap[Any, Any, Any]) -> Any:
        seen.insert(value, 1, timestamp + 3)
        return trap.spring(value), seen

    return keyed(timed(stream)).ttl_map("op", mapper)


for method in ("__eq__", "__lt__", "__le__"):
    make = trapped(method, "order")

    @operator(f"{method} of expiries")
    def _(stream: Any, trap: Trap, make: Any = make) -> Any:
        def mapper(key: Any, value: Any, timestamp: Any, seen: ExpireMap[Any, Any, Any]) -> Any:
            seen.insert(value, 1, make(trap, value + SIZE // 2))
            return value, seen

        return keyed(timed(stream)).ttl_map("op", mapper)


class Unwritable:
    """A state that springs when it is written."""

    def __init__(self, trap: Trap, number: int) -> None:
        self.trap = trap
        self.number = number

    def __reduce__(self) -> Any:
        self.trap.spring(self.number)
        return Unwritable, (self.trap, self.number)


@operator("pickling of a state")
def _(stream: Any, trap: Trap) -> Any:
    return keyed(stream).stateful_map("op", lambda k, v, n: (v, Unwritable(trap, v)))


@operator("migrate")
def _(stream: Any, trap: Trap) -> Any:
    def migrate(state: Any, version: int) -> Any:
        return trap.spring() and state

    version = 1 + (trap.folder / "again").exists()
    return keyed(stream).stateful_map("op", lambda k, v, n: (v, 1), version=version, migrate=migrate)


# Sources


class Parts(ScriptedSource):
    """A source with a trap in one of its methods."""

    def __init__(self, trap: Trap, method: str) -> None:
        super().__init__({"a": ITEMS})
        self.trap = trap
        self.method = method

    def list_parts(self) -> Any:
        if self.method == "list_parts":
            self.trap.spring()
        return super().list_parts()

    def build_part(self, part: Any, state: Any) -> Any:
        if self.method == "build_part":
            self.trap.spring()
        inner = super().build_part(part, state)
        return Polled(self, inner) if self.method == "poll" else Part(self, inner)


class Polled:
    """A reader that is asked for one record at a time."""

    def __init__(self, source: Parts, inner: ScriptedPart) -> None:
        self.source = source
        self.inner = inner

    def poll(self) -> Any:
        record = self.inner.poll()
        return record and (self.trapped("poll", record[0]), record[1])

    def is_finished(self) -> bool:
        return bool(self.trapped("is_finished", AT if self.inner.is_finished() else 0)) and self.inner.is_finished()

    def snapshot(self) -> int:
        self.trapped("snapshot", AT)
        return self.inner.snapshot()

    def suspend(self) -> None:
        self.trapped("suspend", AT)

    def trapped(self, method: str, value: Any) -> Any:
        return self.source.trap.spring(value) if method == self.source.method else value


class Part(Polled):
    def poll_batch(self, limit: int) -> Any:
        values, timestamps = self.inner.poll_batch(limit)
        return [self.trapped("poll_batch", value) for value in values], timestamps


for method in ("list_parts", "build_part", "poll", "poll_batch", "is_finished", "snapshot", "suspend"):

    def read(provider: StreamProvider, trap: Trap, method: str = method) -> None:
        total(provider.new_stream().source("op", StatefulSource(Parts(trap, method))))

    KINDS[f"{method} of a source"] = read


@kind
def on_error(provider: StreamProvider, trap: Trap) -> None:
    path = trap.folder / "lines.txt"
    path.write_bytes(b"1\n2\n\xff\n4\n")
    source = TextFileSource(str(path), on_error=lambda bad: trap.spring())
    total(provider.new_stream().source("op", source).map("int", int))


# Sinks


class Sink(VecSink[Any, Any, Any]):
    """A sink with a trap in one of its methods."""

    def __init__(self, trap: Trap, method: str) -> None:
        super().__init__()
        self.trap = trap
        self.method = method

    def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
        if self.method == "sink_batch":
            for value in values:
                self.trap.spring(value)
        super().sink_batch(keys, values, timestamps)

    def flush(self) -> None:
        if self.method == "flush":
            self.trap.spring()

    def close(self) -> None:
        if self.method == "close":
            self.trap.spring()

    def snapshot(self) -> int:
        if self.method == "snapshot":
            self.trap.spring()
        return len(self)


class Single(Sink):
    def sink(self, msg: Any) -> None:
        self.trap.spring(msg.value)


class Local(Sink):
    on_driver = False


class Pages:
    """A sink of parts, with a trap in one of its methods."""

    def __init__(self, trap: Trap, method: str) -> None:
        self.trap = trap
        self.method = method

    def assign_part(self, msg: Any) -> int:
        return int(self.trap.spring(msg.value) if self.method == "assign_part" else msg.value) % 2

    def build_part(self, part: Any, state: Any) -> Any:
        if self.method == "build_part":
            self.trap.spring()
        return Sink(self.trap, self.method)


def into(sink_of: Callable[[Trap], Any]) -> Callable[[StreamProvider, Trap], None]:
    """Build a dataflow that writes to a sink beside the totals."""

    def build(provider: StreamProvider, trap: Trap) -> None:
        stream = numbers(provider)
        stream.sink("op", sink_of(trap))
        total(stream)

    return build


KINDS["sink"] = into(lambda trap: Single(trap, "sink"))
for method in ("sink_batch", "flush", "close"):
    KINDS[f"{method} of a sink"] = into(lambda trap, method=method: Sink(trap, method))
    KINDS[f"{method} of a sink of a process"] = into(lambda trap, method=method: Local(trap, method))
for method in ("assign_part", "build_part", "sink_batch", "flush", "snapshot", "close"):
    KINDS[f"{method} of a sink of parts"] = into(lambda trap, method=method: StatefulSink(Pages(trap, method)))
KINDS["formatter of text"] = into(
    lambda trap: TextFileSink(trap.folder / "out", formatter=lambda msg: trap.spring(msg.value))
)
KINDS["formatter of JSON"] = into(
    lambda trap: JsonLinesSink(trap.folder / "out", formatter=lambda msg: trap.spring(msg.value))
)


@kind
def str_of_values(provider: StreamProvider, trap: Trap) -> None:
    stream = numbers(provider)
    stream.map("wrap", functools.partial(trapped("__str__"), trap)).sink("op", TextFileSink(trap.folder / "out"))
    total(stream)


@kind
def repr_of_values(provider: StreamProvider, trap: Trap) -> None:
    stream = numbers(provider)
    stream.map("wrap", functools.partial(trapped("__repr__"), trap)).sink("op", StdOutSink())
    total(stream)
