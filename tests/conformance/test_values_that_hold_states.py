"""A value that is emitted with the state in it stays as it was, whatever later records do to the state."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from malflow import MAX, DataMessage, SingleThreadRuntime, StatefulLogic
from tests.conformance.dataflow import values_of

Pair = namedtuple("Pair", "user pages")


@dataclass
class Held:
    """A class of the user's."""

    user: str
    pages: list[int]


@dataclass(frozen=True, slots=True)
class FrozenHeld:
    """A class of the user's without a `__dict__`."""

    user: str
    pages: list[int]


class Plain:
    """A class of the user's that is no dataclass."""

    def __init__(self, user: str, pages: list[int]) -> None:
        self.user, self.pages = user, pages


HOLDERS: dict[str, Callable[[str, list[int]], Any]] = {
    "dict": lambda user, pages: {"user": user, "pages": pages},
    "list": lambda user, pages: [user, pages],
    "tuple": lambda user, pages: (user, pages),
    "named tuple": Pair,
    "dataclass": Held,
    "frozen dataclass": FrozenHeld,
    "object": Plain,
}

GROWN = [[0], [0, 1], [0, 1, 2]]


def pages_of(value: Any) -> Any:
    if isinstance(value, dict):
        return value["pages"]
    return value[1] if isinstance(value, (list, tuple)) else value.pages


def grown(build: Callable[[Any], Any], runtime: Any = SingleThreadRuntime) -> list[Any]:
    """Return the pages of the values that an operator emits for three records of one key."""
    return [pages_of(it) for it in values_of(runtime, range(3), lambda s: build(s.key_distribute("all", lambda _: 0)))]


def test_on_any_runtime(any_parallelism: Any) -> None:
    def mapper(_key: Any, page: int, pages: list[int]) -> Any:
        return {"user": "ann", "pages": pages.append(page) or pages}, pages

    assert grown(lambda s: s.stateful_map("m", mapper, list), any_parallelism) == GROWN


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_a_mapped_value_that_holds_the_state(holder: Any, on_error: Any) -> None:
    def mapper(_key: Any, page: int, pages: list[int]) -> Any:
        pages.append(page)
        return holder("ann", pages), pages

    assert grown(lambda s: s.stateful_map("m", mapper, list, on_error=on_error)) == GROWN


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_value_that_holds_a_field_of_the_state(on_error: Any) -> None:
    def mapper(_key: Any, page: int, held: Held) -> Any:
        held.pages.append(page)
        return {"user": held.user, "pages": held.pages}, held

    assert grown(lambda s: s.stateful_map("m", mapper, lambda: Held("ann", []), on_error=on_error)) == GROWN


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_message_that_holds_the_state(on_error: Any, is_new: bool) -> None:
    def logic(msg: Any, pages: Any, output: Any) -> Any:
        pages = [*pages] if is_new else pages  # with a new list, what was sent is a state only from now on
        pages.append(msg.value)
        output.send(DataMessage(msg.key, {"pages": pages}, msg.timestamp))
        return pages

    assert grown(lambda s: s.stateful_op("o", logic, list, on_error=on_error)) == GROWN


class Timed(StatefulLogic[Any, Any, Any, Any, Any]):
    """Emits its state when a timer fires, and changes it later."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        if not state:
            output.wake(msg.timestamp + 0.5)
        state.append(msg.value)
        return state

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        output.send(DataMessage(key, {"pages": state}, at))
        output.wake(at + 1)
        return state


class AtEpochs(StatefulLogic[Any, Any, Any, Any, Any]):
    """Emits all states at each epoch, and changes them later."""

    def on_data(self, msg: Any, state: Any, _output: Any) -> Any:
        state.append(msg.value)
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key, state in states.items() if epoch is not MAX else ():
            output.send(DataMessage(key, {"pages": state}, epoch))


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(("logic", "expected"), [(Timed, [[0, 1], [0, 1, 2], [0, 1, 2]]), (AtEpochs, GROWN)])
def test_a_message_of_a_timer_or_an_epoch(logic: Any, expected: Any, on_error: Any) -> None:
    def build(keyed: Any) -> Any:
        on_time, _ = keyed.generate_epochs("e", lambda msg, _: msg.timestamp)
        return on_time.stateful_op("o", logic(), list, on_error=on_error)

    assert grown(build) == expected


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emits", ["entry", "holder", "map"])
def test_a_value_that_holds_an_entry_of_an_expire_map(emits: str, on_error: Any) -> None:
    def mapper(_key: Any, page: int, time: Any, entries: Any) -> Any:
        pages = entries.get("ann") or []
        pages.append(page)
        entries.insert("ann", pages, time + 100)
        value = {"entry": [0, pages], "holder": {"pages": pages}, "map": {"pages": entries}}
        return value[emits], entries

    found = grown(lambda s: s.ttl_map("t", mapper, on_error=on_error))
    assert [it.get("ann") if emits == "map" else it for it in found] == GROWN
