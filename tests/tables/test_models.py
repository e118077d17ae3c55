"""Tables and everything made of them agree with brute force over plain dicts."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, agg, limit_out_of_orderness
from malflow.message import DataMessage
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from malflow.windows import Timing, tumbling
from tests.kit.driving import run_of
from tests.tables import model
from tests.tables.running import changes_of, flow_of, items, messages_of, rows_of, script_of, two_sides

pytestmark = pytest.mark.slow

workers = st.integers(1, 3)
bounds = st.sampled_from([0, 2, 6, 50])
hows = st.sampled_from(["left", "inner"])

FEWER = settings(max_examples=max(25, settings().max_examples // 2))

Messages = Iterable[DataMessage[Any, Any, Any]]


def by_key(changes: Iterable[model.Changed]) -> dict[Any, list[Any]]:
    """Return changes by key, in their order."""
    found: dict[Any, list[Any]] = {}
    for change in changes:
        found.setdefault(change[0], []).append(change)
    return found


def tally(messages: Messages) -> Counter[Any]:
    """Return messages without their order."""
    return Counter((it.key, it.value, it.timestamp) for it in messages)


def pair(value: Any, row: Any) -> Any:
    """Join by making a tuple."""
    return value, row


@FEWER
@given(given=items(), workers=workers, debug=st.booleans())
def test_the_changes_of_a_table_fold_to_its_rows(given: list[Any], workers: int, debug: bool) -> None:
    sent = messages_of(given, lambda left, _: left.to_table("table").changes(), parallelism=workers, debug=debug)
    found, expected = changes_of(sent), model.changed(rows_of(given))
    assert by_key(found) == by_key(expected)
    last = {key: row for key, _, row in rows_of(given)}
    assert model.folded(found) == {key: row for key, row in last.items() if row is not None}


@FEWER
@given(given=items(), bound=bounds, ttl=st.integers(1, 12), workers=workers, debug=st.booleans())
def test_rows_expire_at_the_epoch_that_reaches_their_time(
    given: list[Any], bound: int, ttl: int, workers: int, debug: bool
) -> None:
    sent = messages_of(
        given, lambda left, _: left.to_table("table", ttl=ttl).changes(), bound, parallelism=workers, debug=debug
    )
    expected = model.changed_rows(model.on_time(rows_of(given), bound), ttl)
    assert by_key(changes_of(sent)) == by_key(expected)


@FEWER
@given(given=items(), workers=workers)
def test_derived_tables_are_those_of_derived_rows(given: list[Any], workers: int) -> None:
    def add(left: Any, _: Any) -> Any:
        return left.to_table("table").map("half", lambda row: row // 2).filter("zero", lambda row: row == 0).changes()

    found = changes_of(messages_of(given, add, parallelism=workers))
    halves = [(key, at, 0 if row in (0, 1) else None) for key, at, row in rows_of(given)]
    assert by_key(found) == by_key(model.changed(halves))


@FEWER
@given(given=items(), workers=workers, debug=st.booleans())
def test_groups_are_counted_and_moves_are_a_deletion_and_an_insertion(
    given: list[Any], workers: int, debug: bool
) -> None:
    sent = messages_of(
        given,
        lambda left, _: left.to_table("table").grouped("by row", lambda row: row % 2),
        parallelism=workers,
        debug=debug,
    )
    counts: Counter[Any] = Counter()
    for message in sent:
        change = message.value
        assert all(row % 2 == message.key for row in change if row is not None)
        counts[message.key] += {"insert": 1, "update": 0, "delete": -1}[change.kind]
    table = model.folded(model.changed(rows_of(given)))
    assert +counts == model.counted(table, lambda row: row % 2)


DELETED = [(1, "a", 1, 1), (1, "a", 2, None), (0, "a", 3, 0)]
"""A row of the right side, its deletion, and a later record of the left side."""


@FEWER
@example(given=DELETED, bound=50, how="left", workers=1, debug=False)
@given(given=items(2), bound=bounds, how=hows, workers=workers, debug=st.booleans())
def test_a_record_finds_the_row_of_its_time(given: list[Any], bound: int, how: Any, workers: int, debug: bool) -> None:
    def add(left: Any, right: Any) -> Any:
        return left.join_table("join", right.to_table("table"), pair, how=how)

    left, right = ([record for record, _ in model.on_time(side, bound)] for side in two_sides(given))
    found = messages_of(given, add, bound, parallelism=workers, debug=debug)
    assert tally(found) == model.joined_in_time(left, right, how)


@FEWER
@given(given=items(2), bound=bounds, how=hows)
def test_derived_rows_and_streams_of_rows_are_joined_in_time_as_well(given: list[Any], bound: int, how: Any) -> None:
    left, right = ([record for record, _ in model.on_time(side, bound)] for side in two_sides(given))
    halves = [(key, at, 0 if row in (0, 1) else None) for key, at, row in right]

    def derived(left: Any, right: Any) -> Any:
        table = right.to_table("table").map("half", lambda row: row // 2).filter("zero", lambda row: row == 0)
        return left.join_table("join", table, pair, how=how)

    assert tally(messages_of(given, derived, bound)) == model.joined_in_time(left, halves, how)
    found = messages_of(given, lambda left, right: left.join_table("join", right, pair, how=how), bound)
    assert tally(found) == model.joined_in_time(left, right, how)


@FEWER
@given(given=items(2), how=hows, workers=workers)
def test_a_record_finds_the_row_that_is_known_when_it_arrives(given: list[Any], how: Any, workers: int) -> None:
    """With a tick for each record, it is plain which row is known; a tick with several has its rows first."""

    def add(left: Any, right: Any) -> Any:
        return left.join_table("join", right.to_table("table"), pair, how=how, at="arrival")

    spread = [part for item in given for part in (item, PAUSE)]
    known: dict[Any, Any] = {}
    expected: Counter[Any] = Counter()
    for side, key, at, row in (item for item in given if item is not PAUSE):
        if side == 1:
            known[key] = row
        elif how == "left" or known.get(key) is not None:
            expected[key, (row, known.get(key)), at] += 1
    assert tally(messages_of(spread, add, parallelism=workers)) == expected


@FEWER
@given(given=items(2), how=hows)
def test_rows_of_a_tick_count_before_its_records(given: list[Any], how: Any) -> None:
    def add(left: Any, right: Any) -> Any:
        return left.join_table("join", right, pair, how=how, at="arrival")

    at_once = [item for item in given if item is not PAUSE]
    left, right = two_sides(at_once)
    known = {key: row for key, _, row in right}
    expected = Counter(
        (key, (value, known.get(key)), at) for key, at, value in left if how == "left" or known.get(key) is not None
    )
    assert tally(messages_of(at_once, add, debug=True)) == expected  # its first tick may have all records


@FEWER
@given(given=items(2), how=st.sampled_from(["inner", "left", "outer"]), workers=workers, debug=st.booleans())
def test_joined_tables_fold_to_the_join_of_the_tables(given: list[Any], how: Any, workers: int, debug: bool) -> None:
    def add(left: Any, right: Any) -> Any:
        return left.to_table("one").join("both", right.to_table("two"), pair, how=how).changes()

    found = changes_of(messages_of(given, add, parallelism=workers, debug=debug))
    one, two = (model.folded(model.changed(side)) for side in two_sides(given))
    for changes in by_key(found).values():
        model.folded(changes)
    assert model.folded(found) == model.joined_tables(one, two, how)


@FEWER
@given(given=items(2), how=st.sampled_from(["inner", "left", "outer"]))
def test_a_join_of_tables_sends_a_change_for_each_that_changes_it(given: list[Any], how: Any) -> None:
    def add(left: Any, right: Any) -> Any:
        return (
            left.to_table("one")
            .join("both", right.to_table("two"), lambda a, b: (a or 0) + (b or 0), how=how)
            .changes()
        )

    spread = [part for item in given for part in (item, PAUSE)]
    tables: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
    joined: dict[Any, Any] = {}
    expected = []
    for side, key, at, row in (item for item in given if item is not PAUSE):
        tables[side][key] = row
        one, two = ({key: it for key, it in table.items() if it is not None} for table in tables)
        now = {key: (a or 0) + (b or 0) for key, (a, b) in model.joined_tables(one, two, how).items()}
        if joined.get(key) != now.get(key):
            expected.append((key, at, joined.get(key), now.get(key)))
        joined = now
    assert changes_of(messages_of(spread, add)) == expected


@pytest.mark.fault("L5")
@pytest.mark.parametrize("debug", [False, True])
def test_nothing_expires_at_the_end_of_the_input(debug: bool) -> None:
    given = [(0, "a", 0, 1), (0, "b", 10, 2)]
    sent = messages_of(given, lambda left, _: left.to_table("table", ttl=5).changes(), 0, debug=debug)
    assert changes_of(sent) == [("a", 0, None, 1), ("b", 10, None, 2), ("a", 5, 1, None)]


def test_a_record_that_leaves_its_row_as_it_was_keeps_it_from_expiring() -> None:
    given = [(0, "a", 0, 1), (0, "a", 4, 1), (0, "b", 8, 2), (0, "b", 9, 2)]
    sent = messages_of(given, lambda left, _: left.to_table("table", ttl=5).changes(), 0)
    assert changes_of(sent) == [("a", 0, None, 1), ("b", 8, None, 2), ("a", 9, 1, None)]


@pytest.mark.fault("L4")
def test_a_version_out_of_order_that_the_table_would_not_send_is_found() -> None:
    """The table ends with the row that it had, so its changes have no version of time 5; the input has."""
    given = [(1, "a", 1, 1), (1, "a", 9, 2), (1, "a", 5, 2), (0, "a", 6, 0)]
    found = messages_of(given, lambda left, right: left.join_table("join", right.to_table("table"), pair))
    assert [it.value for it in found] == [(0, 2)]


@pytest.mark.parametrize(("ttl", "last"), [(None, []), (None, [None]), (99, [])])
def test_rows_that_are_equal_but_not_the_same_are_not_sent(ttl: Any, last: list[None]) -> None:
    rows = [{"a": 1}, {"a": 1.0}, {"a": 2}, {"a": float("nan")}, {"a": float("nan")}]
    given = [(0, "a", at, row) for at, row in enumerate([*rows, *last])]
    sent = messages_of(given, lambda left, _: left.to_table("table", ttl=ttl).changes())
    afters = [it.value.after for it in sent]
    assert [str(row["a"]) for row in afters if row] == ["1", "2", "nan", "nan"]
    assert afters[4:] == last
    assert all(one.value.after is two.value.before for one, two in pairwise(sent))


def test_a_table_without_epochs_holds_nobody_back() -> None:
    source = StatefulSource(
        ScriptedSource(script_of([(0, "a", 1, 1), (1, "a", 1, 2), (0, "a", 9, 3), (0, "a", 30, 4)]))
    )
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        left, right = (
            provider.new_stream()
            .source("source", source)
            .generate_epochs("epochs", limit_out_of_orderness(0))
            .on_time.split("side", lambda msg, sides: operator.setitem(sides, msg.value[0], True), 2)
        )
        rows = right.assign_timestamps("none", lambda msg: msg.timestamp)
        untimed = rows.generate_epochs("never", lambda msg, _: None).on_time
        keyed = left.key_distribute("left", lambda msg: msg.value[1])
        table = untimed.key_distribute("right", lambda msg: msg.value[1])
        joined = keyed.join_table("join", table, lambda value, row: 1, at="arrival")
        joined.window(tumbling(10)).aggregate("count", agg.count()).inspect("seen", seen).sink("sink", sink)

    before_the_end: list[Any] = []

    def seen(message: Any, _: Any) -> None:
        before_the_end.append((message.value.value, message.value.timing))

    SingleThreadRuntime(build).execute()
    assert before_the_end == [(2, Timing.FINAL), (1, Timing.END)]


@pytest.mark.parametrize("deleted", [False, True])
def test_only_rows_that_may_be_found_are_kept(deleted: bool) -> None:
    given = [(1, "a", at, at) for at in range(9)] + [(1, "a", 9, None)] * deleted
    given += [(side, "b", 50, None) for side in (0, 1)]
    source = StatefulSource(ScriptedSource([*script_of(given), PAUSE]))
    build = flow_of(source, lambda left, right: left.join_table("join", right, pair), VecSink(), 3)
    with run_of(build) as run:
        while not run.is_finished:
            run.tick()
        (states,) = [dict(delta.changed) for _, name, delta, _ in run.deltas() if name == "join"]
    assert [rows for (side, key), (_, rows) in states.items() if (side, key) == (1, "a")] == [[8]] * (not deleted)
