"""Keys that are fields of the values, compared with functions that read the same."""

from __future__ import annotations

import re
from collections import UserDict, defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, agg
from tests.conformance.dataflow import messages_of


class Order(NamedTuple):
    town: Any
    amount: int = 1


@dataclass(frozen=True)
class Visit:
    town: str


class Ending:
    @property
    def town(self) -> str:
        raise StopIteration


class Nested:
    @property
    def town(self) -> Any:
        missing: dict[str, Any] = {}
        return missing["inner"]


TOWNS = ["Ulm", "Bonn", 1, 1.0, True, ("a", 1), "Ulm"] * 5
KINDS: list[Any] = [
    lambda town: {"town": town},
    Order,
    lambda town: defaultdict(int, town=town),
    lambda town: MappingProxyType({"town": town}),
    lambda town: UserDict(town=town),
    Visit,
]


def keyed(values: list[Any], key: Any, runtime: Any = SingleThreadRuntime, method: str = "key_distribute") -> Any:
    messages = messages_of(runtime, values, lambda s: getattr(s, method)("town", key).aggregate("n", agg.count()))
    return sorted((str(it.key), it.value, it.timestamp) for it in messages)


def test_field_of_a_mapping_or_an_object(any_parallelism: Any) -> None:
    for values in ([{"town": town} for town in TOWNS], [Order(town) for town in TOWNS]):
        counts = keyed(values, "town", any_parallelism)
        assert [count for key, count, _ in counts if key == "Ulm"] == list(range(1, 11))
        assert sum(count == 15 for _, count, _ in counts) == 1  # 1 == 1.0 == True


@pytest.mark.parametrize("method", ["key_local", "key_distribute"])
@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), KINDS], ids=[*map(str, range(len(KINDS))), "mixed"])
def test_field_beside_a_function(method: str, kinds: list[Any]) -> None:
    values = [kinds[number % len(kinds)](town) for number, town in enumerate(TOWNS)]
    mappings = (dict, MappingProxyType, UserDict)
    function = lambda msg: msg.value["town"] if isinstance(msg.value, mappings) else msg.value.town  # noqa: E731
    assert keyed(values, "town", method=method) == keyed(values, function, method=method)


@pytest.mark.parametrize(
    ("value", "message", "note"),
    [
        ({"twn": 1}, "KeyError: 'town'", r"the value has no item 'town'; it has \['twn'\]; pass a function"),
        (("Ulm",), "AttributeError: 'tuple' object has no", "the value has no attribute 'town'; pass a function of"),
        (None, "AttributeError: 'NoneType' object has no", "the value has no attribute 'town'"),
        (Nested(), "KeyError: 'inner'; in Nested.town", None),
        (Ending(), "StopIteration; in Ending.town", None),
        (Order(None), "its key is invalid: None cannot be used as a key", None),
        (Order([1]), r"its key is invalid: \[1\] of type list has no stable hash", None),
    ],
)
def test_record_without_the_field(value: Any, message: str, note: str | None) -> None:
    values = [*map(Order, range(10_000)), value]
    with pytest.raises(OperatorError, match=f"operator 'town' failed at key .* timestamp 10000: {message}") as caught:
        keyed(values, "town")
    assert caught.value.value is value
    notes = getattr(caught.value.__cause__, "__notes__", [])
    assert len(notes) == (note is not None)
    if note is not None:
        assert re.match(note, notes[0])


def test_error_on_every_runtime(any_parallelism: Any) -> None:
    with pytest.raises(OperatorError, match=r"operator 'town' failed at key NoKey, .* timestamp 1: KeyError: 'town'"):
        keyed([{"town": "Ulm"}, {}], "town", any_parallelism)


def test_field_that_changes_when_it_is_read_again() -> None:
    class Changing:
        calls = 0

        @property
        def town(self) -> int:
            self.calls += 1
            return self.calls

    def debugging(build: Any) -> Any:
        return SingleThreadRuntime(build, debug=True)

    with pytest.raises(OperatorError, match="it returned key 1, and 2 when called again"):
        keyed([Changing()], "town", debugging)


def test_name_of_an_operator_with_a_field() -> None:
    for method in ("key_local", "key_distribute"):
        with pytest.raises(GraphError, match="an operator name must be a printable, non-blank string"):
            messages_of(SingleThreadRuntime, [], lambda s, method=method: getattr(s, method)("", "town"))
