"""`run_sql` runs a text on lists."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError
from malflow.testing import PAUSE, run_sql

TEXT = """
CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('url' = 'kafka://broker/bids');
CREATE TABLE highest (since TIMESTAMP(3), item BIGINT, price DECIMAL(10, 2)) WITH ('url' = 'kafka://broker/highest');
CREATE VIEW dear AS SELECT * FROM bids WHERE price > 1;
INSERT INTO highest SELECT window_start, item, MAX(price) FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '10'
  SECOND)) GROUP BY window_start, window_end, item;
"""


def bid(item: int, price: str, second: int) -> tuple[Any, ...]:
    return item, price, datetime(2026, 3, 1, 0, 0, second)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_take_late_rows_while_they_are_open_and_close_at_the_end(parallelism: int) -> None:
    bids = [bid(1, "2.5", 1), bid(1, "0.5", 2), bid(2, "3.0", 14), PAUSE, bid(1, "9.0", 9), bid(1, "8.0", 21), PAUSE]
    bids += [bid(1, "99.0", 3)]
    found = run_sql(TEXT, {"bids": bids}, parallelism=parallelism)["highest"]
    assert sorted((it["since"].second, it["item"], it["price"]) for it in found) == [
        (0, 1, Decimal("9.00")),
        (10, 2, Decimal("3.00")),
        (20, 1, Decimal("8.00")),
    ]


def test_a_file_is_run(tmp_path: Path) -> None:
    (tmp_path / "highest.sql").write_text(TEXT)
    assert run_sql(tmp_path / "highest.sql", {"bids": []}) == {"highest": []}


@pytest.mark.parametrize(
    ("tables", "words"),
    [({"bid": []}, "table 'bids' is read, and has no rows; did you mean 'bid'"), ({"bids": [], "b": []}, "table 'b'")],
)
def test_lists_of_other_tables_are_refused(tables: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        run_sql(TEXT, tables)
