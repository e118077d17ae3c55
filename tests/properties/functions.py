"""The user functions of the random dataflows: total over every value, and free of hidden state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from math import ceil
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from malflow import MAX, DataMessage, index_select, rendezvous_select
from malflow.lookups import LookupTable
from malflow.partitioners import stable_hash
from malflow.windows import Windows, counting, session, sliding, tumbling
from tests.properties.script import new, of_script

Function = Callable[..., Any]

FAR = 1000
"""Stands for the timestamp `MAX` where a function computes with it; beyond all other timestamps."""


def weight(value: Any) -> int:
    """Return a number for any value, equal for equal values."""
    if isinstance(value, (list, tuple, set)):
        return 1 + sum(map(weight, value))
    if isinstance(value, dict):
        return 1 + sum(weight(item) for item in value.items())
    return len(value) if isinstance(value, str) else abs(int(value)) if isinstance(value, (int, float)) else 0


def instant(timestamp: Any) -> int:
    return FAR if timestamp is MAX else ceil(timestamp)


def later(timestamp: Any, by: int) -> Any:
    return timestamp if timestamp is MAX else timestamp + by


def elements(value: Any) -> Any:
    """Make something iterable of any value, with an order that is the value's alone."""
    if isinstance(value, (set, dict)):
        return tuple(sorted(value)) if isinstance(value, set) else tuple(sorted(value.items()))
    if isinstance(value, str):
        return tuple(value)
    return value if isinstance(value, (list, tuple)) else range(weight(value) % 4)


def generated(value: Any) -> Any:
    """Yield the elements of any value, and the value itself."""
    yield from elements(value)
    yield value


def is_refused(value: Any) -> bool:
    """Whether a sink that refuses some values refuses this one."""
    return weight(value) % 5 == 2


def mutate(value: Any) -> Any:
    """Change a list in place, as only the owner of a value may."""
    if isinstance(value, list):
        value.append("m")
    return value


def thaw(entries: Any) -> tuple[Any, ...]:
    return tuple(sorted((key, entries.get(key)) for key in entries))


def fragile(value: Any) -> Any:
    """Damage a list and fail, now and then; show the damage that an earlier attempt has done."""
    if isinstance(value, list):
        if "damage" in value:
            return "damaged"
        if weight(value) % 3 == 1:
            value.append("damage")
            raise ValueError("fragile")
    return [weight(value)]


def fragile_history(_: Any, value: Any, state: Any) -> Any:
    """Change the state and the value before a failure; emit a value that holds the state."""
    state.append(weight(value))
    return {"last": fragile(value), "all": state}, state if len(state) < 5 else None


MAPS: dict[str, Function] = {
    "tag": lambda value: ("t", value),
    "wrap": lambda value: [value],
    "weigh": weight,
    "relist": lambda value: [weight(value), "x"],
    "pair": lambda value: (value, value),
    "mutate": mutate,
    "elements": elements,
    "thaw": thaw,
}

FLAT_MAPS: dict[str, Function] = {
    "none": lambda value: [],
    "self": lambda value: [value],
    "elements": elements,
    "generated": generated,
}

PREDICATES: dict[str, Function] = {
    "odd": lambda value: weight(value) % 2,
    "most": lambda value: weight(value) % 5 != 1,
    "none": lambda _: False,
}

# not the key itself: which of several equal ones a record has depends on the order between streams
KEYED_MAPS: dict[str, Callable[[Any, Any], Any]] = {
    "key and weight": lambda key, value: [stable_hash(key) % 97, weight(value)],
    "swap": lambda key, value: (value, stable_hash(key) % 97),
}


FILTER_MAPS: dict[str, Function] = {
    "halve": lambda value: weight(value) // 2 if weight(value) % 3 else None,
    "lists": lambda value: value if isinstance(value, list) else None,
    "truth": lambda value: (False if weight(value) % 2 else "") if weight(value) % 4 else None,
}


# Keys: groups of equal keys, of which the timestamp chooses one

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

