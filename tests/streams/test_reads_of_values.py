"""A function of a message that reads only the value is called without key and timestamp, and nobody can see it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.callables import reads_only
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource


def in_branches(msg: Any) -> Any:
    try:
        return msg.value["a"]
    except KeyError:
        return str(msg.value) if msg.value else 0


def of_two(msg: Any, other: Any = 1) -> Any:
    return msg.value, other


def with_text(msg: Any) -> str:
    number = 1
    return f"{number} {msg.value}"


SURE: list[Callable[[Any], Any]] = [
    lambda msg: msg.value,
    lambda msg: msg.value["town"],
    lambda _msg: 3,
    in_branches,
    of_two,
    with_text,
]


def kept(msg: Any) -> Any:
    same = msg
    return same.value


def written(msg: Any) -> Any:
    msg.value = 3
    return msg.value


def replaced(msg: Any) -> Any:
    msg = (msg.timestamp,)
    return len(msg)


def removed(msg: Any) -> int:
    del msg
    return 1


def inner(msg: Any) -> Any:
    return max([1, 2], key=lambda number: msg.timestamp * number)


def in_a_pair(msg: Any) -> Any:
    number = 1
    return number, msg


def of_all(msg: Any) -> Any:
    return msg.value, locals()


def later(msg: Any) -> Any:
    yield msg.value


class Whole:
    def __call__(self, msg: Any) -> Any:
        return msg.value

    def method(self, msg: Any) -> Any:
        return msg.value, self


UNSURE: list[Callable[[Any], Any]] = [
    *(kept, written, replaced, removed, inner, in_a_pair, of_all, later),
    lambda msg: msg.key,
    lambda msg: (msg.value, msg.timestamp),
    lambda msg: [value for value in msg.value if value in msg.key],
    lambda *msgs: msgs[0].timestamp,
    functools.partial(kept),
    Whole(),
    Whole().method,
    len,
]


@pytest.mark.parametrize("function", SURE)
def test_a_function_that_reads_only_the_value(function: Any) -> None:
    assert reads_only(function, "value")


@pytest.mark.parametrize("function", UNSURE)
def test_a_function_that_may_see_more(function: Any) -> None:
    assert not reads_only(function, "value")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (lambda msg: msg.value % 2, [1, 0, 1]),
        (lambda msg: msg.timestamp, [0, 1, 2]),
        (lambda msg: msg.key, ["5", "6", "7"]),
        (lambda msg: (msg.value, kept(msg)), [(5, 5), (6, 6), (7, 7)]),
    ],
)
def test_functions_see_what_they_read(key: Any, expected: list[Any]) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([5, 6, 7]))
        numbers.key_local("texts", lambda msg: str(msg.value)).key_local("keys", key).sink("out", sink)

    SingleThreadRuntime(build).execute()
    assert [msg.key for msg in sink] == expected
    assert [(msg.value, msg.timestamp) for msg in sink] == [(5, 0), (6, 1), (7, 2)]
