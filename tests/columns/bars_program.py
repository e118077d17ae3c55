"""``python -m tests.columns.bars_program FOLDER SINK RUNTIME``: Parquet to windows to Parquet or Delta, as columns.

SINK is ``parquet`` or ``delta``, RUNTIME ``thread``, ``processes`` or ``spark``. A function of batches fails at some
rows, for dead letters. `tests.connectors.columns_program` has the points of commits. It prints ``restarted N``
when the run is restarted, and ``ended N``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from malflow import MultiProcessRuntime, RestartPolicy, StreamProvider, agg
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.connectors.parquet.source import ParquetPartition
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.windows import tumbling
from tests.connectors.columns_program import STEPS
from tests.kit.backends import at_once
from tests.kit.running import add_failpoints, run_job
from tests.multiprocess.programs.totals import FAILPOINT, Announcer, is_first
from tests.processes.programs.counting import say

__all__ = ["assert_bars", "backend_of", "build", "dying", "run", "write_input"]

PARTS, ROWS = 4, 40
KEYS, SIZE, BAD = 5, 20, 7
A_POLL = 10
"""Rows of a poll: few enough for several ticks."""


class Slowly(ParquetSource):
    """A source of few rows a poll."""

    def build_part(self, part: str, state: Any) -> ParquetPartition:
        reader = super().build_part(part, state)
        reader.poll_batch = partial(_poll_few, reader)  # type: ignore[method-assign]
        return reader


def _poll_few(reader: ParquetPartition, limit: int) -> Any:
    return ParquetPartition.poll_batch(reader, min(limit, A_POLL))


def write_input(folder: Path) -> str:
    """Write the input, if it isn't there; return its path."""
    where = folder / "in"
    if not where.exists():
        where.mkdir()
        for part in range(PARTS):
            numbers = list(range(part, PARTS * ROWS, PARTS))
            keys = pa.array([f"k{n % KEYS}" for n in numbers]).dictionary_encode()
            pq.write_table(pa.table({"n": numbers, "key": keys}), where / f"{part}.parquet", row_group_size=15)
    return f"{where}/*.parquet"


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Double each number; fail if one can be divided by the number of bad rows."""
    if any(n % BAD == 0 for n in batch["n"].to_pylist()):
        raise ValueError("a bad number")
    return batch.append_column("double", pc.multiply(batch["n"], 2))


def dying(folder: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Do the same, and take time; in the middle of the input, kill the process twice, after letters of its tick."""
    time.sleep(0.02)
    try:
        return checked(batch)
    finally:
        for at in (ROWS, 2 * ROWS):
            if at + 1 in batch["n"].to_pylist() and is_first(folder / f"death at {at}"):
                os.kill(os.getpid(), signal.SIGKILL)


def build(folder: Path, sink: str, provider: StreamProvider, function: Any = checked) -> None:
    """Build the dataflow."""
    made: Any = {"parquet": ParquetSink, "delta": DeltaSink}[sink](f"{folder}/out")
    rows = provider.new_stream().source("rows", Slowly(write_input(folder)))
    doubled = rows.map_batches("double", function, on_error="dead_letter")
    timed = doubled.event_time("time", "n", out_of_orderness=PARTS, every=5)
    keyed = timed.key_distribute("key", "key").window(tumbling(SIZE))
    bars: Any = keyed.aggregate("bars", agg.into(dict, total=agg.sum("double"), high=agg.max("n"), count=agg.count()))
    bars.to_columns("flat", key="key").sink("out", made)


def backend_of(folder: Path) -> FsspecBackend:
    """Return where the snapshots are."""
    return at_once(folder / "state", job="bars")


def run(folder: Path, sink: str, runtime: str = "thread") -> None:
    """Run the job to its end."""
    backend, building = backend_of(folder), partial(build, folder, sink)
    if runtime != "processes":
        run_job(building, backend, spark_ticks=40 if runtime == "spark" else 0, at_end="finish")
        return
    started = MultiProcessRuntime(
        building,
        backend,
        timedelta(microseconds=1),
        processes=2,
        start_method="forkserver",
        restart=RestartPolicy(attempts=10, backoff=timedelta(milliseconds=10)),
        at_end="finish",
        listeners=[Announcer()],
    )
    started.execute()
    say(f"ended {started.progress.restarts}")


def expected() -> dict[tuple[str, int], dict[str, int]]:
    """Return the bars, by a plain loop."""
    bars: dict[tuple[str, int], dict[str, int]] = {}
    for n in range(PARTS * ROWS):
        if n % BAD:
            bar = bars.setdefault((f"k{n % KEYS}", n // SIZE * SIZE), {"total": 0, "high": 0, "count": 0})
            bar["total"] += 2 * n
            bar["high"] = max(bar["high"], n)
            bar["count"] += 1
    return bars


def assert_bars(folder: Path, sink: str) -> None:
    """Check that each bar is there once, and each bad row is one letter."""
    rows = rows_of(folder / "out", sink)
    found = {(row["key"], row["start"]): {name: row[name] for name in ("total", "high", "count")} for row in rows}
    assert found == expected()
    assert len(rows) == len(found)
    letters = Counter(letter.value["n"] for letter in dead_letters(backend_of(folder)))
    assert letters == dict.fromkeys(range(0, PARTS * ROWS, BAD), 1)


def rows_of(output: Path, sink: str) -> list[dict[str, Any]]:
    """Return the rows that a reader of the format finds."""
    if sink == "delta":
        import deltalake  # noqa: PLC0415 - of this sink alone

        table: Any = deltalake.DeltaTable(str(output))
        return [row for uri in table.file_uris() for row in pq.read_table(uri).to_pylist()]
    return [row for file in sorted(output.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def main(folder: Path, sink: str, runtime: str) -> None:
    """Run the job with failpoints."""
    add_failpoints(*STEPS)
    if runtime == "processes":
        os.environ.pop(FAILPOINT, None)  # it was read when malflow was imported
    run(folder, sink, runtime)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
