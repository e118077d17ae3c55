"""Rows that all workers have: their order, who may change them, mistakes, restarts and rescales."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, connect
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters, diff_state, read_state, snapshots
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.streams.stream import StreamProvider
from malflow.testing import END, PAUSE, ScriptedSource, assert_exactly_once
from malflow.testing.driven import DrivenRun
from tests.kit.driving import compiled
from tests.kit.ticking import WholeTicks

Item = Any
"""A number, which is a record; a pair of a key and a row; or `PAUSE`."""


def flow_of(source: Any, joiner: Any, sink: Any, *, keyed: bool = False, **options: Any) -> Callable[[Any], None]:
    """Return a dataflow that joins numbers with the rows of pairs."""

    def build(provider: Any) -> None:
        items = provider.new_stream().source("items", source)
        rows = items.filter("rows", lambda it: isinstance(it, tuple)).key_distribute(
            "row key", lambda msg: msg.value[0]
        )
        rows = rows.map("row", lambda it: it[1])
        records = items.filter("numbers", lambda it: not isinstance(it, tuple))
        if keyed:
            records = records.key_distribute("key", lambda msg: msg.value)
        records.join_broadcast("joined", rows, joiner, **options).sink("out", sink)

    return build


def joined(items: list[Item], joiner: Any, **options: Any) -> list[Any]:
    """Return the results of a join; a tick has all items up to a pause."""
    sink: VecSink[Any, Any, Any] = VecSink()
    run = {name: options.pop(name) for name in ("parallelism", "debug") if name in options}
    source = StatefulSource(WholeTicks(ticks_of(items)))
    SingleThreadRuntime(flow_of(source, joiner, sink, **options), **run).execute()
    return sink.values


def ticks_of(items: list[Item]) -> list[list[Item]]:
    """Return the items of each tick."""
    ticks: list[list[Item]] = [[]]
    for it in items:
        if it is PAUSE:
            ticks.append([])
        else:
            ticks[-1].append(it)
    return ticks


def shown(value: Any, rows: Any) -> Any:
    """Return the value and all rows."""
    return value, tuple(sorted(rows.items()))


def test_of_a_tick_the_rows_come_first() -> None:
    assert joined([1, ("a", 1), 2, ("a", 2), PAUSE, 3], shown) == [(it, (("a", 2),)) for it in (1, 2, 3)]


def model(items: list[Item]) -> list[Any]:
    """Return the results, tick by tick: the rows of a tick, then its records."""
    rows: dict[str, Any] = {}
    found: list[Any] = []
    for tick in ticks_of(items):
        rows.update(dict(it for it in tick if isinstance(it, tuple)))
        known = tuple(sorted((key, row) for key, row in rows.items() if row is not None))
        found += [(it, known) for it in tick if not isinstance(it, tuple)]
    return found


ITEMS = st.lists(
    st.one_of(
        st.integers(1, 9),
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3))),
        st.just(PAUSE),
    ),
    max_size=25,
)


@given(items=ITEMS, keyed=st.booleans(), parallelism=st.integers(1, 3))
@pytest.mark.slow
def test_records_see_the_rows_of_their_tick_and_before(items: Any, keyed: bool, parallelism: int) -> None:
    found = joined(items, shown, keyed=keyed, parallelism=parallelism)
    assert sorted(found) == sorted(model(items))


@given(items=ITEMS, rescales=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=3))
@pytest.mark.slow
def test_all_workers_have_the_same_rows_after_any_rescale(items: Any, rescales: Any) -> None:
    graph = Graph()
    flow_of(StatefulSource(ScriptedSource(items)), shown, VecSink(), keyed=True)(StreamProvider(graph))
    with DrivenRun(compile_graph(graph), parallelism=2) as run:
        run.open()
        for ticks, workers in [*rescales, (99, 3)]:
            for _ in range(ticks):
                if not run.is_finished:
                    run.tick()
            run.rescale(workers)
            held = [list(state.items()) for (_, name), state in run.states().items() if name == "joined"]
            assert len(held) == workers
            assert all(it == held[0] for it in held)
            assert [it.worker for it in run.deltas(whole=True) if it.name == "joined"] == [0]


def _assign(value: Any, rows: Any) -> Any:
    return rows.__setitem__("a", value)


def _drop(value: Any, rows: Any) -> Any:
    return rows.pop("a")


def _append(value: Any, rows: Any) -> Any:
    rows["a"]["limits"].append(value)
    return value


@pytest.mark.parametrize("joiner", [_drop, _append, _assign])
def test_a_joiner_that_changes_rows_fails(joiner: Any) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'joined' failed at .*value 5.*rows of a broadcast are read only"
    ):
        SingleThreadRuntime(flow_of(ScriptedSource([("a", {"limits": [1]}), PAUSE, 5]), joiner, VecSink())).execute()


class Limits:
    """A row of a class of the user's, which can't be made read-only."""

    def __init__(self, limits: Any) -> None:
        self.limits = limits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limits) and self.limits == other.limits

    __hash__ = None  # type: ignore[assignment] # it is mutable


def test_debug_finds_objects_that_a_joiner_changes() -> None:
    def change(value: Any, rows: Any) -> Any:
        if rows:
            rows["a"].limits = value
        return value

    with pytest.raises(OperatorError, match="the row of key 'a' was changed by a function that reads it"):
        joined([("a", Limits(1)), 5, PAUSE, 6], change, debug=True)


def test_rows_that_are_kept_or_sent_stay_as_they_were() -> None:
    found = joined([("a", [1]), 1, PAUSE, ("a", [2]), 2], lambda value, rows: rows)
    assert found == [{"a": [1]}, {"a": [2]}]


def test_rows_that_are_sent_are_plain_after_an_exchange(tmp_path: Path) -> None:
    def keep(key: Any, value: Any, state: Any) -> Any:
        return value, value

    def build(provider: Any) -> None:
        items = provider.new_stream().source("items", StatefulSource(ScriptedSource([("a", {"n": [1]}), PAUSE, 5])))
        rows = items.filter("rows", lambda it: isinstance(it, tuple)).key_distribute(
            "row key", lambda msg: msg.value[0]
        )
        numbers = items.filter("numbers", lambda it: isinstance(it, int))
        sent = numbers.join_broadcast("sent", rows.map("row", lambda it: it[1]), lambda value, rows: rows)
        sent.key_distribute("key", lambda msg: 1).stateful_map("kept", keep).sink("out", VecSink())

    store = FsspecBackend(str(tmp_path))
    SingleThreadRuntime(build, store).execute()
    ((_, kept),) = read_state(store, "kept")
    assert kept == {"a": {"n": [1]}}
    assert type(kept) is dict
    assert type(kept["a"]["n"]) is list


def test_rows_are_migrated_on_all_workers(tmp_path: Path) -> None:
    store, script = FsspecBackend(str(tmp_path)), [("a", 1), ("b", 2), END, *range(6)]
    source = StatefulSource(ScriptedSource(script))
    SingleThreadRuntime(flow_of(source, shown, VecSink(), keyed=True), store).execute()
    sink: VecSink[Any, Any, Any] = VecSink()
    migrate = lambda row, version: None if row == 1 else [row, version]  # noqa: E731
    flow = flow_of(source, lambda value, rows: dict(rows), sink, keyed=True, version=2, migrate=migrate)
    SingleThreadRuntime(flow, store, parallelism=3).execute()
    assert sink.values == [{"b": [2, 1]}] * 6
    assert dict(read_state(store, "joined")) == {"b": [2, 1]}


def test_snapshots_of_different_numbers_of_workers_are_compared(tmp_path: Path) -> None:
    store, source = FsspecBackend(str(tmp_path)), StatefulSource(ScriptedSource([("a", 1), ("b", 2), END, ("a", 3)]))
    for parallelism in (2, 3):
        SingleThreadRuntime(flow_of(source, shown, VecSink()), store, parallelism=parallelism).execute()
    first, *_, last = [it.id for it in snapshots(store)]
    (change,) = diff_state(store, "joined", first, last)
    assert change.key == "a"


def test_failed_records_become_letters_and_rows_stay(tmp_path: Path) -> None:
    store = FsspecBackend(str(tmp_path))
    sink: VecSink[Any, Any, Any] = VecSink()
    source = StatefulSource(ScriptedSource([("a", 2), PAUSE, 4, 0, 6]))
    flow = flow_of(source, lambda value, rows: rows["a"] // value, sink, on_error="dead_letter")
    SingleThreadRuntime(flow, store).execute()
    assert sink.values == [0, 0]
    assert [it.value for it in dead_letters(store, "joined")] == [0]


def test_rows_with_many_workers_are_no_hot_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="malflow"):
        joined([it for n in range(300) for it in [*[(f"{n}-{m}", m) for m in range(30)], PAUSE]], shown, parallelism=2)
    assert not caplog.records


def build(add: Callable[[Any, Any], object]) -> None:
    """Build a dataflow with a join of two streams, of which the other is not keyed."""

    def build_dataflow(provider: Any) -> None:
        add(*(provider.new_stream().source(name, SingleIteratorSource([1])) for name in ("one", "two")))

    compiled(build_dataflow)


MISTAKES: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "rows without keys": (
        lambda one, two: one.join_broadcast("joined", two, shown),
        r"needs keyed streams; one has no key; call \.key_distribute\(\) on it",
    ),
    "no stream": (
        lambda one, _: one.join_broadcast("joined", {"a": 1}, shown),
        "joins with rows that all workers have: a table, or a keyed stream; got {'a': 1}",
    ),
    "a URL": (
        lambda one, _: one.join_broadcast("joined", connect("towns.csv"), shown),
        "joins with rows that all workers have: a table, or a keyed stream; got",
    ),
    "another function": (
        lambda one, two: one.join_broadcast("joined", two.key_local("k", lambda msg: 1), lambda value: value),
        r"calls joiner\(value, rows\), but",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_when_the_operator_is_added(name: str) -> None:
    add, problem = MISTAKES[name]
    with pytest.raises(GraphError, match=f"operator 'joined' {problem}"):
        build(add)


SCRIPT = [("a", 1), 1, 2, ("b", 2), 3, ("a", None), 4, 5, ("a", 3), ("c", 1), 6, 7, 8, ("c", None), 9]


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_stops_crashes_and_rescales_change_nothing(keyed: bool) -> None:
    flow = flow_of(ScriptedSource([]), shown, VecSink(), keyed=keyed)
    assert_exactly_once(flow, {"items": SCRIPT}, max_examples=8)
