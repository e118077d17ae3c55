"""Joins of tables by a foreign key, against a model over whole tables; mistakes, restarts and rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.streams.stream import StreamProvider
from malflow.testing import END, PAUSE, ScriptedSource, assert_exactly_once
from malflow.testing.driven import DrivenRun
from tests.kit.driving import compiled
from tests.kit.ticking import WholeTicks
from tests.tables.model import folded

Item = Any
"""``("left", key, None or (reference, value))``, ``("right", key, row or None)``, or `PAUSE` to begin a new tick."""

REFERENCES = st.sampled_from([None, 1, 2, 1.0, True, "x"])
LEFT = st.tuples(
    st.just("left"), st.sampled_from("abc"), st.one_of(st.none(), st.tuples(REFERENCES, st.integers(0, 2)))
)
RIGHT = st.tuples(st.just("right"), st.sampled_from([1, 2, "x"]), st.one_of(st.none(), st.integers(0, 2)))
ITEMS = st.lists(st.one_of(LEFT, LEFT, RIGHT, st.just(PAUSE)), max_size=40)


def reference(row: Any) -> Any:
    """Return the foreign key of a left row."""
    return row[0]


def pair(left: Any, right: Any) -> Any:
    """Join by making a pair."""
    return left[1], right


def flow_of(source: Any, sink: Any, how: Any = "inner", **options: Any) -> Callable[[Any], None]:
    """Return a dataflow that joins the left rows of a source with its right ones."""

    def build(provider: Any) -> None:
        items = provider.new_stream().source("items", source)
        left, right = (
            items.filter(f"is {side}", lambda it, side=side: it[0] == side)
            .key_distribute(f"{side} key", lambda msg: msg.value[1])
            .to_table(side, row=lambda it: it[2])
            for side in ("left", "right")
        )
        joined = left.join("joined", right, pair, on=reference, how=how, **options)
        joined.changes().sink("out", sink)

    return build


def expected(items: list[Item], how: str) -> dict[Any, Any]:
    """Return the joined table: the last rows of both sides."""
    sides: dict[str, dict[Any, Any]] = {"left": {}, "right": {}}
    for side, key, row in (it for it in items if it is not PAUSE and it is not END):
        sides[side].pop(key, None)
        if row is not None:
            sides[side][key] = row
    rows = {key: (row[1], sides["right"].get(row[0])) for key, row in sides["left"].items()}
    return {key: row for key, row in rows.items() if how == "left" or row[1] is not None}


def table_of(messages: Any) -> dict[Any, Any]:
    """Return the table that changes make; each must begin with the row so far."""
    return folded((it.key, it.timestamp, it.value.before, it.value.after) for it in messages)


def ticks_of(items: list[Item]) -> list[list[Item]]:
    """Return the items of each tick."""
    ticks: list[list[Item]] = [[]]
    for it in items:
        if it is PAUSE:
            ticks.append([])
        else:
            ticks[-1].append(it)
    return ticks


@given(items=ITEMS, how=st.sampled_from(["inner", "left"]), parallelism=st.integers(1, 4), debug=st.booleans())
@pytest.mark.slow
def test_the_joined_table_is_that_of_the_last_rows(items: Any, how: str, parallelism: int, debug: bool) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    source = StatefulSource(WholeTicks(ticks_of(items)))
    SingleThreadRuntime(flow_of(source, sink, how), parallelism=parallelism, debug=debug).execute()
    found = table_of(sink)
    event(f"{min(len(found), 2)} rows")
    assert found == expected(items, how)


@given(items=ITEMS, rescales=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=3))
@pytest.mark.slow
def test_rescales_do_not_show(items: Any, rescales: Any) -> None:
    graph = Graph()
    sink: VecSink[Any, Any, Any] = VecSink()
    flow_of(StatefulSource(WholeTicks(ticks_of(items))), sink, "left")(StreamProvider(graph))
    with DrivenRun(compile_graph(graph), parallelism=2) as run:
        run.open()
        for ticks, workers in [*rescales, (99, 3)]:
            for _ in range(ticks):
                if not run.is_finished:
                    run.tick()
            run.rescale(workers)
    assert table_of(sink) == expected(items, "left")


def changes_of(ticks: list[list[Item]], how: str = "inner", **options: Any) -> list[tuple[Any, Any, Any]]:
    """Return the changes of a join on one worker."""
    sink: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(flow_of(StatefulSource(WholeTicks(ticks)), sink, how, **options)).execute()
    return [(it.key, it.value.before, it.value.after) for it in sink]


def test_a_right_row_changes_all_rows_that_refer_to_it() -> None:
    ticks = [[("left", "a", (1, 7)), ("left", "b", (1, 8)), ("left", "c", (2, 9)), ("right", 1, 10)]]
    assert changes_of([*ticks, [("right", 1, 20)], [("right", 1, None)]]) == [
        *[("a", None, (7, 10)), ("b", None, (8, 10))],
        *[("a", (7, 10), (7, 20)), ("b", (8, 10), (8, 20))],
        *[("a", (7, 20), None), ("b", (8, 20), None)],
    ]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_a_row_that_moves_within_a_tick_has_each_partner_in_turn(parallelism: int) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    ticks: list[list[Item]] = [
        [("right", key, 10 * key) for key in range(1, 6)],
        [("left", "a", (key, 0)) for key in (3, 1, 5, 2, 4)],
    ]
    flow = flow_of(StatefulSource(WholeTicks(ticks)), sink)
    SingleThreadRuntime(flow, parallelism=parallelism).execute()
    assert [it.value.after for it in sink] == [(0, 30), (0, 10), (0, 50), (0, 20), (0, 40)]


def test_a_row_that_moves_while_both_partners_change_has_its_new_one() -> None:
    ticks: list[list[Item]] = [
        [("right", 1, 10), ("right", 2, 20), ("left", "a", (1, 0))],
        [("left", "a", (2, 0)), ("right", 1, 11), ("right", 2, 21)],
        [("right", 1, 12)],
    ]
    assert changes_of(ticks)[-1][2] == (0, 21)


def test_a_row_that_keeps_its_reference_sends_nothing_to_the_other_side() -> None:
    ticks: list[list[Item]] = [
        [("right", 1, 10), ("left", "a", (1, 0))],
        [("left", "a", (1.0, 1))],
        [("left", "a", (True, 2))],
    ]
    sink: VecSink[Any, Any, Any] = VecSink()
    runtime = SingleThreadRuntime(flow_of(StatefulSource(WholeTicks(ticks)), sink))
    runtime.execute()
    assert [it.value.after for it in sink] == [(0, 10), (1, 10), (2, 10)]
    assert runtime.progress.records["(joined to)"] == 1


def test_rows_may_refer_to_rows_of_their_own_table() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        source = provider.new_stream().source(
            "people", SingleIteratorSource([("b", "a", 1), ("a", "b", 2), ("b", "b", 3)])
        )
        people = source.key_distribute("name", lambda msg: msg.value[0]).to_table("table")
        people.join("bosses", people, lambda one, boss: (one[2], boss[2]), on=lambda it: it[1]).changes().sink(
            "out", sink
        )

    SingleThreadRuntime(build, parallelism=3).execute()
    assert table_of(sink) == {"a": (2, 3), "b": (3, 3)}


def test_a_restart_continues_with_rows_and_references(tmp_path: Path) -> None:
    store, sink = FsspecBackend(str(tmp_path)), VecSink[Any, Any, Any]()
    script = [("left", "a", (1, 0)), ("left", "b", (2, 0)), ("right", 1, 10), END, ("right", 1, 11), ("right", 2, 20)]
    for parallelism in (2, 3):
        flow = flow_of(StatefulSource(ScriptedSource(script)), sink)
        SingleThreadRuntime(flow, store, parallelism=parallelism).execute()
    assert table_of(sink) == {"a": (0, 11), "b": (0, 20)}
    assert dict(read_state(store, "joined")) == {
        (0, "a"): (1, 0),
        (1, "a"): 11,
        (0, "b"): (2, 0),
        (1, "b"): 20,
    }


def test_rows_of_both_tables_are_migrated(tmp_path: Path) -> None:
    store = FsspecBackend(str(tmp_path))
    script = [("left", "a", (1, 0)), ("right", 1, 10), END, ("left", "b", (1, 0)), ("right", 1, 12)]
    changed: list[Any] = []
    for version in (1, 2):
        sink: VecSink[Any, Any, Any] = VecSink()
        migrate = lambda row, version: (1, 5) if isinstance(row, tuple) else row + 1  # noqa: E731
        flow = flow_of(StatefulSource(ScriptedSource(script)), sink, version=version, migrate=migrate)
        SingleThreadRuntime(flow, store).execute()
        changed.append([(it.key, it.value.before, it.value.after) for it in sink])
    assert [it for it in changed[1] if it[0] == "a"] == [("a", (5, 11), (5, 12))]


def test_an_error_of_the_function_names_the_row() -> None:
    def build(provider: Any) -> None:
        source = provider.new_stream().source("rows", SingleIteratorSource([{"id": 1}]))
        table = source.key_distribute("key", lambda msg: msg.value["id"]).to_table("table")
        table.join("joined", table, pair, on="boss")

    with pytest.raises(OperatorError, match=r"operator '\(joined references\)' failed at key 1, .*'boss'"):
        SingleThreadRuntime(build).execute()


def test_an_error_of_the_joiner_names_the_rows() -> None:
    ticks = [[("left", "a", (1, 0)), ("right", 1, 10)]]
    with pytest.raises(
        OperatorError, match=r"operator 'joined' failed at key 'a', value \(\(1, 0\), 10\).*ZeroDivision"
    ):
        SingleThreadRuntime(_with_joiner(ticks, lambda left, right: right / left[1])).execute()
    with pytest.raises(OperatorError, match=r"operator 'joined' failed .*the joiner returned None, which is not a row"):
        SingleThreadRuntime(_with_joiner(ticks, lambda left, right: None)).execute()


def test_a_reference_that_can_be_no_key_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"operator '\(joined references\)' failed at key 'a'.*unhashable|list"):
        changes_of([[("left", "a", ([1], 0))]])


def _with_joiner(ticks: list[list[Item]], joiner: Any) -> Callable[[Any], None]:
    def build(provider: Any) -> None:
        items = provider.new_stream().source("items", StatefulSource(WholeTicks(ticks)))
        left, right = (
            items.filter(f"is {side}", lambda it, side=side: it[0] == side)
            .key_distribute(f"{side} key", lambda msg: msg.value[1])
            .to_table(side, row=lambda it: it[2])
            for side in ("left", "right")
        )
        left.join("joined", right, joiner, on=reference)

    return build


def build_tables(add: Callable[[Any, Any], object], *, key: str = "key_distribute") -> None:
    """Build a dataflow with two tables."""

    def build_dataflow(provider: Any) -> None:
        add(
            *(
                getattr(provider.new_stream().source(name, SingleIteratorSource([1])), key)(
                    f"{name} key", lambda msg: msg.value
                ).to_table(f"{name} table")
                for name in ("one", "two")
            )
        )

    compiled(build_dataflow)


def test_mistakes_are_refused_when_the_join_is_added() -> None:
    with pytest.raises(GraphError, match=r"operator 'joined' joins by a foreign key, .*write how='left', or join the"):
        build_tables(lambda one, two: one.join("joined", two, pair, on=reference, how="outer"))
    with pytest.raises(
        GraphError, match=r"operator 'joined' joins by a foreign key, .*call \.key_distribute\(\) before"
    ):
        build_tables(lambda one, two: one.join("joined", two, pair, on=reference), key="key_local")
    with pytest.raises(GraphError, match="operator 'joined' on must be a plain function; got 3"):
        build_tables(lambda one, two: one.join("joined", two, pair, on=3))
    with pytest.raises(GraphError, match="operator 'joined' joins two tables; got"):
        build_tables(lambda one, two: one.join("joined", two.changes(), pair, on=reference))


@pytest.mark.slow
def test_large_groups_change_a_snapshot_by_what_has_changed(tmp_path: Path) -> None:
    graph = Graph()
    many = [("left", n, (1, 0)) for n in range(3000)]
    flow_of(StatefulSource(WholeTicks([[("right", 1, 0), *many], [("left", 0, (2, 0))]])), VecSink())(
        StreamProvider(graph)
    )
    with DrivenRun(compile_graph(graph), parallelism=1) as run:
        run.open()
        run.tick()
        run.deltas()
        run.tick()
        sizes = Counter({it.name: len(it.delta.changed) + len(it.delta.deleted) for it in run.deltas()})
    assert sizes["(joined referred)/references"] == 2


GIVEN = [
    *[("right", 1, 10), ("left", "a", (1, 0)), ("left", "b", (2, 1)), ("right", 2, 20), ("left", "a", (2, 2))],
    *[("right", 1, 11), ("right", 2, 21), ("left", "c", (1, 3)), ("left", "a", None), ("right", 2, None)],
    *[("left", "a", (None, 4)), ("left", "c", (2, 5)), ("right", 2, 22), ("left", "a", (1, 6)), ("right", 1, 12)],
]


@pytest.mark.slow
def test_stops_crashes_and_rescales_change_nothing() -> None:
    assert_exactly_once(flow_of(ScriptedSource([]), VecSink(), "left"), {"items": GIVEN}, max_examples=12)
