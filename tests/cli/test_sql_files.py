"""A file of SQL is a flow: of the command line, on each runtime, with state that outlives a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime
from malflow.sql.api import sql_flow
from tests.cli.conftest import Malflow

TEXT = """
CREATE TABLE bids (auction BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('url' = '{folder}/bids.jsonl');
CREATE TABLE dear (auction BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3));
CREATE TABLE totals (since TIMESTAMP(3), channel STRING, n BIGINT, total DECIMAL(12, 2))
  WITH ('url' = '{folder}/totals.jsonl');
INSERT INTO dear SELECT * FROM bids WHERE price >= 10;
INSERT INTO totals SELECT window_start, channel, COUNT(*), CAST(SUM(price) AS DECIMAL(12, 2))
  FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, channel;
"""


CHANNELS = ("web", "app", None)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A file of SQL, and bids to read."""
    bids = [
        {"auction": at, "price": at % 20 + 0.5, "channel": CHANNELS[at % 3], "ts": f"2026-03-01 00:{at:02}:30"}
        for at in range(60)
    ]
    (tmp_path / "bids.jsonl").write_text("".join(f"{json.dumps(it)}\n" for it in bids))
    file = tmp_path / "shop.sql"
    file.write_text(TEXT.format(folder=tmp_path))
    return file


def totals(shop: Path) -> list[tuple[Any, ...]]:
    """Return what the file has written."""
    lines = (shop.parent / "totals.jsonl").read_text().splitlines()
    return sorted((tuple(json.loads(line).values()) for line in lines), key=repr)


EXPECTED = sorted(
    [(f"2026-03-01 00:{at:02}:00.000", CHANNELS[at % 3], 1, at % 20 + 0.5) for at in range(60) if at % 20 >= 10],
    key=repr,
)


@pytest.mark.parametrize(
    "runtime",
    [SingleThreadRuntime, lambda build: MultiProcessRuntime(build, parallelism=2)],
    ids=["thread", "processes"],
)
def test_a_file_runs_on_each_host(shop: Path, runtime: Any) -> None:
    runtime(sql_flow(shop)).execute()
    assert totals(shop) == EXPECTED


def test_a_file_is_run_by_the_command_line(shop: Path, malflow: Malflow) -> None:
    """With kept state the last window stays open, for more rows of a later run."""
    ended = malflow("run", str(shop), "--persistence", str(shop.parent / "state"))
    assert ended.code == 0, ended.err
    assert totals(shop) == EXPECTED[:-1]
    again = malflow("run", str(shop), "--persistence", str(shop.parent / "state"))
    assert again.code == 0, again.err
    assert totals(shop) == EXPECTED[:-1]


def test_a_file_is_checked_and_drawn(shop: Path, malflow: Malflow) -> None:
    assert malflow("check", shop).code == 0
    drawn = malflow("graph", shop).out
    assert "shop.totals.window" in drawn
    assert "shop.sql:" in drawn


def test_the_faults_of_a_file_are_told_with_their_lines(shop: Path, malflow: Malflow) -> None:
    shop.write_text(shop.read_text().replace("SELECT * FROM bids", "SELECT auctoin FROM bids"))
    ended = malflow("check", str(shop))
    assert ended.code != 0
    assert "shop.sql:7:25: no column 'auctoin'; did you mean 'auction'?" in ended.out + ended.err


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path, malflow: Malflow) -> None:
    (tmp_path / "shop.sql").write_text("SELECT 1", encoding="utf-16")
    ended = malflow("check", str(tmp_path / "shop.sql"))
    assert "shop.sql is not UTF-8" in ended.out + ended.err


def test_a_file_of_sql_may_be_kept_from_importing_python(shop: Path, malflow: Malflow) -> None:
    (shop.parent / "own.py").write_text("def twice(x: int) -> int:\n    return 2 * x\n")
    shop.write_text(f"CREATE FUNCTION twice AS 'own:twice' LANGUAGE PYTHON;\n{shop.read_text()}")
    ended = malflow("run", str(shop), "--no-python")
    assert ended.code != 0
    assert "shop.sql:1:1: CREATE FUNCTION imports a module of Python, which is not allowed here" in ended.err
    assert malflow("run", str(shop)).code == 0
    refused = malflow("run", str(shop.parent / "own.py"), "--no-python")
    assert "own.py' is Python itself; --no-python is for a file of SQL" in refused.err


def planned(shop: Path, malflow: Malflow, *edits: tuple[str, str]) -> tuple[int, str]:
    """Run a file, edit it, and return the code and the output of `malflow plan`."""
    assert malflow("run", shop, "--persistence", shop.parent / "state").code == 0
    text = shop.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    shop.write_text(text)
    ended = malflow("plan", shop, "--persistence", shop.parent / "state")
    return ended.code, ended.out + ended.err


@pytest.mark.parametrize(
    ("edits", "code", "words"),
    [
        ([("INSERT INTO totals SELECT", "INSERT INTO totals   SELECT /* hourly */"), (">= 10", "> 12")], 0, ["= keep"]),
        ([("COUNT(*)", "CAST(7 AS BIGINT)")], 0, ["= keep", "without count(*)"]),
        ([("'5' SECOND", "'9' SECOND")], 0, ["= keep"]),
        (
            [("COUNT(*)", "MAX(auction)")],
            10,
            ["! changed", "max(auction) BIGINT", "'malflow.new-aggregates' = 'from-now'"],
        ),
        (
            [
                ("COUNT(*)", "MAX(auction)"),
                ("CREATE TABLE bids", "SET 'malflow.new-aggregates' = 'from-now';\nCREATE TABLE bids"),
            ],
            0,
            ["= keep", "max(auction) BIGINT from now on"],
        ),
        ([("'1' MINUTE", "'2' MINUTE")], 10, ["TUMBLE 0:01:00", "TUMBLE 0:02:00", "--drop shop.totals.window"]),
        (
            [("window_end, channel", "window_end, auction"), (", channel,", ", CAST(auction AS STRING),")],
            10,
            ["by channel STRING", "by auction BIGINT"],
        ),
        (
            [("INSERT INTO totals SELECT", "INSERT INTO totals SELECT /*+ NAME('few') */")],
            10,
            ["--rename shop.totals.window=shop.few.window"],
        ),
    ],
    ids=["layout and WHERE", "aggregate removed", "delay", "added", "from now", "size", "keys", "name"],
)
def test_a_plan_says_what_an_edit_does(
    shop: Path, malflow: Malflow, edits: list[tuple[str, str]], code: int, words: list[str]
) -> None:
    found, output = planned(shop, malflow, *edits)
    assert found == code, output
    assert [it for it in words if it not in output] == [], output


def test_a_state_with_a_number_in_its_name_is_told(shop: Path, malflow: Malflow) -> None:
    text = shop.read_text()
    insert = text[text.index("INSERT INTO totals") :]
    shop.write_text(f"{text}{insert}")
    ended = malflow("check", shop)
    assert ended.code == 10
    assert "the name 'shop.totals.window2' has a number" in ended.out
    shop.write_text(f"{text}{insert.replace('SELECT', '''SELECT /*+ NAME('again') */''', 1)}")
    assert malflow("check", shop).code == 0
