"""Operators whose functions fail at bad records, after doing all the harm they can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from malflow import DataMessage, StatefulLogic
from malflow.failures import ErrorPolicy

__all__ = ["KINDS", "MARKED", "OPERATORS", "Item", "Left", "keyed", "timed"]


class Rude(Exception):
    """An exception whose text can't be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


KINDS: list[Callable[[], BaseException]] = [
    ValueError,
    StopIteration,
    lambda: KeyError("missing"),
    Rude,
    lambda: RecursionError("deep"),
    lambda: OSError("x" * 1_000_000),
    ArithmeticError,
]


class Left(list[int]):
    """The number of attempts that still fail: copies of a record share it, since an attempt may receive a copy."""

    def __init__(self, number: int) -> None:
        super().__init__([number])
        _COUNTED[id(self)] = self

    def __reduce__(self) -> Any:
        return _left, (id(self),)


_COUNTED: WeakValueDictionary[int, Left] = WeakValueDictionary()


def _left(number: int) -> Left:
    return _COUNTED[number]


@dataclass(frozen=True)
class Item:
    """A record: `fault` is the index of the exception that functions raise for it; None for a good one.

    With `left`, they raise it only for that many attempts; the number is counted down. Each failure leaves a mark in
    the record, which no later attempt, letter or output may show.
    """

    key: int
    number: int
    time: int
    fault: int | None = None
    left: Left | None = field(default=None, compare=False)
    marks: list[int] = field(default_factory=list, hash=False)


@dataclass(frozen=True)
class Sum:
    """A state that is frozen and immutable."""

    total: int = 0


MARKED: list[Item] = []
"""The records that a function has received with marks of an earlier attempt."""


def check(item: Item) -> Item:
    """Fail at a bad item."""
    if item.marks:
        MARKED.append(item)
    if item.fault is None or item.left == [0]:
        return item
    item.marks.append(item.number)
    if item.left is not None:
        item.left[0] -= 1
    raise KINDS[item.fault]()


def elements(item: Item) -> Any:
    """Yield an element before the failure."""
    yield item.number
    check(item)
    yield -item.number


async def number_of(item: Item) -> int:
    """Wait before the failure."""
    await asyncio.sleep(0)
    return check(item).number


def send_twice(message: Any, output: Any) -> None:
    """Send before the failure, and change the message."""
    item = message.value
    output.send(DataMessage(message.key, item.number, message.timestamp))
    message.value = message.key = None
    check(item)
    output.send(DataMessage(message.key or 0, -item.number, message.timestamp))


def to_an_output(message: Any, outputs: list[bool]) -> None:
    """Choose both outputs before the failure."""
    outputs[0] = outputs[1] = True
    outputs[check(message.value).number % 2] = False


def add(_key: Any, item: Item, total: int) -> Any:
    """Add to an immutable state."""
    check(item)
    total += item.number
    return total, total


def add_frozen(_key: Any, item: Item, held: Sum) -> Any:
    """Replace a frozen state."""
    check(item)
    held = replace(held, total=held.total + item.number)
    return held.total, held


def gather(_key: Any, item: Item, seen: list[Any]) -> Any:
    """Change a nested state before the failure; an emitted value holds the state's own list."""
    seen.append([item.number])
    seen[0].append(item.number)
    check(item)
    if len(seen) > 3:
        return "dropped", None
    return (seen[0], tuple(map(tuple, seen))), [list(part) for part in seen]


def collect(message: Any, seen: dict[str, list[int]], output: Any) -> Any:
    """Change the state and send before the failure."""
    item = message.value
    seen.setdefault("numbers", []).append(item.number)
    output.send(DataMessage(message.key, list(seen["numbers"]), message.timestamp))
    check(item)
    output.send(DataMessage(message.key, seen, message.timestamp))
    return seen if item.number % 3 else None