EQUAL_KEYS: tuple[tuple[Any, ...], ...] = (
    (1, True, 1.0, Decimal(1), Decimal("1.00")),
    ("a",),
    (0, False, 0.0, -0.0, Decimal(0)),
    ((1, "a"), (True, "a"), (1.0, "a"), (Decimal(1), "a")),
    (Decimal("0.5"), 0.5),
    ("b",),
    (2**70, float(2**70), Decimal(2**70)),
    (-1, -1.0),
    ((),),
    (b"a", np.bytes_(b"a")),
    (7, np.int64(7), np.uint8(7), np.float32(7), np.float64(7)),
    ("ab", np.str_("ab")),
    (NOON, NOON.astimezone(ZoneInfo("Europe/Berlin")), pd.Timestamp(NOON), pd.Timestamp(NOON).tz_convert("Asia/Tokyo")),
    (NOON.replace(tzinfo=None), np.datetime64("2026-03-01T12:00:00", "us"), pd.Timestamp("2026-03-01T12:00")),
    (timedelta(hours=1), pd.Timedelta(1, "h"), np.timedelta64(3_600_000_000, "us")),
    ((NOON, "a"), (pd.Timestamp(NOON), np.str_("a"))),
)


def _mixed(groups: int) -> Function:
    def key(msg: Any) -> Any:
        equal = EQUAL_KEYS[weight(msg.value) % groups]
        return equal[instant(msg.timestamp) % len(equal)]

    return key


def _color(value: Any) -> Any:
    return list(of_script("Color"))[weight(value) % 3]


KEYS: dict[str, Function] = {
    "two": _mixed(2),
    "mixed": _mixed(len(EQUAL_KEYS)),
    "modulo": lambda msg: weight(msg.value) % 5,
    "weight": lambda msg: weight(msg.value),
    "constant": lambda _: "all",
    "place": lambda msg: of_script("Place")(weight(msg.value) % 4, _color(msg.value)),
    "color": lambda msg: _color(msg.value),
    "tag": lambda msg: of_script("Tag")(weight(msg.value) % 5),
    "same": lambda msg: msg.key,
}


def _whole(key: Any) -> int:
    is_span = isinstance(key, np.timedelta64)  # which is an integer too
    return int(key) if isinstance(key, (int, float, Decimal, np.number)) and not is_span else 0


PARTITIONERS: dict[str, Function] = {
    "rendezvous": rendezvous_select,
    "index": lambda key, workers: index_select(_whole(key), workers),
    "last": lambda _, workers: workers[-1],
}


def _alternate(msg: Any, outputs: list[bool]) -> None:
    outputs[weight(msg.value) % len(outputs)] = True


def _some(msg: Any, outputs: list[bool]) -> None:
    for index in range(len(outputs)):
        outputs[index] = bool(weight(msg.value) >> index & 1)


SPLITS: dict[str, Function] = {"alternate": _alternate, "some": _some}


# Time

ASSIGNERS: dict[str, Function] = {
    "weight": lambda msg: weight(msg.value) % 20,
    "double": lambda msg: instant(msg.timestamp) * 2,
    "bumpy": lambda msg: instant(msg.timestamp) + weight(msg.value) % 7 - 3,
    "halves": lambda msg: (instant(msg.timestamp) + weight(msg.value) % 4) / 2,
    "unsigned": lambda msg: np.uint16((instant(msg.timestamp) + weight(msg.value) % 3) % FAR),
    "short": lambda msg: np.int8((instant(msg.timestamp) + weight(msg.value) % 3) % 100),
    "single": lambda msg: np.float32(instant(msg.timestamp) + weight(msg.value) % 4) / 2,
}

WINDOWS: dict[str, Windows] = {
    "tumbling": tumbling(10),
    "sliding": sliding(9, 4, offset=1),
    "apart": sliding(3, 5),
    "session": session(4),
    "counting": counting(2),
    "overlapping": counting(3, 2),
}

EARLY: dict[str, tuple[Windows, int]] = {
    "tumbling": (tumbling(12), 4),
    "sliding": (sliding(9, 4, offset=1), 2),
    "apart": (sliding(4, 5), 3),
}
"""Windows, and the distance of their early results."""

