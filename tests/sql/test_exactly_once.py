"""Queries over time survive crashes and rescales: the same rows, whatever interrupts their runs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from malflow.testing import assert_exactly_once, sql_dataflow

pytestmark = pytest.mark.slow

BIDS = """
CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('url' = 'kafka://broker/bids', 'late' = 'late_bids');
CREATE TABLE lost (item BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3)) WITH ('url' = 'kafka://b/lost');
"""

QUERIES = {
    "tumble": (
        "a TIMESTAMP(3), item BIGINT, m DECIMAL(10, 2), n BIGINT, mean DECIMAL(38, 6), d BIGINT, c STRING",
        """SELECT /*+ LATE('lost') */ window_start, item, MAX(price), COUNT(*),
        AVG(price), COUNT(DISTINCT channel), MIN(channel)
        FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, item""",
    ),
    "session": (
        "a TIMESTAMP(3), b TIMESTAMP(3), item BIGINT, n BIGINT",
        """SELECT window_start, window_end, item, COUNT(*) FROM TABLE(SESSION(TABLE bids PARTITION BY item,
        DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, item""",
    ),
    "top": (
        "a TIMESTAMP(3), item BIGINT, price DECIMAL(10, 2), rn BIGINT",
        """SELECT window_start, item, price, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
        ORDER BY price DESC, ts, item, channel) AS rn FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND,
        INTERVAL '4' SECOND))) WHERE rn <= 2""",
    ),
    "join": (
        "item BIGINT, p DECIMAL(10, 2), q DECIMAL(10, 2)",
        """SELECT l.item, l.price, r.price FROM bids l LEFT JOIN bids r ON l.item = r.item
        AND r.ts BETWEEN l.ts + INTERVAL '1' SECOND AND l.ts + INTERVAL '2' SECOND""",
    ),
    "counting": (
        "a BIGINT, b BIGINT, item BIGINT, p DECIMAL(38, 2), t TIMESTAMP(3)",
        """SELECT window_start, window_end, item, SUM(price), FIRST_VALUE(ts) FROM TABLE(COUNTING(TABLE bids
        PARTITION BY item, 3)) GROUP BY window_start, window_end, item""",
    ),
    "rows of sessions": (
        "a TIMESTAMP(3), item BIGINT, price DECIMAL(10, 2)",
        """SELECT window_start, item, price FROM TABLE(SESSION(TABLE bids PARTITION BY item, DESCRIPTOR(ts),
        INTERVAL '2' SECOND))""",
    ),
    "late": (
        "item BIGINT, ts TIMESTAMP(3), is_late BOOLEAN",
        """SELECT item, ts, TRUE FROM late_bids UNION ALL
        SELECT item, ts, FALSE FROM bids WHERE CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts)""",
    ),
    "windows": (
        "a TIMESTAMP(3), n BIGINT",
        """WITH few AS (SELECT window_time, item, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts),
        INTERVAL '2' SECOND)) GROUP BY window_start, window_end, window_time, item) SELECT window_start, SUM(n)
        FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(window_time), INTERVAL '6' SECOND))
        GROUP BY window_start, window_end""",
    ),
}


def bids(seed: int, count: int) -> list[dict[str, Any]]:
    """Return bids out of order, some of them late."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return [
        {
            "item": draw.randrange(3),
            "price": str(draw.randrange(100) / 4),
            "channel": draw.choice(["a", "b", None]),
            "ts": f"2026-03-01 00:00:{max(0, at - draw.randrange(6)):02}",
        }
        for at in range(count)
    ]


def text_of(names: list[str]) -> str:
    """Return the statements of some queries."""
    parts = [BIDS]
    for name in names:
        columns, query = QUERIES[name]
        parts.append(f"CREATE TABLE \"{name}\" ({columns}) WITH ('url' = 'kafka://broker/{name}');".replace('"', "`"))
        parts.append(f"INSERT INTO `{name}` {query};")
    return "\n".join(parts)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.fault("U8")
def test_a_query_gives_the_same_rows_after_crashes_and_rescales(name: str) -> None:
    assert_exactly_once(sql_dataflow(text_of([name])), {"sql.bids": bids(len(name), 20)}, max_examples=6)


def test_queries_give_the_same_rows_in_processes() -> None:
    flow = sql_dataflow(text_of([*QUERIES]))
    assert_exactly_once(flow, {"sql.bids": bids(7, 20)}, max_examples=2, runtime="processes")
