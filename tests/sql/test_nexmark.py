"""The queries of Nexmark give the rows of Apache Flink, on events out of order and late."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, MultiProcessRuntime, SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.sql.text import SqlError
from tests.kit.auction_site import digest, events, json_lines

FOLDER = Path(__file__).parent / "nexmark"
ANSWERS: dict[str, Any] = json.loads((FOLDER / "answers.json").read_text())
"""By the number of events: their hash, and of each query the number and the hash of Flink's rows, sorted as texts. A
few queries have their rows too."""

QUERIES = [*ANSWERS["20000"]["queries"]]
THEIRS = os.environ.get("NEXMARK_QUERIES", "")
"""The folder `queries` of a copy of nexmark/nexmark; its own texts are run where it is given."""

made = cache(lambda count: [*events(count)])


def text_of(*names: str) -> str:
    """Return the tables of the events, and some queries."""
    return "\n".join((FOLDER / f"{name}.sql").read_text() for name in ("tables", *names))


def rows_of(text: str, count: int, runtime: Any) -> dict[str, list[str]]:
    """Return the rows that a text writes into each table, as sorted texts."""
    sinks: dict[str, VecSink[Any, Any, Any]] = {}

    def connected(table: str, _url: str, _options: dict[str, str]) -> Any:
        return sinks.setdefault(table, VecSink()) if table in written else SingleIteratorSource(made(count))

    def build(provider: Any) -> None:
        provider.sql("nexmark", connect=connected).run(text)

    written = re.findall(r"INSERT INTO (\w+)", text)
    runtime(build).execute()
    return {name: sorted(map(as_text, sink.values)) for name, sink in sinks.items()}


def as_text(row: dict[str, Any]) -> str:
    """Return a row as the texts of its values; instants are milliseconds from 1970 on."""
    return "\t".join(
        str((it - datetime(1970, 1, 1)) // timedelta(milliseconds=1) if isinstance(it, datetime) else it)
        for it in row.values()
    )


def assert_answers(found: dict[str, list[str]], count: int, names: Iterable[str]) -> None:
    """Check that the rows of queries are those of Flink."""
    for name in names:
        answer, rows = ANSWERS[str(count)]["queries"][name], found[name]
        if "rows" in answer:
            assert rows == answer["rows"], name
        assert [len(rows), digest(f"{it}\n" for it in rows)] == [answer["count"], answer["hash"]], name


def on_one_thread(workers: int) -> Any:
    return partial(SingleThreadRuntime, parallelism=workers)


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.nightly)])
def test_the_events_are_those_that_flink_got(count: int) -> None:
    assert digest(json_lines(made(count))) == ANSWERS[str(count)]["events"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.nightly)])
def test_the_queries_give_the_rows_of_flink(count: int, workers: int) -> None:
    assert_answers(rows_of(text_of(*QUERIES), count, on_one_thread(workers)), count, QUERIES)


@pytest.mark.nightly
def test_the_queries_give_the_rows_of_flink_in_processes() -> None:
    runtime = partial(MultiProcessRuntime, parallelism=2, processes=2, start_method="forkserver")
    assert_answers(rows_of(text_of(*QUERIES), 20_000, runtime), 20_000, QUERIES)


@pytest.mark.nightly
@pytest.mark.spark
def test_the_queries_give_the_rows_of_flink_on_spark(spark: Any) -> None:
    runtime = partial(SparkRuntime, parallelism=2, spark=spark)
    assert_answers(rows_of(text_of(*QUERIES), 20_000, runtime), 20_000, QUERIES)


@pytest.mark.skipif(not THEIRS, reason="NEXMARK_QUERIES does not name the folder with Nexmark's queries")
@pytest.mark.parametrize("name", QUERIES)
def test_the_texts_of_nexmark_itself_give_the_rows_of_flink(name: str) -> None:
    text = "\n".join((Path(THEIRS) / f"{it}.sql").read_text() for it in ("ddl_gen", "ddl_views", name))
    text = re.sub(r"WITH \(\s*'connector'.*?\);", "WITH ('url' = 'kafka://broker/x');", text, flags=re.DOTALL)
    text = re.sub(r"AS 'com\.\S*'", "AS 'tests.kit.auction_site:count_char' LANGUAGE PYTHON", text)
    (rows,) = rows_of(text.replace("${NEXMARK_TABLE}", "datagen"), 20_000, on_one_thread(1)).values()
    assert_answers({name: rows}, 20_000, [name])


def test_folders_by_column_are_refused() -> None:
    with pytest.raises(SqlError, match="PARTITIONED BY: no sink has a folder for each value of a column") as found:
        SingleThreadRuntime(lambda provider: provider.sql("nexmark").run(text_of("q10"))).execute()
    assert found.value.faults[0].source.text[found.value.faults[0].span.start :].startswith("PARTITIONED BY")


def test_groups_without_a_window_are_refused() -> None:
    with pytest.raises(GraphError, match="GROUP BY without a window is not supported"):
        SingleThreadRuntime(lambda provider: provider.sql("nexmark").run(text_of("q16"))).execute()