LATE: dict[str, tuple[Windows, int]] = {
    "tumbling": (tumbling(10), 0),
    "sliding": (sliding(9, 4, offset=1), 0),
    "apart": (sliding(3, 5), 0),
    "revised": (tumbling(6), 7),
}
"""Windows, and for how long they are kept for late records after they are over."""

INTERVALS: dict[str, tuple[int, int]] = {"near": (2, 3), "after": (-1, 6), "before": (5, 0), "equal": (0, 0)}


def row_of(value: Any) -> int | None:
    """Return the row of a table; None for about a quarter of all values."""
    return weight(value) % 4 or None


def group_of(row: int) -> str:
    """Return the group of a row."""
    return "odd" if row % 2 else "even"


def reference_of(row: int) -> Any:
    """Return the key that a row refers to, among those of `KEYS`; None for one of three rows."""
    return (None, True, "a")[row % 3]


def row_of_key(key: Any) -> int | None:
    """Return the one row that a key ever has; None for about a third of all keys."""
    return stable_hash(key) % 3 or None


class Outside(LookupTable[int, str]):
    """A table outside of the dataflow, whose rows are a function of the key."""

    def get_many(self, keys: Sequence[int], /) -> dict[int, str]:
        assert keys
        assert len(set(keys)) == len(keys)
        return {key: row for key in keys if (row := self.row(key)) is not None}

    @staticmethod
    def row(key: int) -> str | None:
        return f"row {key}" if key % 3 else None


def outside_key(value: Any) -> int:
    return weight(value) % 7


TOLERANCES: dict[str, int | None] = {"any": None, "near": 4, "equal": 0}

GENERATORS: dict[str, Function] = {
    "never": lambda msg, previous: None,
    "distant": lambda msg, previous: later(msg.timestamp, -10 * FAR),
    "own": lambda msg, previous: None if msg.timestamp is MAX else msg.timestamp,
    "sometimes": lambda msg, previous: None if msg.timestamp is MAX or weight(msg.value) % 3 else msg.timestamp,
    "back": lambda msg, previous: None if msg.timestamp is MAX else msg.timestamp - weight(msg.value) % 5,
    "ahead": lambda msg, previous: None if msg.timestamp is MAX else msg.timestamp + 5 * (weight(msg.value) % 4 == 1),
    "onward": lambda msg, previous: 0 if previous is None else later(previous, 1),
}
"""Beside these there is `limit_out_of_orderness`, under the name of its bound."""


# Logics: one object serves one dataflow, so these are made anew for each


class Repeat:
    """Send each message 0 to 2 times, later and later, changing the message in between."""

    def on_data(self, msg: Any, output: Any) -> None:
        value = msg.value
        for index in range(weight(value) % 3):
            msg.value = (index, value)
            msg.timestamp = later(msg.timestamp, index)
            output.send(msg)


class Twice:
    """Send each message twice."""

    def on_data(self, msg: Any, output: Any) -> None:
        output.send(msg)
        output.send(msg)


class Hold:
    """Hold messages back until an epoch comes."""

    def __init__(self) -> None:
        self._held: list[DataMessage[Any, Any, Any]] = []

    def on_data(self, msg: Any, output: Any) -> None:
        self._held.append(msg)
        if weight(msg.value) % 4 == 0:
            output.send(DataMessage(msg.key, len(self._held), msg.timestamp))

    def on_epoch(self, epoch: Any, output: Any) -> None:
        if epoch is MAX:  # which idle workers see at any time
            return
        for msg in self._held:
            output.send(msg)
        self._held.clear()


class Announce:
    """Pass messages and announce epochs, under the key of the last message."""

    def __init__(self) -> None:
        self._keys: list[Any] = []

    def on_data(self, msg: Any, output: Any) -> None:
        self._keys = [msg.key]
        output.send(msg)

    def on_epoch(self, epoch: Any, output: Any) -> None:
        if epoch is not MAX:
            for key in self._keys:
                output.send(DataMessage(key, instant(epoch), epoch))


STATELESS_OPS: dict[str, Function] = {"repeat": Repeat, "twice": Twice, "hold": Hold, "announce": Announce}


# State


