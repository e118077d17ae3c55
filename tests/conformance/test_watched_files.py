"""Sources that watch a folder for files that appear while a run reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import CsvSource, JsonLinesSource, StatefulSource, TextFileSource
from tests.conformance.dataflow import Started
from tests.kit.log import Log
from tests.kit.waiting import wait_until

SOON = timedelta(milliseconds=50)


def write_text(path: Path, *numbers: int) -> None:
    path.write_text("".join(f"{number}\n" for number in numbers))


def write_csv(path: Path, *numbers: int) -> None:
    path.write_text("n\n" + "".join(f"{number}\n" for number in numbers))


def write_json(path: Path, *numbers: int) -> None:
    path.write_text("".join(f"{json.dumps({'n': number})}\n" for number in numbers))


def write_parquet(path: Path, *numbers: int) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only the extra has it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    beside = path.parent.parent / path.name
    pq.write_table(pa.table({"n": list(numbers)}), beside)
    beside.rename(path)


def parquet_source(*arguments: Any, **options: Any) -> Any:
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    from malflow.connectors.parquet import ParquetSource  # noqa: PLC0415 - only the extra has it

    return ParquetSource(*arguments, **options)


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "text": (TextFileSource, write_text),
    "csv": (CsvSource, write_csv),
    "json": (JsonLinesSource, write_json),
    "parquet": (parquet_source, write_parquet),
    "partitions": (CsvSource, write_csv),
}
DAY = date(2026, 1, 1)


def counting(source: Any, log: Log) -> Callable[[StreamProvider], None]:
    """Return a dataflow that logs each number with how often it was read, over all runs."""

    def build_dataflow(provider: StreamProvider) -> None:
        read = provider.new_stream().source("files", StatefulSource(source))
        numbers = read.map("number", number_of)
        keyed = numbers.key_distribute("by number", lambda msg: msg.value)
        counted = keyed.stateful_map("count", lambda _key, value, n: ((value, n + 1), n + 1), int)
        counted.inspect("seen", lambda msg, _: log.append(msg.value)).sink("out", VecSink())

    return build_dataflow


def number_of(record: Any) -> int:
    if isinstance(record, dict):
        assert record.get("day", DAY) == DAY
        return int(record["n"])
    return int(record)


def once(*numbers: int) -> list[tuple[int, int]]:
    return [(number, 1) for number in numbers]


def test_files_that_appear_are_read_once(any_parallelism: Any, store: Any, new_log: Any, tmp_path: Path) -> None:
    watch("partitions", any_parallelism, store, new_log, tmp_path)


@pytest.mark.parametrize("kind", ["text", "csv", "json", "parquet"])
def test_sources_of_other_formats_watch_too(kind: str, store: Any, new_log: Any, tmp_path: Path) -> None:
    watch(kind, SingleThreadRuntime, store, new_log, tmp_path)


def watch(kind: str, runtime: Any, store: Any, new_log: Any, tmp_path: Path) -> None:
    make, write = KINDS[kind]
    folder, path, options = tmp_path / "in", f"{tmp_path}/in/*.in", {}
    if kind == "partitions":
        folder, path, options = folder / f"day={DAY}", f"{tmp_path}/in/", {"partitions": {"day": date}}
    folder.mkdir(parents=True)
    source = make(path, discover_every=SOON, **options)
    seen = new_log()
    with Started(runtime(counting(source, seen), store)) as started:
        write(folder / "a.in", 1, 2)
        wait_until(lambda: sorted(seen) == once(1, 2))
        (folder / "a.in").unlink()
        write(folder / "b.in", 3)
        write(folder / "c.in", 4)
        wait_until(lambda: sorted(seen) == once(1, 2, 3, 4))
        assert started.run.progress.unfinished == ("files",)

    write(folder / "d.in", 5)
    again = new_log()
    with Started(runtime(counting(make(path, discover_every=SOON, **options), again), store)):
        wait_until(lambda: sorted(again) == once(5))


def test_a_folder_that_appears_and_is_no_partition_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = CsvSource(f"{tmp_path}/in/", partitions={"day": date}, discover_every=SOON)
    with Started(
        SingleThreadRuntime(lambda it: it.new_stream().source("in", source).sink("out", VecSink()))
    ) as started:
        (tmp_path / "in" / "day=tomorrow").mkdir()
        write_csv(tmp_path / "in" / "day=tomorrow" / "x.csv", 1)
        with pytest.raises(OperatorError, match=r"x\.csv' is in folder 'day=tomorrow': field 'day' is not date"):
            started.finish()


def test_a_log_that_is_rotated_while_it_is_watched(
    any_parallelism: Any, store: Any, new_log: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    write_text(folder / "app.log", 1, 2)
    seen = new_log()
    source = TextFileSource(folder / "app.log*", discover_every=SOON)
    with Started(any_parallelism(counting(source, seen), store)):
        wait_until(lambda: sorted(seen) == once(1, 2))
        (folder / "app.log").rename(folder / "app.log.1")
        write_text(folder / "app.log", 4)
        wait_until(lambda: "app.log.1' begins as '" in caplog.text)
        write_text(folder / "app.log.extra", 5)
        wait_until(lambda: (5, 1) in list(seen))
    assert sorted(seen) == once(1, 2, 5)

    write_text(folder / "app.log.1", 1, 2, 3)
    again = new_log()
    with Started(any_parallelism(counting(source, again), store)):
        wait_until(lambda: sorted(again) == once(3, 4))
