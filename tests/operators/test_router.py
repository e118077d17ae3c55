"""The sending side of an exchange: its calls of the partitioner, and its cache."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.operators import routing
from malflow.operators.routing import Router
from malflow.partitioners import check_key, rendezvous_select
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

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
    choose, exchange = counting(asked), object()
    one, other = Router("exchange", choose, WORKERS, exchange), Router("exchange", choose, WORKERS, exchange)
    assert routed(one, 1, 2, 1) == {0: ["value 2"], 1: ["value 1", "value 1"]}
    assert routed(other, 2, 1, 3) == {0: ["value 2"], 1: ["value 1", "value 3"]}
    assert asked == [1, 2, 3]


@pytest.mark.parametrize("what", ["exchange", "workers"])
def test_other_exchanges_ask_for_themselves(what: str) -> None:
    asked: list[Any] = []
    choose, exchange = counting(asked), object()
    one = Router("exchange", choose, WORKERS, exchange)
    workers = range(3) if what == "workers" else WORKERS
    other = Router("exchange", choose, workers, object() if what == "exchange" else exchange)
    assert routed(one, 5) == {1: ["value 5"]}
    assert routed(other, 5) == {2 if what == "workers" else 1: ["value 5"]}
    assert asked == [5, 5]


class Picky:
    """A key whose __eq__ fails for objects of other classes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: Any) -> bool:
        return bool(self.number == other.number)

    def __hash__(self) -> int:
        return hash(self.number)

    def __stable_key__(self) -> int:
        return self.number


def test_keys_of_a_job_that_failed_are_not_compared_with_those_of_the_next() -> None:
    def run(key: Callable[[int], Any], value: Callable[[int], Any]) -> list[Any]:
        out: VecSink[Any, Any, Any] = VecSink()

        def build(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("n", SingleIteratorSource(range(4)))
            numbers.key_distribute("by", lambda msg: key(msg.value)).map("value", value).sink("out", out)

        SingleThreadRuntime(build, parallelism=3).execute()
        return sorted(out.values)

    with pytest.raises(OperatorError, match="ZeroDivisionError") as kept:
        run(Picky, lambda value: 1 // (value - 3))
    assert run(int, int) == [0, 1, 2, 3]
    assert kept.value is not None, "its traceback holds the operators of the first job"


@pytest.mark.slow
def test_cache_of_routes_is_bounded_and_belongs_to_its_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_CACHED_ROUTES", 3)
    asked: list[Any] = []
    choose = counting(asked)
    router = Router("exchange", choose, WORKERS, object())
    for key in (1, 2, 3, 4, 1):
        routed(router, key)
    assert asked == [1, 2, 3, 4, 1]
    forgotten = weakref.ref(choose)
    del router, choose
    gc.collect()
    assert forgotten() is None


class Twin:
    """A key that equals a number and lies elsewhere."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return self.number == getattr(other, "number", other)

    def __hash__(self) -> int:
        return hash(self.number)

    def __stable_key__(self) -> str:
        return f"twin {self.number}"


@pytest.mark.fault("E29")
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([int, Twin, lambda n: (n,), lambda n: (Twin(n),)]))))
def test_a_route_is_that_of_the_key_whatever_came_before(made: list[tuple[int, Callable[[int], Any]]]) -> None:
    router = Router("exchange", rendezvous_select, WORKERS, object())
    before: list[Any] = []
    for number, make in made:
        key = make(number)
        before.append(key)
        check_key(key)  # as the operator before the exchange does
        try:
            ((worker, _),) = router.route(Batch([key], [key], [0]))
        except OperatorError as error:
            assert "equals an earlier one" in str(error)  # noqa: PT017 - it need not come
            assert len({rendezvous_select(it, WORKERS) for it in before if it == key}) > 1
        else:
            assert worker == rendezvous_select(key, WORKERS)


@pytest.mark.fault("E29")
@pytest.mark.parametrize("twin_comes", [0, 1])
def test_an_object_that_equals_a_number_which_lies_elsewhere_is_refused(twin_comes: int) -> None:
    number = next(it for it in range(99) if rendezvous_select(it, WORKERS) != rendezvous_select(Twin(it), WORKERS))

    keys: list[Any] = [number]
    keys.insert(twin_comes, Twin(number))

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("n", SingleIteratorSource(keys))
        numbers.key_distribute("by", lambda msg: msg.value).sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"operator 'by' failed at key .*, of type \w+, equals an earlier one"):
        SingleThreadRuntime(build, parallelism=2).execute()


def test_a_partitioner_that_fails_names_the_record() -> None:
    def choose(key: Any, _workers: Sequence[int]) -> int:
        if key == 7:
            raise ValueError("not seven")
        return 0

    with pytest.raises(OperatorError, match=r"'exchange' failed at key 7, value 'value 7', timestamp 7.*not seven"):
        Router("exchange", choose, WORKERS, object()).route(batch_of(1, 2, 7, 3))
    with pytest.raises(OperatorError, match=r"key 1, .*returned 5; it must return one of \[0, 1\]"):
        Router("exchange", lambda _key, _workers: 5, WORKERS, object()).route(batch_of(1))