class Ticket:
    """A drawn number. All are equal for the interpreter; those of one key in one run must have one number.

    Attributes:
        owner: the operator and the key that it was drawn for.
        number: drawn, so that no two tickets have the same.
    """

    def __init__(self, operator: str, key: Any) -> None:
        self.owner = operator, key
        self.number = uuid4().int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticket)

    def __hash__(self) -> int:
        return 0

    def __deepcopy__(self, memo: Any) -> Ticket:
        return self


@dataclass(frozen=True)
class Stateful:
    """A function or a maker of logics, and the default state that goes with it."""

    make: Function
    default: Function | None = None


def _previous(_: Any, value: Any, state: Any) -> Any:
    return state, value


def _count(_: Any, value: Any, state: Any) -> Any:
    del value
    return (state or 0) + 1, (state or 0) + 1


def ticket(operator: str, key: Any, value: Any, state: Any) -> Any:
    """Draw a ticket for a key when it is seen first, and send it with each value."""
    ticket = Ticket(operator, key) if state is None else state
    return (ticket, value), ticket


def _history(_: Any, value: Any, state: Any) -> Any:
    state.append(value)
    return state, state if len(state) < 5 else None


def _distinct(_: Any, value: Any, state: Any) -> Any:
    state.add(weight(value) % 8)
    return state, state


def _tally(_: Any, value: Any, state: Any) -> Any:
    state[weight(value) % 3] = state.get(weight(value) % 3, 0) + 1
    return state, state


def _nested(_: Any, value: Any, state: Any) -> Any:
    state.setdefault(weight(value) % 2, []).append(weight(value))
    return state, state if weight(state) < 60 else None


def _rows(_: Any, value: Any, state: Any) -> Any:
    """Change a list within the state."""
    if not state or len(state[-1]) > 2:
        state.append([])
    state[-1].append(weight(value))
    return state, state if len(state) < 4 else None


def _forget(_: Any, value: Any, state: Any) -> Any:
    return state + weight(value), state + weight(value) if weight(value) % 3 else None


def _recent(_: Any, value: Any, state: Any) -> Any:
    return (state or ()), (*(state or ()), weight(value))[-3:]


def _swap(_: Any, value: Any, state: Any) -> Any:
    return state, [value]


def _absorb(_: Any, value: Any, state: Any) -> Any:
    """Keep an input list, and continue to change it: it is the operator's own."""
    if state is not None:
        state.append(0)
    return (0 if state is None else len(state)), value if isinstance(value, list) else state


@dataclass
class Seen:
    """A state of a class of the test's own, with a list in it."""

    weights: list[int] = field(default_factory=list)
    total: int = 0


def _seen_inside(_: Any, value: Any, state: Any) -> Any:
    """Emit a list that a state of a class holds."""
    state.weights.append(weight(value))
    state.total += weight(value)
    return {"total": state.total, "weights": state.weights}, state if len(state.weights) < 6 else None


def _held(_: Any, value: Any, state: Any) -> Any:
    """Emit a value that holds the state."""
    state.append(weight(value))
    return {"last": weight(value), "all": state}, state if len(state) < 5 else None


def _boxed(_: Any, value: Any, state: Any) -> Any:
    state[weight(value) % 3] = weight(value)
    return [weight(value), state], state


def _paired(_: Any, value: Any, state: Any) -> Any:
    """Emit a part of a state that is a tuple."""
    number, weights = state
    weights.append(weight(value))
    return (number, weights), (number + 1, weights) if number < 4 else None


def _cart(_: Any, value: Any, state: Any) -> Any:
    """Emit a value that holds a state of a class of the script."""
    cart = state.add(weight(value))
    return {"cart": cart, "heaviest": max(cart.items)}, cart if len(cart.items) < 5 else None


def _meter(_: Any, value: Any, state: Any) -> Any:
    state.total += weight(value)
    state.colors.add(_color(value))
    return (state.total, len(state.colors)), state