class Alarm(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sets, moves and drops timers before the failure; equal timers fire in the order in which they were set."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        """Set a timer."""
        item = msg.value
        if item.number % 3 == 0:
            output.sleep()
        output.wake(msg.timestamp + 1 + item.number % 4)
        state.append(item.number)
        check(item)
        return state if item.number % 5 else None

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        """Send which timer fired, and set the next one."""
        output.send(DataMessage(key, (key, at, list(state)), at))
        if len(state) % 2:
            output.wake(at + 2)
        return state


def remember(_key: Any, item: Item, time: Any, seen: Any) -> Any:
    """Change a map before the failure."""
    seen.insert(item.number % 3, [item.number], time + item.number % 5)
    if item.number % 2:
        seen.remove(0)
    known = sorted((key, seen.get(key)[0]) for key in seen)
    for key in seen:
        seen.get(key).append(item.number)
    check(item)
    return known, None if item.number % 7 == 0 else seen


def timed(stream: Any) -> Any:
    """Set timestamps and epochs."""
    return stream.event_time("time", "time", out_of_orderness=8)


def keyed(stream: Any) -> Any:
    """Set timestamps, epochs and keys."""
    return timed(stream).key_distribute("key", "key")


def _plain(stream: Any) -> Any:
    return stream


Apply = Callable[[Any, ErrorPolicy], Any]

_APPLIED: dict[str, Apply] = {
    "map": lambda stream, on_error: stream.map("it", lambda item: check(item).number, on_error=on_error),
    "map_with_key": lambda stream, on_error: stream.map_with_key(
        "it", lambda key, item: (key, check(item).number), on_error=on_error
    ),
    "filter": lambda stream, on_error: stream.filter("it", lambda item: check(item).number % 2, on_error=on_error),
    "filter_map": lambda stream, on_error: stream.filter_map(
        "it", lambda item: check(item).number % 2 or None, on_error=on_error
    ),
    "flat_map": lambda stream, on_error: stream.flat_map("it", elements, on_error=on_error),
    "map_async": lambda stream, on_error: stream.map_async("it", number_of, capacity=3, on_error=on_error),
    "map_async in threads": lambda stream, on_error: stream.map_async(
        "it", lambda item: check(item).number, threads=2, on_error=on_error
    ),
    "inspect": lambda stream, on_error: stream.inspect("it", lambda msg, ctx: check(msg.value), on_error=on_error),
    "stateless_op": lambda stream, on_error: stream.stateless_op("it", send_twice, on_error=on_error),
    "split": lambda stream, on_error: stream.split("it", to_an_output, 2, on_error=on_error)[1],
    "key_distribute": lambda stream, on_error: stream.key_distribute(
        "it", lambda msg: check(msg.value).key, on_error=on_error
    ),
    "key_local": lambda stream, on_error: stream.key_local("it", lambda msg: check(msg.value).key, on_error=on_error),
    "event_time": lambda stream, on_error: stream.event_time(
        "it", lambda msg: check(msg.value).time, out_of_orderness=1000, on_error=on_error
    ),
    "stateful_map": lambda stream, on_error: stream.stateful_map("it", add, int, on_error=on_error),
    "stateful_map of a frozen state": lambda stream, on_error: stream.stateful_map(
        "it", add_frozen, Sum, on_error=on_error
    ),
    "stateful_map of a nested state": lambda stream, on_error: stream.stateful_map(
        "it", gather, lambda: [[]], on_error=on_error
    ),
    "stateful_op": lambda stream, on_error: stream.stateful_op("it", collect, dict, on_error=on_error),
    "stateful_op with timers": lambda stream, on_error: stream.stateful_op("it", Alarm(), list, on_error=on_error),
    "ttl_map": lambda stream, on_error: stream.ttl_map("it", remember, on_error=on_error),
}

OPERATORS: dict[str, tuple[Callable[[Any], Any], Apply]] = {
    name: (keyed if name.startswith(("stateful", "ttl", "map_with")) else _plain, apply)
    for name, apply in _APPLIED.items()
}
"""The operators that can have a policy, each named ``it``, with a function that makes the stream that they need."""
