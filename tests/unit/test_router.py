"""The sending side of an exchange: whom it asks, how often, and what it remembers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from malflow import OperatorError
from malflow.batch import Batch
from malflow.operators import routing
from malflow.operators.routing import Router

WORKERS = range(2)


def counting(asked: list[Any]) -> Callable[[Any, Sequence[int]], int]:
    def choose(key: Any, workers: Sequence[int]) -> int:
        asked.append(key)
        return workers[key % len(workers)]

    return choose


def batch_of(*keys: int) -> Batch:
    return Batch(list(keys), [f"value {key}" for key in keys], list(keys))


def routed(router: Router, *keys: int) -> dict[int, list[Any]]:
    return {worker: list(part.values) for worker, part in router.route(batch_of(*keys))}


def test_each_key_is_asked_for_once_by_all_workers_of_an_exchange() -> None:
    asked: list[Any] = []
    choose = counting(asked)
    one, other = Router("exchange", choose, WORKERS), Router("exchange", choose, WORKERS)
    assert routed(one, 1, 2, 1) == {0: ["value 2"], 1: ["value 1", "value 1"]}
    assert routed(other, 2, 1, 3) == {0: ["value 2"], 1: ["value 1", "value 3"]}
    assert asked == [1, 2, 3]


@pytest.mark.parametrize("what", ["name", "partitioner", "workers"])
def test_other_exchanges_ask_for_themselves(what: str) -> None:
    asked: list[Any] = []
    choose = counting(asked)
    one = Router("exchange", choose, WORKERS)
    name, partitioner = ("other" if what == "name" else "exchange"), (counting(asked) if what[0] == "p" else choose)
    other = Router(name, partitioner, range(3) if what == "workers" else WORKERS)
    assert routed(one, 5) == {1: ["value 5"]}
    assert routed(other, 5) == {2 if what == "workers" else 1: ["value 5"]}
    assert asked == [5, 5]


def test_what_is_remembered_is_bounded_and_goes_with_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_CACHED_ROUTES", 3)
    asked: list[Any] = []
    choose = counting(asked)
    router = Router("exchange", choose, WORKERS)
    for key in (1, 2, 3, 4, 1):
        routed(router, key)
    assert asked == [1, 2, 3, 4, 1]
    forgotten = weakref.ref(choose)
    del router, choose
    gc.collect()
    assert forgotten() is None


def test_a_partitioner_that_fails_names_the_record() -> None:
    def choose(key: Any, _workers: Sequence[int]) -> int:
        if key == 7:
            raise ValueError("not seven")
        return 0

    with pytest.raises(OperatorError, match=r"'exchange' failed at key 7, value 'value 7', timestamp 7.*not seven"):
        Router("exchange", choose, WORKERS).route(batch_of(1, 2, 7, 3))
    with pytest.raises(OperatorError, match=r"key 1, .*answered 5; it must answer one of \[0, 1\]"):
        Router("exchange", lambda _key, _workers: 5, WORKERS).route(batch_of(1))