STATEFUL_MAPS: dict[str, Stateful] = {
    "cart": Stateful(_cart, partial(new, "Cart")),
    "meter": Stateful(_meter, partial(new, "Meter")),
    "seen inside": Stateful(_seen_inside, Seen),
    "held": Stateful(_held, list),
    "boxed": Stateful(_boxed, dict),
    "paired": Stateful(_paired, lambda: (0, [])),
    "total": Stateful(lambda key, value, state: (state + weight(value), state + weight(value)), int),
    "count": Stateful(_count),
    "previous": Stateful(_previous),
    "forget": Stateful(_forget, int),
    "recent": Stateful(_recent),
    "ticket": Stateful(partial(ticket, "")),
    "history": Stateful(_history, list),
    "distinct": Stateful(_distinct, set),
    "tally": Stateful(_tally, dict),
    "nested": Stateful(_nested, dict),
    "rows": Stateful(_rows, list),
    "swap": Stateful(_swap, list),
    "absorb": Stateful(_absorb),
}


def _show(msg: Any, state: Any, output: Any) -> Any:
    """Send the state itself, change it, and send it again."""
    state.append(msg.value)
    output.send(DataMessage(msg.key, state, msg.timestamp))
    state.append("x")
    if weight(msg.value) % 3 == 0:
        output.send(DataMessage(msg.key, state, later(msg.timestamp, 1)))
    return state if len(state) < 6 else None


def _fan(msg: Any, state: Any, output: Any) -> Any:
    for index in range(weight(msg.value) % 3):
        state += 1
        output.send(DataMessage(msg.key, (index, state), msg.timestamp))
    return state if state % 5 else None


def _triples(msg: Any, state: Any, output: Any) -> Any:
    state.append(msg.value)
    if len(state) < 3:
        return state
    output.send(DataMessage(msg.key, state, msg.timestamp))
    return None


def _renew(msg: Any, state: Any, output: Any) -> Any:
    """Send what becomes the state, now and then; otherwise change the state in place."""
    if weight(msg.value) % 3 and state:
        state.append(weight(msg.value))
        output.send(DataMessage(msg.key, len(state), msg.timestamp))
        return state
    renewed = [msg.value]
    output.send(DataMessage(msg.key, renewed, msg.timestamp))
    return renewed


class Clock:
    """Send with each message how many epochs have come since the first message of its key."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.send(DataMessage(msg.key, (state, msg.value), msg.timestamp))
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        del epoch, output
        for key in states:
            states[key] += 1


class Flush:
    """At each epoch, send and drop what has come since the one before, in an order of its own."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        state.append(weight(msg.value))
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in list(states):
            output.send(DataMessage(key, tuple(sorted(states.pop(key))), epoch))


class Roll:
    """At each epoch, send the states themselves and empty them in place; drop those that stay empty."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        state.append(msg.value)
        if len(state) > 2:
            output.send(DataMessage(msg.key, len(state), msg.timestamp))
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key, state in list(states.items()):
            if not state:
                del states[key]
                continue
            output.send(DataMessage(key, state, epoch))
            state.clear()


class Decay:
    """Send the state at each message; shorten it in place at each epoch."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        state.append(weight(msg.value))
        output.send(DataMessage(msg.key, state, msg.timestamp))
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        del epoch, output
        for key in list(states):
            states[key] = states[key][1:]
        for state in states.values():
            del state[3:]


class Tumble:
    """Windows of five instants, each sent when an epoch reaches its last."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        state.setdefault(instant(msg.timestamp) // 5, []).append(weight(msg.value))
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key, windows in list(states.items()):
            for window in sorted(windows):
                if 5 * window + 4 <= epoch:
                    output.send(DataMessage(key, tuple(sorted(windows.pop(window))), 5 * window + 4))
            if not windows:
                del states[key]


class Final:
    """Send one sum per key at the end."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        return state + weight(msg.value)

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if epoch is MAX:
            for key, state in states.items():
                output.send(DataMessage(key, state, epoch))


