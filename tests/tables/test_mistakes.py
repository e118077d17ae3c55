"""Mistakes with tables are found as early as they can be, with the way to mend them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from malflow import GraphError, OperatorError, StreamProvider, TableChange, index_select
from malflow.connectors.tables import UNCHANGED, Change, KeyedRow, debezium, rows_by_key, to_debezium
from malflow.message import DataMessage
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE
from tests.kit.driving import compiled
from tests.tables.running import changes_of, messages_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def build(add: Callable[[Any, Any], object], *, with_epochs: bool = False, **right: Any) -> None:
    """Build a dataflow with two keyed streams."""

    def build_dataflow(provider: StreamProvider) -> None:
        streams: list[Any] = [provider.new_stream().source(name, SingleIteratorSource([1])) for name in ("one", "two")]
        if with_epochs:
            streams = [
                it.generate_epochs(f"epochs {at}", lambda msg, _: msg.timestamp).on_time
                for at, it in enumerate(streams)
            ]
        one, two = streams
        left = one.key_distribute("left", lambda msg: msg.value)
        add(left, two.key_distribute("right", lambda msg: msg.value, **right))

    compiled(build_dataflow)


def pair(value: Any, row: Any) -> Any:
    return value, row


def by_arrival(left: Any, right: Any) -> Any:
    return left.join_table("join", right, pair, at="arrival")


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (
            lambda left, _: left.to_table("join", ttl=5),
            r"'join' has rows that expire by epochs \(watermarks\), and its",
        ),
        (
            lambda left, _: left.to_table("join", ttl=0),
            "'join' ttl must be a positive number or timedelta",
        ),
        (lambda left, _: left.to_table("join", row=3), "'join' row must be a plain function; got 3"),
        (lambda left, right: left.join_table("join", right, pair), "by epochs .* or pass at='arrival'"),
        (
            lambda left, right: left.join_table("join", right, pair, how="outer"),
            "how must be 'left' or 'inner'; got 'ou",
        ),
        (
            lambda left, right: left.join_table("join", right, pair, at="once"),
            "'time' or 'arrival' as its at; got 'onc",
        ),
        (
            lambda left, right: left.join_table("join", right, lambda row: row, at="arrival"),
            "calls joiner.value, row., but",
        ),
        (
            lambda left, right: left.join_table("join", [right], pair, at="arrival"),
            "takes streams as separate arguments",
        ),
        (
            lambda left, right: left.join_table(
                "join", left.to_table("a").join("b", right.to_table("c"), pair), pair, at="time"
            ),
            "can't join with 'b' in event time: a table that is joined of others has no rows of its own",
        ),
        (lambda left, right: left.to_table("a").join("join", right, pair), r"joins two tables; .* call .to_table\(\)"),
        (
            lambda left, right: left.to_table("a").join("join", right.to_table("b"), pair, how="right"),
            "how must be 'inner', 'left' or 'outer'; got 'right'",
        ),
        (lambda left, _: left.to_table("a").grouped("join", None), "a function of the row, or the name of a field"),
        (lambda left, _: left.to_table("a").map("join", 3), "'join' mapper must be a plain function; got 3"),
    ],
)
def test_malformed_tables_are_refused_when_they_are_added(add: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        build(add)


def test_tables_and_streams_of_other_placement_are_refused() -> None:
    placed = "operator 'join' would keep the state of one key on several workers; its inputs are placed by .* and "
    with pytest.raises(GraphError, match=placed):
        build(by_arrival, partitioner=index_select)
    with pytest.raises(GraphError, match=placed):
        build(
            lambda left, right: left.join_table("join", right.to_table("t"), pair),
            with_epochs=True,
            partitioner=index_select,
        )
    with pytest.raises(GraphError, match=placed):
        build(lambda left, right: left.to_table("a").join("join", right.to_table("b"), pair), partitioner=index_select)


def test_a_table_needs_no_epochs_by_arrival() -> None:
    def add(left: Any, right: Any) -> Any:
        timed = left.generate_epochs("epochs", lambda msg, _: msg.timestamp).on_time
        return by_arrival(timed, right).sort("needs epochs")

    build(add)
    with pytest.raises(
        GraphError, match=r"has records that wait for epochs \(watermarks\) to pass, and an input has none"
    ):
        build(lambda left, right: by_arrival(left, right).sort("needs epochs"))


def test_tables_of_another_dataflow_are_refused() -> None:
    found: list[Any] = []
    build(lambda left, _: found.append(left.to_table("table")))
    with pytest.raises(GraphError, match="'join' needs streams of the same dataflow; got one of another"):
        build(lambda left, _: by_arrival(left, found[0]))
    with pytest.raises(GraphError, match="'join' needs streams of the same dataflow; got one of another"):
        build(lambda left, _: left.to_table("a").join("join", found[0], pair))


def test_a_stream_without_keys_is_told_to_have_some() -> None:
    with pytest.raises(
        GraphError, match=r"needs a keyed stream; its input has no key; call .key_distribute\(\) before"
    ):
        compiled(lambda p: p.new_stream().source("one", SingleIteratorSource([1])).to_table("t"))  # type: ignore[attr-defined]


def test_methods_of_streams_are_found_behind_changes_and_rows() -> None:
    def add(left: Any, _: Any) -> None:
        with pytest.raises(
            AttributeError, match=r"write .changes\(\).key_distribute\(...\) for its changes, or .rows\("
        ):
            left.to_table("a").key_distribute("again", lambda msg: 1)
        with pytest.raises(AttributeError, match=r"'Table' object has no attribute 'fitler'.*filter"):
            left.to_table("b").fitler("small", bool)

    build(add)


def sent(*rows: Any, add: Any = None, **options: Any) -> list[DataMessage[Any, Any, Any]]:
    """Return the changes of a table of the rows of key ``a``."""
    given = [(0, "a", at, row) for at, row in enumerate(rows)]
    return messages_of(given, add or (lambda left, _: left.to_table("table").changes()), **options)


class Vague:
    """An object whose comparison has no truth value, as that of an array."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.fault("L1")
