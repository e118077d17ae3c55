"""Names of operators: they come from the text, and no edit elsewhere moves them."""

from __future__ import annotations

import pytest

from malflow import GraphError, StreamProvider
from malflow.graph import Graph
from malflow.sources import SingleIteratorSource
from malflow.testing import sql_dataflow

BIDS = """
CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids');
CREATE TABLE hot (a TIMESTAMP(3), n BIGINT) WITH ('url' = 'kafka://broker/hot');
"""
ROWS = "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
WINDOW = "GROUP BY window_start, window_end"
HOT = f"INSERT INTO hot SELECT window_start, COUNT(*) {ROWS} {WINDOW};"


def names_of(text: str) -> list[str]:
    """Return the names of the operators of a text."""
    graph = Graph()
    sql_dataflow(BIDS + text, "shop")(StreamProvider(graph))
    graph.close()
    return sorted({it.node.name for it in graph.vertices} - {"shop.bids", "shop.bids.row", "shop.bids.watermark"})


PLAIN = names_of(HOT)


def test_a_name_is_the_path_to_the_operator_and_its_kind() -> None:
    text = f"INSERT INTO hot WITH few AS (SELECT window_time, MAX(price) AS n {ROWS} {WINDOW}, window_time)"
    text += " SELECT a, COUNT(*) FROM (SELECT window_start AS a, window_start, window_end FROM TABLE(TUMBLE(TABLE few,"
    text += " DESCRIPTOR(window_time), INTERVAL '1' MINUTE))) AS Minutes GROUP BY a, window_start, window_end;"
    found = names_of(text)
    assert {"shop.hot.few.window", "shop.hot.Minutes.calc", "shop.hot.window", "shop.hot"} <= {*found}
    assert not [it for it in found if it[-1].isdigit()]


@pytest.mark.parametrize(
    "text",
    [
        f"INSERT INTO hot SELECT window_start, COUNT(*) {ROWS} WHERE price > 1 AND channel = 'a' {WINDOW};",
        f"INSERT INTO hot SELECT window_start, COUNT(*) {ROWS} {WINDOW} HAVING COUNT(*) > 1;",
        f"INSERT INTO hot (n, a) SELECT COUNT(*) + 1, window_start {ROWS} {WINDOW};",
        f"INSERT INTO hot SELECT window_start AS x, COUNT(*) {ROWS} {WINDOW}; -- a comment",
        f"INSERT INTO hot SELECT window_end, MAX(item) {ROWS} {WINDOW};",
        f"CREATE TABLE d (x DECIMAL(10, 2)) WITH ('url' = 'kafka://b/d'); INSERT INTO d SELECT price FROM bids; {HOT}",
        f"{HOT} CREATE VIEW v AS SELECT ts FROM bids; CREATE TABLE d (x TIMESTAMP(3)) WITH ('url' = 'kafka://b/d');"
        " INSERT INTO d SELECT * FROM v;",
        f"CREATE TABLE d (x BIGINT) WITH ('url' = 'kafka://b/d'); INSERT INTO d SELECT n FROM hot; {HOT}",
    ],
    ids=[
        "where",
        "having",
        "columns",
        "aliases",
        "projection",
        "insert before",
        "insert after",
        "a reader of the sink",
    ],
)
@pytest.mark.fault("U9")
def test_an_edit_elsewhere_moves_no_name(text: str) -> None:
    assert {*PLAIN} <= {*names_of(text)}


def test_siblings_without_a_name_have_numbers() -> None:
    found = names_of(f"{HOT} {HOT}")
    assert {*PLAIN, "shop.hot.window2", "shop.hot.calc2"} <= {*found}


def test_a_hint_pins_the_names_of_a_select() -> None:
    pinned = HOT.replace("SELECT", "SELECT /*+ NAME('few') */")
    assert {"shop.few.window", "shop.few.calc", "shop.hot"} <= {*names_of(pinned)}
    assert {*names_of(pinned), *PLAIN} <= {*names_of(f"{HOT} {pinned}")}


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (HOT.replace("SELECT", "SELECT /*+ NAME('few') */") * 2, ["SQL:5:28", "SQL:5:196"]),
        (HOT + HOT.replace("SELECT", "SELECT /*+ NAME('hot') */"), ["SQL:5:177"]),
    ],
    ids=["of two hints", "of a hint and a target"],
)
def test_equal_names_are_faults_at_their_places(text: str, places: list[str]) -> None:
    with pytest.raises(GraphError, match=r"two operators are called 'shop.(few|hot).windows'") as caught:
        names_of(text)
    assert [it.split(": ")[0] for it in str(caught.value).splitlines() if it.startswith("SQL:")] == places


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO hot SELECT ts, item FROM bids /*+ NAME('x') */;", "NAME is written after SELECT"),
        ("INSERT INTO hot SELECT /*+ NAME('x'), NAME('y') */ ts, item FROM bids;", "NAME comes twice"),
        ("INSERT INTO hot SELECT /*+ NAME('x/y') */ ts, item FROM bids;", "NAME has one name in it, without a /"),
        ("INSERT INTO hot SELECT /*+ NAME */ ts, item FROM bids;", "NAME has one"),
        ("INSERT INTO hot SELECT /*+ NAME('a' = 'b') */ ts, item FROM bids;", "NAME has one"),
    ],
)
def test_hints_at_wrong_places_are_refused(text: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        names_of(text)


def test_two_queries_of_python_have_two_names() -> None:
    sql = StreamProvider(Graph()).sql("shop")
    sql.table("t", StreamProvider(Graph()).new_stream().source("s", SingleIteratorSource([])), "id BIGINT")
    sql.query("q", "SELECT id FROM t")
    with pytest.raises(GraphError, match="there is a query, table or view 'q' already"):
        sql.query("q", "SELECT id FROM t")
