"""Edits of a text under a running snapshot: what is kept goes on as if it had never been interrupted.

Each row says whether it came before the edit. So one query that was never edited says what the edited one must give:
its conditions and operands choose by that column.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.state_specs import states_of
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sql.text import SqlError
from malflow.testing import END, sql_dataflow
from malflow.testing.scripted import ScriptedSource
from tests.kit.backends import in_memory

BIDS = """
CREATE TABLE bids (part INT, item BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
CREATE TABLE hot (a STRING, b STRING, c STRING, d STRING) WITH ('url' = 'kafka://broker/hot');
CREATE TABLE other (a STRING) WITH ('url' = 'kafka://broker/other');
"""
Row = tuple[Any, ...]


def bids(seed: int, count: int = 30) -> list[Row]:
    """Return bids out of order within the bound, with NULLs; the second half comes after the edit."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return [
        (
            int(at >= count // 2),
            draw.randrange(3),
            draw.choice([None, draw.randrange(100)]),
            draw.choice(["a", "b", None]),
            max(0, at * 700 - draw.randrange(3_000)),
        )
        for at in range(count)
    ]


def run(
    text: str, script: Sequence[Any], backend: FsspecBackend | None = None, *, scaled: Any = abs, **options: Any
) -> Counter[Row]:
    """Run a text, and return the rows that it inserts into `hot`."""
    sinks: dict[str, VecSink[Any, Any, Any]] = {}

    def build(provider: Any) -> None:
        def connect(name: str, _url: str, _options: Any) -> Any:
            return ScriptedSource(script) if name == "bids" else sinks.setdefault(name, VecSink())

        sql = provider.sql("shop", connect=connect)
        if scaled is not abs:
            sql.function(scaled, "scaled")
        sql.run(f"{BIDS}{text}")

    if backend is not None:
        options["persistence"] = backend
    SingleThreadRuntime(build, **options).execute()
    return Counter(tuple(it.values()) for it in sinks["hot"].values)


def edited(old: str, new: str, rows: Sequence[Row], **options: Any) -> Counter[Row]:
    """Return the rows that the new text inserts after it has replaced the old one."""
    cut = len(rows) // 2
    script, backend = [*rows[:cut], END, *rows[cut:]], in_memory()
    run(old, script, backend, at_end="keep")
    return run(new, script, backend, at_end="finish", **options)


def uninterrupted(text: str, rows: Sequence[Row]) -> Counter[Row]:
    """Return the rows that a text inserts after the first half of its input, in one run."""
    return run(text, rows) - run(text, rows[: len(rows) // 2], in_memory(), at_end="keep")


SOURCES = {
    "tumble": "TABLE(TUMBLE(TABLE {rows}, DESCRIPTOR(ts), INTERVAL '8' SECOND))",
    "hop": "TABLE(HOP(TABLE {rows}, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '9' SECOND))",
    "cumulate": "TABLE(CUMULATE(TABLE {rows}, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '9' SECOND))",
    "counting": "TABLE(COUNTING(TABLE {rows} PARTITION BY item, 4))",
    "session": "TABLE(SESSION(TABLE {rows} PARTITION BY item, DESCRIPTOR(ts), INTERVAL '2' SECOND))",
}
AGGREGATES = ["SUM(price)", "COUNT(*)", "MAX(price)", "AVG(price)", "COUNT(DISTINCT channel)", "MIN(channel)"]
AGGREGATES += ["COUNT(price)", "LAST_VALUE(channel)", "SUM(price * 2)", "COUNT(*) FILTER (WHERE price > 50)"]
CONDITIONS = ["price > 30", "channel = 'a'", "channel IS NULL OR price < 60", "item <> 1"]


def query(
    source: str, columns: Sequence[str], where: str = "", having: str = "", rows: str = "bids", keys: str = "item"
) -> str:
    """Return an INSERT of a query of windows with four columns."""
    items = [*columns, *["CAST(NULL AS STRING)"] * (4 - len(columns))]
    shown = ", ".join(f"CAST({it} AS STRING)" for it in items)
    text = f"INSERT INTO hot SELECT {shown} FROM {SOURCES[source].format(rows=rows)}"
    text += f" WHERE {where}" if where else ""
    return f"{text} GROUP BY window_start, window_end, {keys}{f' HAVING {having}' if having else ''};"


@given(
    st.sampled_from([it for it in SOURCES if it != "counting"]),  # takes no WHERE
    st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_edits_that_are_kept_go_on_as_one_run(source: str, aggregates: list[str], data: st.DataObject) -> None:
    """Aggregates are removed, moved and renamed, conditions change, and statements come and go, all at once."""
    kept = data.draw(st.lists(st.sampled_from(aggregates), unique=True, max_size=3), "kept")
    before = data.draw(st.sampled_from(["", *CONDITIONS]), "before")
    after = data.draw(st.sampled_from(["", *CONDITIONS]), "after")
    having = data.draw(st.sampled_from(["", *[f"{it} IS NOT NULL" for it in kept]]), "having")
    rows = bids(data.draw(st.integers(0, 99), "seed"))
    columns = data.draw(st.permutations(["item", *kept]), "columns")
    other = data.draw(st.sampled_from(["", "INSERT INTO other SELECT channel FROM bids;"]), "other")
    new = f"{other} -- a comment\n{query(source, columns, after, having).replace(' GROUP', '  GROUP')}"
    merged = f"(part = 0 AND ({before or 'TRUE'})) OR (part = 1 AND ({after or 'TRUE'}))"
    found = edited(query(source, ["item", *aggregates], before), new, rows)
    assert found == uninterrupted(query(source, columns, merged, having), rows)


PARTS = {
    "SUM(price)": {"sum price"},
    "COUNT(*)": {"count"},
    "MAX(price)": {"max price"},
    "AVG(price)": {"sum price", "count price"},
    "COUNT(price)": {"count price"},
    "STDDEV_POP(price)": {"sum price", "count price", "squares price"},
    "COUNT(DISTINCT channel)": {"channels"},
    "SUM(price * 2)": {"sum twice the price"},
}
"""What each aggregate must know of the rows so far."""


def definition_of(text: str) -> str:
    """Return the definition of the window of a text."""
    graph = Graph()
    sql_dataflow(f"{BIDS}{text}", "shop")(StreamProvider(graph))
    return next(it.definition or "" for it in states_of(compile_graph(graph)) if it.name == "shop.hot.window")


@given(
    st.sampled_from(["tumble", "hop", "session", "counting"]),
    st.lists(st.sampled_from([*PARTS]), max_size=3, unique=True),
    st.lists(st.sampled_from([*PARTS]), max_size=3, unique=True),
    st.integers(0, 5),
    st.integers(0, 99),
)
def test_an_edit_is_kept_if_the_state_knows_enough(
    source: str, before: list[str], after: list[str], other: int, seed: int
) -> None:
    rows, keys = bids(seed), "channel, item" if other == 5 and source in {"tumble", "hop"} else "item"
    old = query(source, ["item", *before])
    new = query(source, ["item", *after], keys=keys)
    known = {part for it in before for part in PARTS[it]}
    if keys == "item" and known.issuperset(part for it in after for part in PARTS[it]):
        assert edited(old, new, rows) == uninterrupted(new, rows)
        return
    with pytest.raises(SnapshotError) as refused:
        edited(old, new, rows)
    reason = f"'shop.hot.window' is {definition_of(new)}, but in snapshot 2 it is {definition_of(old)}; restore it"
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (
            query("tumble", ["item", "SUM(price)"]),
            query("tumble", ["k", "SUM(p)"], rows="few", keys="k")
            .replace("INSERT", "CREATE VIEW few AS SELECT price AS p, ts, item AS k FROM bids; INSERT")
            .replace("SUM(p)", "sum( p )"),
            query("tumble", ["item", "SUM(price)"]),
        ),
        (
            query("tumble", ["item", "SUM(price)", "COUNT(price)"]),
            query("tumble", ["item", "AVG(price)"]),
            query("tumble", ["item", "AVG(price)"]),
        ),
        (
            query("tumble", ["item", "channel", "COUNT(*)"], keys="item, channel"),
            query("tumble", ["item", "channel", "COUNT(*)"], keys="channel, item"),
            query("tumble", ["item", "channel", "COUNT(*)"], keys="item, channel"),
        ),
        (
            query("tumble", ["item", "SUM(price)"]),
            query("tumble", ["item"]),
            query("tumble", ["item"]),
        ),
        (
            query("tumble", ["item"]),
            query("tumble", ["COUNT(*) IS NULL"]).replace("COUNT(*)", "item"),
            query("tumble", ["item IS NULL"]),
        ),
    ],
    ids=["a view, aliases and layout", "an aggregate of parts", "the order of keys", "the last aggregate", "none"],
)
def test_a_state_is_known_by_its_meaning(old: str, new: str, same: str) -> None:
    rows = bids(5)
    assert edited(old, new, rows) == uninterrupted(same, rows)


def test_the_body_of_a_function_may_change() -> None:
    rows, cut = bids(9), 15
    text = query("tumble", ["item", "SUM(scaled(price))"])
    script, backend = [*rows[:cut], END, *rows[cut:]], in_memory()

    def twice(x: int) -> int:
        return 2 * x

    def thrice(x: int) -> int:
        return 3 * x

    run(text, script, backend, scaled=twice, at_end="keep")
    found = run(text, script, backend, scaled=thrice, at_end="finish")
    assert found == uninterrupted(query("tumble", ["item", "SUM(price * (2 + part))"]), rows)


def test_the_delay_of_a_watermark_may_change() -> None:
    rows = bids(3)
    text = query("tumble", ["item", "COUNT(*)"])
    backend, script = in_memory(), [*rows[:15], END, *rows[15:]]
    run(text, script, backend, at_end="keep")
    global BIDS  # noqa: PLW0603 - the tables are a part of the text
    was, BIDS = BIDS, BIDS.replace("INTERVAL '3' SECOND", "INTERVAL '9' SECOND")
    try:
        found = run(text, script, backend, at_end="finish")
    finally:
        BIDS = was
    assert found == uninterrupted(text, rows), "no row is late in either"


JOIN = """INSERT INTO hot SELECT CAST(l.price AS STRING), l.channel, CAST(r.price AS STRING), {d} FROM (SELECT {left}
  FROM bids) l {how} JOIN bids r ON l.item = r.item AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '2' SECOND;"""
TOP = """INSERT INTO hot SELECT CAST(item AS STRING), channel, {c}, CAST(rn AS STRING) FROM (SELECT {columns},
  ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, ts, item, channel) AS rn
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND))) WHERE rn <= 2;"""
ROWS = """INSERT INTO hot SELECT CAST(l.item AS STRING), {b}, CAST(r.price AS STRING), r.channel
  FROM (SELECT {left} FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND))) l
  JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND)) WHERE price > 40) r
  ON l.item = r.item AND l.window_start = r.window_start AND l.window_end = r.window_end;"""
NOTHING = "CAST(NULL AS STRING)"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        (
            JOIN.format(left="part, item, price, channel, ts", how="LEFT", d="r.channel"),
            JOIN.format(left="ts, channel, item, price", how="LEFT", d=NOTHING),
            None,
        ),
        (
            JOIN.format(left="*", how="INNER", d="r.channel"),
            JOIN.format(left="*", how="INNER", d="CAST(r.part AS STRING)").replace(";", " WHERE r.price > 9;"),
            None,
        ),
        (
            TOP.format(c="CAST(price AS STRING)", columns="item, price, channel"),
            TOP.format(c=NOTHING, columns="channel, item"),
            None,
        ),
        (
            ROWS.format(b="l.channel", left="*"),
            ROWS.format(b=NOTHING, left="window_end, item, window_start, ts"),
            None,
        ),
    ],
    ids=["fewer columns of a side", "other columns and a condition", "columns of the first rows", "rows of a window"],
)
def test_rows_in_a_state_find_their_columns_by_name(old: str, new: str, merged: str | None, seed: int) -> None:
    rows = bids(seed)
    found = edited(old, new, rows)
    assert found == uninterrupted(merged or new, rows)
    assert found