class Folded:
    """Fold the changes of a table, each of which begins with the row before it; send the rows at the end."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        before, after = msg.value
        if before != state or before == after:
            raise ValueError(f"the row is {state!r}, and the change is {msg.value!r}")
        return after

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if epoch is MAX:
            for key, row in states.items():
                output.send(DataMessage(key, row, epoch))


class Alarm:
    """Set a timer by each message, or drop it; send the state when it fires, and set it again now and then."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        found = weight(msg.value)
        if found % 7 == 6:
            return None
        if found % 5 == 4:
            output.sleep()
        else:
            output.wake(msg.timestamp + 1 + found % 6)
        return state + found

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        output.send(DataMessage(key, (at, state), at))
        if state % 3 == 1:
            output.wake(at + 4)
        return None if state % 3 == 2 else state + 1


class Audit:
    """Pass messages and count them; look at all states after each tick, and change none."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.send(msg)
        return state + 1

    def on_schedule(self, states: Any, output: Any) -> None:
        del output
        for _ in states.items():
            pass


def _show_inside(msg: Any, state: Any, output: Any) -> Any:
    """Send a value that holds the state, change the state, and send it again."""
    state.append(weight(msg.value))
    output.send(DataMessage(msg.key, {"state": state}, msg.timestamp))
    state.append(-1)
    output.send(DataMessage(msg.key, ("again", state), msg.timestamp))
    return state if len(state) < 7 else None


STATEFUL_OPS: dict[str, Stateful] = {
    "show inside": Stateful(lambda: _show_inside, list),
    "show": Stateful(lambda: _show, list),
    "fan": Stateful(lambda: _fan, int),
    "triples": Stateful(lambda: _triples, list),
    "renew": Stateful(lambda: _renew),
    "clock": Stateful(Clock, int),
    "flush": Stateful(Flush, list),
    "roll": Stateful(Roll, list),
    "decay": Stateful(Decay, list),
    "tumble": Stateful(Tumble, dict),
    "final": Stateful(Final, int),
    "alarm": Stateful(Alarm, int),
    "audit": Stateful(Audit, int),
}


class Sides:
    """Add up each side of two streams, whose own order is specified; send the sum of the side."""

    def on_left(self, msg: Any, state: Any, output: Any) -> Any:
        return self._added(0, msg, state, output)

    def on_right(self, msg: Any, state: Any, output: Any) -> Any:
        return self._added(1, msg, state, output)

    def _added(self, side: int, msg: Any, state: Any, output: Any) -> Any:
        state[side] += weight(msg.value)
        output.send(DataMessage(msg.key, (side, state[side]), msg.timestamp))
        return state


class FinalSides:
    """Send the sums of both sides at the end."""

    def on_left(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        return state[0] + weight(msg.value), state[1]

    def on_right(self, msg: Any, state: Any, output: Any) -> Any:
        del output
        return state[0], state[1] + weight(msg.value)

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if epoch is MAX:
            for key, state in states.items():
                output.send(DataMessage(key, state, epoch))


CONNECTS: dict[str, Stateful] = {
    "sides": Stateful(Sides, lambda: [0, 0]),
    "final": Stateful(FinalSides, lambda: (0, 0)),
}


def _seen(_: Any, value: Any, timestamp: Any, entries: Any) -> Any:
    return entries.insert(weight(value) % 3, weight(value), later(timestamp, weight(value) % 7 - 2)), entries


def _sizes(_: Any, value: Any, timestamp: Any, entries: Any) -> Any:
    if weight(value) % 4 == 3:
        entries.remove(weight(value) % 3)
    before = entries.get(0, "none"), len(entries)
    entries.insert(weight(value) % 3, weight(value), later(timestamp, 9 - 2 * (weight(value) % 5)))
    return before, entries if weight(value) % 5 else None


def _entries(_: Any, value: Any, timestamp: Any, entries: Any) -> Any:
    """Emit the state itself; a map has to follow that makes a tuple of it."""
    entries.insert(weight(value) % 6, weight(value), later(timestamp, 8 - 4 * (weight(value) % 4)))
    return entries, entries


def _brief(_: Any, value: Any, timestamp: Any, entries: Any) -> Any:
    """Keep an entry that may have expired already: it stays until the next epoch."""
    return entries.insert("last", weight(value), later(timestamp, weight(value) % 2 - 3)), entries


TTL_MAPS: dict[str, Function] = {"seen": _seen, "brief": _brief, "sizes": _sizes, "entries": _entries}
