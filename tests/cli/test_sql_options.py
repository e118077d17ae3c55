"""The options and commands of a flow, on a file of SQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Malflow, environment
from tests.kit.waiting import wait_until

TEXT = """CREATE TABLE bids (auction BIGINT, price DECIMAL(10, 2), channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('url' = 'bids.jsonl');
CREATE TABLE totals (since TIMESTAMP(3), channel STRING, n BIGINT) WITH ('url' = 'totals.jsonl');
INSERT INTO totals SELECT window_start, channel, COUNT(*)
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, channel;
"""


def bids(count: int) -> str:
    """Return the lines of bids, one a minute."""
    made = ({"auction": at, "price": at, "channel": "web", "ts": f"2026-03-01 00:{at:02}:30"} for at in range(count))
    return "".join(f"{json.dumps(it)}\n" for it in made)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of SQL and its input."""
    monkeypatch.chdir(tmp_path)
    Path("shop.sql").write_text(TEXT)
    Path("bids.jsonl").write_text(bids(3))
    Path("more.jsonl").write_text(bids(10))
    return tmp_path


def written() -> int:
    """Return how many totals are written."""
    return Path("totals.jsonl").read_text().count("\n")


@pytest.mark.parametrize(
    ("flow", "fault"),
    [
        ("shop.sql:name", "'shop.sql' is a file of SQL, without names to choose from; write shop.sql"),
        ("shpo.sql", "there is no file 'shpo.sql'; did you mean 'shop.sql'?"),
        ("shop", "there is no file 'shop' and no module 'shop'"),
    ],
)
def test_a_flow_that_is_not_a_file_of_sql(malflow: Malflow, flow: str, fault: str) -> None:
    done = malflow("run", flow)
    assert done.code == 3
    assert fault in done.err


def test_arguments_are_refused(malflow: Malflow) -> None:
    assert "'shop.sql' is a file of SQL: it takes no arguments" in malflow("run", "shop.sql", "--", "x").err


def test_a_setting_replaces_the_url_of_a_table(malflow: Malflow) -> None:
    assert malflow("run", "shop.sql", "--set", 'operators."shop.bids".url=more.jsonl').code == 0
    assert written() == 10


def test_a_configuration_replaces_the_url_of_a_table(malflow: Malflow, folder: Path) -> None:
    (folder / "malflow.toml").write_text('[operators."shop.bids"]\nurl = "${BIDS:-more.jsonl}"\n')
    assert malflow("run", "shop.sql").code == 0
    assert written() == 10
    assert "operators.\"shop.bids\".url  'more.jsonl'" in malflow("config", "show", "shop.sql").out
    assert malflow("config", "check", "shop.sql").code == 0


def test_an_operator_of_the_configuration_that_the_file_lacks_is_a_fault(malflow: Malflow, folder: Path) -> None:
    (folder / "malflow.toml").write_text('[operators."shop.bid"]\nurl = "more.jsonl"\n')
    done = malflow("config", "check", "shop.sql")
    assert done.code == 4
    assert "did you mean 'shop.bids'" in done.out + done.err


def test_a_name_without_quotes_is_answered_with_them(malflow: Malflow) -> None:
    done = malflow("run", "shop.sql", "--set", "operators.shop.bids.url=more.jsonl")
    assert 'a name with a dot is quoted: operators."shop.bids"' in done.err


def test_records_are_tapped(malflow: Malflow) -> None:
    done = malflow("run", "shop.sql", "--tap", "shop.totals.calc", "--json")
    tapped = [json.loads(it) for it in done.out.splitlines()]
    assert [it["operator"] for it in tapped if it["kind"] == "record"] == ["shop.totals.calc"] * 3
    refused = malflow("run", "shop.sql", "--tap", "shop.totals.clac")
    assert "the flow has no operator 'shop.totals.clac'; did you mean 'shop.totals.calc'?" in refused.err


def test_letters_are_kept_listed_and_replayed(malflow: Malflow, folder: Path) -> None:
    with (folder / "bids.jsonl").open("a") as file:
        file.write('{"auction": "seven", "price": 1, "channel": "web", "ts": "2026-03-01 00:03:30"}\n')
    (folder / "malflow.toml").write_text('[operators."shop.bids.row"]\non_error = "dead_letter"\n')
    assert malflow("run", "shop.sql", "--persistence", "state").code == 0
    letters = malflow("errors", "ls", "state").out
    assert "shop.bids.row" in letters
    assert "ValueError" in letters
    (folder / "shop.sql").write_text(TEXT.replace("auction BIGINT", "auction STRING"))
    again = malflow("run", "shop.sql", "--persistence", "state", "--replay", "shop.bids.row")
    assert again.code == 0, again.err
    assert "1 dead letter of operator 'shop.bids.row' replayed" in again.err
    assert "shop.bids.row" not in malflow("errors", "ls", "state").out


def test_state_is_listed_and_read(malflow: Malflow) -> None:
    malflow("run", "shop.sql", "--persistence", "state")
    assert "shop.totals.window" in malflow("state", "ls", "state").out
    assert malflow("snapshots", "ls", "state").code == 0
    assert "window" in malflow("plan", "shop.sql", "--persistence", "state").out


def test_check_tells_all_faults_of_all_statements(malflow: Malflow, folder: Path) -> None:
    text = TEXT.replace("channel, COUNT(*)", "chanel, COUNT(*)").replace("'5' SECOND", "'5' SECNOD")
    (folder / "shop.sql").write_text(f"{text}INSERT INTO total SELECT 1;\n")
    done = malflow("check", "shop.sql")
    assert done.code == 3
    assert done.err.count(" | ") >= 4
    for place in ("shop.sql:2:", "shop.sql:6:13: no table 'total'; did you mean 'totals'?"):
        assert place in done.err
    as_json = malflow("check", "shop.sql", "--json")
    assert "shop.sql:2:" in json.loads(as_json.err)["error"]["message"]


@pytest.mark.parametrize("on", ["single", "processes", "spark"])
def test_check_for_each_runtime(malflow: Malflow, on: str) -> None:
    if on == "spark":
        pytest.importorskip("pyspark")
    assert malflow("check", "shop.sql", "--on", on).code == 0


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run that ends only when it is stopped, and wait until it has written totals."""
    Path("shop.sql").write_text(TEXT.replace("'bids.jsonl'", "'bids*.jsonl', 'discover_every' = '100ms'"))
    command = [sys.executable, "-m", "malflow", "run", "shop.sql", *arguments]
    own = {**environment(), "MALFLOW_CONTROL": "1", "XDG_RUNTIME_DIR": str(Path.cwd())}
    with Path("err.txt").open("wb") as errors, subprocess.Popen(command, env=own, stderr=errors) as process:
        try:
            wait_until(lambda: Path("totals.jsonl").exists() and written() >= 2, 60)
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_live_run_is_served_asked_and_stopped(
    malflow: Malflow, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("MALFLOW_CONTROL", "1")
    with started("--serve", "127.0.0.1:0", "--job", "shop", "--persistence", "state") as process:
        assert "http://127.0.0.1:" in Path("err.txt").read_text()
        assert "source 'shop.bids' has read all of its parts" in malflow("why", "shop", "shop.totals").out
        assert malflow("stop", "shop").code == 0
        assert process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.nightly
def test_an_edit_of_the_file_starts_it_again(folder: Path) -> None:
    with started("--reload") as process:
        edited = Path("shop.sql").read_text().replace("SELECT window_start, channel", "SELECT window_start, 'all'")
        Path("shop.sql").write_text(edited)
        wait_until(lambda: "resumed" in Path("err.txt").read_text(), 60)
        (folder / "bids2.jsonl").write_text(bids(10).split("\n", 3)[3])
        wait_until(lambda: '"all"' in Path("totals.jsonl").read_text(), 60)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 0


def test_the_folder_of_the_file_has_its_functions(malflow: Malflow, folder: Path) -> None:
    (folder / "flows_of_prices.py").write_text("def dear(price: float) -> bool:\n    return price > 1\n")
    text = TEXT.replace("price DECIMAL(10, 2)", "price DOUBLE")
    text += "CREATE FUNCTION dear AS 'flows_of_prices:dear' LANGUAGE PYTHON;\n"
    text += "CREATE TABLE dears (auction BIGINT) WITH ('url' = 'dears.jsonl');\n"
    text += "INSERT INTO dears SELECT auction FROM bids WHERE dear(price);\n"
    (folder / "shop.sql").write_text(text)
    done = malflow("run", "shop.sql")
    assert done.code == 0, done.err
    assert (folder / "dears.jsonl").read_text() == '{"auction": 2}\n'
