"""The law of values: it accepts connectors that keep or refuse a value, and names the value that others change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from malflow.sinks import SinkOwner, TransactionalSinkImpl
from malflow.testing import (
    ScriptedSource,
    SinkValues,
    SourceValues,
    assert_sink,
    assert_source,
    same_value,
)
from tests.testing.test_sink_laws import Good
from tests.testing.test_sink_laws import Table as AnyTable

Store = Callable[[Any], Any]


class Table:
    """A system outside: it keeps what a function makes of a value."""

    def __init__(self, store: Store) -> None:
        self.cells: dict[int, Any] = {}
        self.store = store

    def sink(self, early: Store = lambda value: value) -> Sink:
        return Sink(self, early)


class Sink(TransactionalSinkImpl[Any, Any, Any, Any]):
    """A sink that checks a value by a function, before the snapshot."""

    def __init__(self, table: Table, early: Store) -> None:
        self.table, self.early = table, early
        self.written: list[Any] = []

    def sink(self, msg: Any) -> None:
        self.written.append((msg.value["n"], self.early(msg.value["v"])))

    def fence(self, owner: SinkOwner) -> int:
        del owner
        return 0

    def prepare(self, transaction: int) -> Any:
        rows, self.written = self.written, []
        return (transaction, rows) if rows else None

    def commit(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            _, rows = handle
            for number, value in rows:
                self.table.cells[number] = self.table.store(value)

    def abort(self, keep: Sequence[Any]) -> None:
        del keep
        self.written = []


def kept(value: Any) -> Any:
    return value


def refused_if(wrong: Callable[[Any], bool]) -> Store:
    def early(value: Any) -> Any:
        if wrong(value):
            raise ValueError(f"can't store {value!r}")
        return value

    return early


def checked(store: Store, early: Store = kept, **options: Any) -> None:
    table = Table(store)
    SinkValues("a cell", lambda: table.sink(early), lambda: table.cells, **options).check()


def test_a_system_that_keeps_everything_keeps_the_law() -> None:
    checked(kept)


def test_a_value_that_is_refused_in_time_is_no_fault() -> None:
    checked(round, refused_if(lambda value: not isinstance(value, int)), values=st.integers() | st.text())


def test_a_value_that_changes_breaks_the_law() -> None:
    with pytest.raises(AssertionError, match=r"'values' is broken: a cell: b\"'\" becomes b\"''\""):
        checked(lambda value: value.replace(b"'", b"''"), values=st.binary(), examples=200)


def test_a_value_that_changes_beside_another_breaks_the_law() -> None:
    class Mixing(Sink):
        def prepare(self, transaction: int) -> Any:
            number, rows = super().prepare(transaction)
            kinds = {type(value) for _, value in rows}
            return number, [(at, value if len(kinds) == 1 else str(value)) for at, value in rows]

    table = Table(kept)
    with pytest.raises(AssertionError, match=r"becomes '.*written together with"):
        SinkValues("c", lambda: Mixing(table, kept), lambda: table.cells, values=st.integers() | st.none()).check()


def test_an_error_that_names_no_value_breaks_the_law() -> None:
    def early(value: Any) -> Any:
        raise ValueError("something is wrong")

    with pytest.raises(AssertionError, match="names none of the refused values"):
        checked(kept, early, values=st.text(min_size=1))


def test_a_refusal_by_the_commit_breaks_the_law() -> None:
    def store(value: Any) -> Any:
        raise ValueError(f"can't store {value!r}")

    with pytest.raises(AssertionError, match="refused by the commit only"):
        checked(store, values=st.integers())


def test_a_value_that_vanishes_breaks_the_law() -> None:
    with pytest.raises(AssertionError, match="7 is not there, and there was no error"):
        SinkValues("a cell", lambda: Table(kept).sink(), dict, values=st.just(7)).check()


def test_a_change_that_a_page_tells_keeps_the_law(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Numbers are\nrounded to integers.")
    options: dict[str, Any] = {"values": st.decimals(0, 9, places=1), "docs": [page]}
    checked(round, changes={"Numbers are rounded to integers.": round}, **options)
    with pytest.raises(AssertionError, match="no page has the line 'Numbers are cut"):
        checked(int, changes={"Numbers are cut to integers.": int}, **options)


def test_a_sink_without_transactions_is_held_to_the_law() -> None:
    class AtLeastOnce(Sink):
        delivery = "at-least-once"

        def flush(self) -> None:
            self.commit([self.prepare(0)])

    table = Table(str.strip)
    with pytest.raises(AssertionError, match=r"' ' becomes ''"):
        SinkValues("c", lambda: AtLeastOnce(table, kept), lambda: table.cells, values=st.just(" ")).check()


def test_a_source_that_reads_two_values_as_one_breaks_the_law() -> None:
    cells: list[Any] = []

    def write(values: Sequence[Any]) -> None:
        cells[:] = values

    def source(load: Store) -> SourceValues:
        return SourceValues(
            "a text",
            lambda: ScriptedSource([{"n": at, "v": load(value)} for at, value in enumerate(cells)]),
            write,
            values=st.sampled_from(["1", "01"]),
            same=lambda wrote, read: str(read) == wrote,
        )

    source(str).check()
    with pytest.raises(AssertionError, match="assert_source: the law 'values' is broken: a text: '01' becomes 1"):
        source(int).check()


@pytest.mark.slow
def test_the_suites_check_values_that_are_passed() -> None:
    table = AnyTable()
    kind = SinkValues("a cell", lambda: Good(table), lambda: {n: str(v) for n, v in table.rows[-9:]}, values=st.just(7))
    with pytest.raises(AssertionError, match="'values' is broken: a cell: 7 becomes '7'"):
        assert_sink(
            lambda: Good(table),
            lambda: table.rows,
            make_value=lambda number: (number, 0),
            values=[replace(kind, make_record=lambda number, value: (number, value))],
        )
    assert_source(lambda: ScriptedSource({"a": [1]}), values=[])


def test_values_are_compared_exactly() -> None:
    assert not same_value(0.0, -0.0)
    assert not same_value(1, True)
    assert not same_value(2**53 + 1, float(2**53))
    assert same_value([1, {"a": (2,)}], [1, {"a": [2]}])