@pytest.mark.parametrize("debug", [False, True])
def test_rows_that_cannot_be_compared_are_an_error_with_the_key(debug: bool) -> None:
    with pytest.raises(
        OperatorError, match=r"'table'.*'a'.*compared by ==, which fails \(the truth.*; pass row="
    ) as failed:
        sent(1, Vague(), debug=debug)
    assert failed.value.key == "a"


@pytest.mark.parametrize(
    ("group", "reason"), [(None, "None cannot be used as a key"), (math.nan, "NaN does not equal")]
)
def test_group_that_is_no_key_is_an_error_of_the_grouping(group: Any, reason: str) -> None:
    """Also with one worker, where no record is sent elsewhere."""
    with pytest.raises(OperatorError, match=rf"'by size' failed.*key is invalid: .*{reason}.*test_mistakes.py"):
        sent(1, add=lambda left, _: left.to_table("table").grouped("by size", lambda _: group))


def test_a_ttl_that_does_not_fit_the_timestamps_is_an_error() -> None:
    with pytest.raises(OperatorError, match=r"ttl=datetime.timedelta.* does not fit the timestamp 0 of type int"):
        sent(1, add=lambda left, _: left.to_table("table", ttl=timedelta(1)).changes())


def test_a_row_cannot_become_none() -> None:
    with pytest.raises(OperatorError, match=r"'none'.*it returned None, which is not a row; call .filter\(\)"):
        sent(1, add=lambda left, _: left.to_table("t").map("none", lambda row: row if row > 1 else None).rows())
    with pytest.raises(OperatorError, match="the joiner returned None, which is not a row"):
        sent(
            1,
            add=lambda left, right: (
                left.to_table("t")
                .join("none", right.to_table("u"), lambda one, _: one if one > 1 else None, how="left")
                .rows()
            ),
        )


