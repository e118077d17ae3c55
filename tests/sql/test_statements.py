"""Statements that are no queries: what they change, what they answer, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import run_sql

TABLES = """
CREATE TABLE bids (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('url' = 'bids.jsonl');
CREATE TABLE one (id INT) WITH ('url' = 'one.jsonl');
CREATE TABLE two (id INT) WITH ('url' = 'two.jsonl');
"""
BIDS = [(1, "2026-03-01 00:00:01"), (2, "2026-03-01 00:00:02"), (3, "2026-03-01 00:00:03")]

TWICE = {
    "by two INSERTs": "CREATE VIEW v AS SELECT * FROM bids WHERE id > 1; INSERT INTO one SELECT id FROM v;"
    "INSERT INTO two SELECT id FROM v",
    "by a join": "CREATE VIEW v AS SELECT * FROM bids WHERE id > 1;"
    "INSERT INTO one SELECT l.id FROM v l JOIN v r ON l.id = r.id AND l.ts = r.ts; INSERT INTO two SELECT id FROM v",
    "of WITH": "INSERT INTO one WITH v AS (SELECT * FROM bids WHERE id > 1) "
    "SELECT l.id FROM v l JOIN v r ON l.id = r.id AND l.ts = r.ts; INSERT INTO two SELECT id FROM bids WHERE id > 1",
}


@pytest.mark.parametrize("way", TWICE)
def test_a_view_is_read_twice(way: str) -> None:
    rows = [{"id": 2}, {"id": 3}]
    assert run_sql(TABLES + TWICE[way], {"bids": BIDS}) == {"one": rows, "two": rows}


def test_an_error_in_a_view_has_the_place_in_its_own_text() -> None:
    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([(0,)])), "id BIGINT")
        sql.run("CREATE VIEW v AS\nSELECT 10 / id AS part FROM t")
        sql.query("q", "SELECT part + 1 AS more FROM v").rows().sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"operator 's\.v\.calc' .*division by zero in '10 / id' \(SQL:2:8\)"):
        SingleThreadRuntime(build).execute()