SUM = query("tumble", ["item", "SUM(price)"])


@pytest.mark.parametrize(
    ("old", "new", "definitions"),
    [
        (SUM, query("tumble", ["item", "SUM(price)"], keys="item, channel"), ("by item", "by channel STRING, item")),
        (SUM, SUM.replace("'8'", "'9'"), ("TUMBLE 0:00:08", "TUMBLE 0:00:09")),
        (SUM, query("hop", ["item", "SUM(price)"]), ("TUMBLE 0:00:08", "HOP 0:00:09 every 0:00:03")),
        (SUM, query("tumble", ["item", "MAX(price)"]), ("sum(price)", "max(price)")),
        (SUM, query("tumble", ["item", "SUM(CAST(price AS INT))"]), ("sum(price) BIGINT", "AS INT)) INT")),
        (
            query("tumble", ["SUM(price)"], keys="item + 1"),
            query("tumble", ["SUM(price)"], keys="item + 2"),
            ("by item + 1 BIGINT", "by item + 2 BIGINT"),
        ),
        (
            JOIN.format(left="*", how="LEFT", d="r.channel"),
            JOIN.format(left="*", how="LEFT", d="r.channel").replace("'2'", "'3'"),
            ("to 0:00:02 after", "to 0:00:03 after"),
        ),
        (
            JOIN.format(left="*", how="LEFT", d="r.channel"),
            JOIN.format(left="*", how="LEFT", d="r.channel").replace("l.item = r", "l.price = r"),
            ("ON item = item", "ON price = item"),
        ),
        (
            JOIN.format(left="price, channel, item, ts", how="INNER", d="r.channel"),
            JOIN.format(left="price, channel, item, ts, part", how="INNER", d="CAST(l.part AS STRING)"),
            ("ts TIMESTAMP(3);;", "part INT;;"),
        ),
        (
            TOP.format(c=NOTHING, columns="item, channel"),
            TOP.format(c=NOTHING, columns="item, channel").replace("price DESC", "price"),
            ("price DESC NULLS LAST", "price NULLS FIRST"),
        ),
        (
            TOP.format(c=NOTHING, columns="item, channel"),
            TOP.format(c=NOTHING, columns="item, channel").replace("<= 2", "<= 3"),
            ("the first 2 rows", "the first 3 rows"),
        ),
    ],
    ids=[
        "keys",
        "size",
        "kind of window",
        "aggregate",
        "type",
        "expression of a key",
        "bound",
        "key of a join",
        "column of a join",
        "order",
        "count",
    ],
)
def test_a_refusal_names_both_definitions(old: str, new: str, definitions: tuple[str, str]) -> None:
    rows = bids(1)
    with pytest.raises(SnapshotError) as refused:
        edited(old, new, rows)
    is_, was = str(refused.value).split(", but in snapshot")
    assert (definitions[1] in is_, definitions[0] in was) == (True, True), refused.value
    operator = str(refused.value).split("'")[1]
    assert f"allow_dropped_state=['{operator}']" in str(refused.value)
    dropped = edited(old, new, rows, allow_dropped_state=[operator])
    assert dropped, "the state is dropped by name, and the rest goes on"