@pytest.mark.fault("L1")
@pytest.mark.parametrize(
    "later",
    [
        [PAUSE, (0, "a", 1, {"n": 7})],  # the next change finds it
        [],  # the end of the tick does: there is no other change of this key
        [(0, "a", 1, None)],
    ],
)
def test_a_row_that_is_changed_after_it_was_given_is_found_in_debug(later: list[Any]) -> None:
    row = {"n": 1}

    def change(it: Any) -> Any:
        it["n"] += 1
        return it

    def add(left: Any, _: Any) -> Any:
        return left.to_table("table").rows().filter_map("rows", lambda it: it and change(it))

    with pytest.raises(OperatorError, match=r"a row of the table was changed after it was given: it was {'n': 1}"):
        messages_of([(0, "a", 0, row), *later], add, debug=True)


def test_a_joiner_that_is_no_function_is_found_in_debug() -> None:
    numbers = iter(range(100))
    with pytest.raises(OperatorError, match="the joiner returned two different rows for the same ones"):
        sent(
            1,
            debug=True,
            add=lambda left, right: (
                left.to_table("t")
                .join("join", right.to_table("u"), lambda one, other: next(numbers), how="left")
                .rows()
            ),
        )


def change(kind: Any, old: Any, new: Any) -> Change:
    return Change(kind, "public.users", old, new, 7, NOW)


@pytest.mark.fault("L3")
def test_changes_of_a_database_are_no_rows() -> None:
    insert = change("insert", None, {"id": 1})
    with pytest.raises(OperatorError, match=r'is not a row.*rows_by_key\("id"\)'):
        sent(insert)
    with pytest.raises(OperatorError, match=r"a truncation of public.users has no key"):
        sent(insert._replace(kind="truncate", new=None), add=lambda left, _: left.to_table("t", "new").rows())
    with pytest.raises(OperatorError, match="is not a row"):
        messages_of([(1, "a", 0, insert), (0, "a", 1, 1)], by_arrival)


def test_values_that_were_not_sent_are_taken_from_the_row_before() -> None:
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": UNCHANGED}, {"a": UNCHANGED, "b": UNCHANGED}, None]
    assert [it.value.after for it in sent(*rows)] == [{"a": 1, "b": 2}, {"a": 3, "b": 2}, None]
    of_names = sent(KeyedRow(1, {}), KeyedRow(UNCHANGED, {"a": 1}))
    assert of_names[1].value.after == KeyedRow(1, {"a": 1})
    assert [it.value.after for it in sent((1, 2), (UNCHANGED, 3))][1] == (1, 3)


@pytest.mark.fault("L2")
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("before", [[], [{"b": 1}, None], [{"b": 1}]])
def test_a_value_that_was_not_sent_needs_a_row_that_has_it(before: list[Any], debug: bool) -> None:
    with pytest.raises(OperatorError, match=r"'table'.*'a'.*column 'a' was not sent.*replica identity full"):
        sent(*before, {"a": UNCHANGED, "b": 2}, debug=debug)


def test_values_that_were_not_sent_are_filled_for_joins() -> None:
    given = [(1, "a", 1, {"n": 1, "m": 2}), (1, "a", 2, {"n": UNCHANGED, "m": 3}), (0, "a", 3, 0)]
    filled = [(0, {"n": 1, "m": 3})]
    assert [it.value for it in messages_of(given, by_arrival)] == filled
    in_time = messages_of(given, lambda left, right: left.join_table("join", right.to_table("t"), pair))
    assert [it.value for it in in_time] == filled
    with pytest.raises(OperatorError, match=r"a value of the row was not sent.*call .to_table\(\) first"):
        messages_of(given, lambda left, right: left.join_table("join", right, pair))


def test_rows_of_changes_are_keyed_and_moved() -> None:
    keyed = rows_by_key("id")
    assert keyed(change("insert", None, {"id": 1, "n": 2})) == [(1, {"id": 1, "n": 2})]
    assert keyed(change("update", None, {"id": 1, "n": UNCHANGED})) == [(1, {"id": 1, "n": UNCHANGED})]
    assert keyed(change("update", {"id": 1, "n": 2}, {"id": 1, "n": 3})) == [(1, {"id": 1, "n": 3})]
    assert keyed(change("update", {"id": 1}, {"id": 2, "n": 3})) == [(1, None), (2, {"id": 2, "n": 3})]
    assert keyed(change("delete", {"id": 1}, None)) == [(1, None)]
    assert rows_by_key("a", "b")(change("delete", {"a": 1, "b": 2}, None)) == [((1, 2), None)]
    assert rows_by_key("id", on_truncate="skip")(change("truncate", None, None)) == []


@pytest.mark.parametrize(
    ("it", "problem"),
    [
        (change("truncate", None, None), 'table public.users was truncated, which has no key, .* on_truncate="skip"'),
        (change("update", {"id": 1}, {"id": 2, "n": UNCHANGED}), "from key 1 to 2 without the value of 'n', .* full"),
        (change("insert", None, {"n": 2}), "a row of public.users lacks the column 'id' of its key; it has 'n'"),
        (change("update", None, {"id": UNCHANGED}), "table public.users did not send a key; alter table"),
        (change("delete", None, None), "a deletion from public.users has no key; alter table public.users replica"),
        ({"id": 1}, "takes the changes that PostgresChanges emits; got {'id': 1}"),
    ],
)
def test_changes_without_rows_by_key_are_an_error(it: Any, problem: str) -> None:
    with pytest.raises((OperatorError, TypeError, Exception), match=problem):
        rows_by_key("id")(it)


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ((), {}, "rows_by_key takes the names of the key's columns, such as 'id'; got none"),
        ((3,), {}, "rows_by_key takes the names of the key's columns, such as 'id'; got 3"),
        (("id",), {"on_truncate": "drop"}, "rows_by_key needs 'fail' or 'skip' as its on_truncate; got 'drop'"),
    ],
)
def test_arguments_of_rows_by_key_are_checked(columns: Any, options: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        rows_by_key(*columns, **options)


def test_events_of_debezium_are_rows_by_key_and_back() -> None:
    rows = debezium("id")
    plain = {"op": "u", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}, "source": {"table": "users"}}
    assert rows(plain) == rows({"schema": {}, "payload": plain}) == [(1, {"id": 1, "n": 2})]
    assert rows(b'{"op": "r", "before": null, "after": {"id": 1}}') == [(1, {"id": 1})]
    assert rows({"op": "d", "before": {"id": 1}, "after": None}) == [(1, None)]
    assert rows({"op": "u", "before": {"id": 1}, "after": {"id": 2}}) == [(1, None), (2, {"id": 2})]
    assert rows(None) == rows("null") == []
    unsent = rows({"op": "u", "before": None, "after": {"id": 1, "n": "__debezium_unavailable_value"}})
    assert unsent == [(1, {"id": 1, "n": UNCHANGED})]
    assert rows(to_debezium(TableChange({"id": 1}, {"id": 1, "n": 2}))) == [(1, {"id": 1, "n": 2})]
    assert to_debezium(TableChange(KeyedRow(1, None), None)) == {
        "before": {"key": 1, "row": None},
        "after": None,
        "op": "d",
    }
    with pytest.raises(TypeError, match="a row of Debezium has names; got 3"):
        to_debezium(TableChange(None, 3))


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"op": "t", "source": {"table": "users"}}, "table users was truncated"),
        ({"op": "m"}, "knows the operations c, r, u, d and t of Debezium; got 'm'"),
        ({"id": 1}, "takes events of Debezium with op, before and after, or their JSON; got {'id': 1}"),
    ],
)
def test_events_that_are_not_of_debezium_are_an_error(event: Any, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        debezium("id")(event)


def test_tables_of_changes_by_key_fold_to_the_rows_of_the_database() -> None:
    changes = [
        change("insert", None, {"id": 1, "n": 1}),
        change("update", {"id": 1}, {"id": 2, "n": 1}),
        change("update", None, {"id": 2, "n": UNCHANGED}),
        change("delete", {"id": 2}, None),
    ]

    def add(left: Any, _: Any) -> Any:
        rows = left.flat_map("rows", rows_by_key("id")).key_distribute("id", "key")
        return rows.to_table("table", row="row").changes()

    found = changes_of(sent(*changes, add=add))
    one, two = {"id": 1, "n": 1}, {"id": 2, "n": 1}
    assert found == [(1, 0, None, one), (1, 1, one, None), (2, 1, None, two), (2, 3, two, None)]