def test_the_units_of_time_can_not_change() -> None:
    rows = bids(1)
    script, backend = [*rows[:15], END, *rows[15:]], in_memory()
    run(SUM, script, backend, at_end="keep")
    global BIDS  # noqa: PLW0603 - the tables are a part of the text
    was, BIDS = BIDS, BIDS.replace("TIMESTAMP(3)", "TIMESTAMP(6)")
    try:
        with pytest.raises(SnapshotError, match=r"'shop.bids.watermark' is epochs of TIMESTAMP\(6\), but"):
            run(SUM, script, backend, at_end="finish", allow_dropped_state=["shop.bids.watermark"])
    finally:
        BIDS = was


FROM_NOW = "SET 'malflow.new-aggregates' = 'from-now';"


@pytest.mark.parametrize("source", [*SOURCES])
def test_an_aggregate_that_is_added_is_null_or_zero_until_then(source: str) -> None:
    """The same columns for each row of before the edit that they have for no row."""
    rows, old = bids(4), query(source, ["item", "MAX(price)"])
    added = ["SUM(price)", "COUNT(channel)", "MAX(price)"]
    since = [f"{it} FILTER (WHERE part = 1)" for it in added[:2]]
    found = edited(old, FROM_NOW + query(source, [*added, "item"]), rows)
    assert found == uninterrupted(query(source, [*since, "MAX(price)", "item"]), rows)


def test_a_column_of_a_join_that_is_added_is_null_until_then() -> None:
    rows = bids(6)
    old = JOIN.format(left="item, price, channel, ts", how="INNER", d="r.channel")
    new = JOIN.format(left="item, price, channel, ts, part", how="INNER", d="CAST(l.part AS STRING)")
    since = JOIN.format(left="*", how="INNER", d="CAST(NULLIF(l.part, 0) AS STRING)")
    assert edited(old, FROM_NOW + new, rows) == uninterrupted(since, rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FROM_NOW.replace("from-now", "from now"), "is one of 'refuse', 'from-now'; got 'from now'"),
        (f"{SUM} {FROM_NOW}", "is for the states of all queries; write it before the first one"),
    ],
)
def test_the_setting_of_new_aggregates_is_refused_where_it_says_nothing(text: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        run(text, [])


def test_a_query_that_gets_an_alias_is_renamed() -> None:
    rows = bids(2)
    nested = "INSERT INTO hot SELECT a, b, a, b FROM (SELECT CAST(item AS STRING) AS a, CAST(SUM(price) AS STRING) AS b"
    nested += f" FROM {SOURCES['tumble'].format(rows='bids')} GROUP BY window_start, window_end, item)"
    cure = "renamed={'shop.hot.window': 'shop.hot.few.window'}"
    with pytest.raises(SnapshotError) as refused:
        edited(f"{nested};", f"{nested} AS few;", rows)
    assert cure in str(refused.value)
    names = {"shop.hot.window": "shop.hot.few.window"}
    assert edited(f"{nested};", f"{nested} AS few;", rows, renamed=names) == uninterrupted(f"{nested};", rows)


def test_a_second_edit_finds_what_the_first_has_left() -> None:
    """The parts of a state are stored as the program has them that took the snapshot."""
    rows = bids(7)
    script, backend = [*rows[:10], END, *rows[10:20], END, *rows[20:]], in_memory()
    texts = [
        ["COUNT(*)", "item", "SUM(price)", "MAX(price)"],
        ["MAX(price)", "item", "COUNT(*)"],
        ["item", "MAX(price)"],
    ]
    for columns in texts[:2]:
        run(query("tumble", columns), script, backend, at_end="keep")
    found = run(query("tumble", texts[2]), script, backend, at_end="finish")
    last = query("tumble", texts[2])
    assert found == run(last, rows) - run(last, rows[:20], in_memory(), at_end="keep")


def test_a_session_of_nulls_is_kept() -> None:
    """Its state keeps the sum of no value."""
    rows = [(0, 1, None, "a", 0), (1, 1, 7, "a", 60_000)]
    found = edited(query("session", ["SUM(price)", "COUNT(*)"]), query("session", ["SUM(price)"]), rows)
    assert found == {(None,) * 4: 1, ("7", None, None, None): 1}


def test_a_state_of_an_edited_text_moves_to_other_workers() -> None:
    rows = bids(8)
    found = edited(query("session", ["item", "SUM(price)", "COUNT(*)"]), query("session", ["COUNT(*)"]), rows)
    assert found == uninterrupted(query("session", ["COUNT(*)"]), rows)
    more = edited(
        query("session", ["item", "SUM(price)", "COUNT(*)"]), query("session", ["COUNT(*)"]), rows, parallelism=3
    )
    assert more == found
