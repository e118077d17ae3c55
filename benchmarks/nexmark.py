"""Compare queries of Nexmark with Flink SQL; and time parsing and planning.

pip install 'malflow[bench]'; Flink needs Java 17 and Maven, and is left out where they are missing
python benchmarks/nexmark.py [--rounds 5] [--events 100000] [--flink-events 20000000] [--only q0,q5,plan]
python benchmarks/nexmark.py --answers tests/sql/nexmark/answers.json

The same texts run over the same events in memory, of which 92 % are bids, from the table to a sink that counts rows.
Both are on one core. Flink gets the events again and again, later each time, and has laps: the first one is not
measured, as Java compiles in it. malflow runs half of its rounds before a query of Flink, and half after it. The rows
of both are as many.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from java_programs import missing
from nexmark_parts.flink import Flink
from tables import print_table

from malflow import GraphError, SingleThreadRuntime, StreamProvider
from malflow.graph import Graph
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import SingleIteratorSource
from malflow.sql.parser.statements import parse
from malflow.sql.text import Source
from tests.kit.auction_site import digest, events, json_lines, span_of

_TEXTS = Path(__file__).parent.parent / "tests/sql/nexmark"
_NOTHING = """
CREATE TABLE nothing (kind INT) WITH ('url' = 'kafka://broker/nothing');
INSERT INTO nothing SELECT kind FROM events WHERE kind < 0;
"""
"""A query without rows: what it takes is taken by the source, the table and the watermark."""

QUERIES = ("events alone", "q0", "q1", "q2", "q5", "q7", "q8", "q11")
ANSWERED = ("q0", "q1", "q2", "q5", "q7", "q8", "q11", "q14", "q21", "q22")
COUNTS = (20_000, 200_000)
FEW = {"q5", "q7", "q8", "q11"}
"""Queries with few rows: the answers to the fewer events have them all, so a difference can be seen."""

LAPS = 4
"""Readings of the stopwatch of Flink."""

LAPS_OF_SPARK = 10
"""Files with the events: a batch has a cost of its own, so one of few events would say nothing about an event."""

FOR_EVER = {"q7"}
"""Queries that make Flink keep all bids for ever: it gets a twentieth of the events, or its memory would not do."""

PLANNED = ("q5", "q8", "q14", "q16")
MOST = 5.0
"""Milliseconds that reading and planning may take."""


class Count(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts rows."""

    def __init__(self) -> None:
        self.rows = 0

    def sink(self, _msg: Any) -> None:
        """Count a row."""
        self.rows += 1

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Count the rows of a batch."""
        self.rows += len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="how often malflow runs each query")
    parser.add_argument("--events", type=int, default=100_000, help="how many events malflow gets")
    parser.add_argument(
        "--flink-events", type=int, default=20_000_000, help="how many Flink gets, after a quarter as many"
    )
    parser.add_argument("--only", default=",".join((*QUERIES, "plan", "spark")), help="queries to run, plan, spark")
    parser.add_argument(
        "--answers", type=Path, help="write Flink's rows of the tests to this file, and do nothing else"
    )
    options = parser.parse_args()
    if options.answers:
        options.answers.write_text(json.dumps({count: _answers(count) for count in COUNTS}, indent=0) + "\n")
        return
    wanted = options.only.split(",")
    queries = [it for it in QUERIES if it in wanted]
    if queries:
        _compare(queries, options.events, options.rounds, options.flink_events)
    if "spark" in wanted:
        _spark(options.events, options.rounds)
    if "plan" in wanted:
        _plan(50 * options.rounds)


def text_of(name: str) -> str:
    """Return the tables of the events, and a query."""
    own = _NOTHING if name == QUERIES[0] else (_TEXTS / f"{name}.sql").read_text()
    return f"{(_TEXTS / 'tables.sql').read_text()}\n{own}"


@contextmanager
def flink_over(count: int) -> Iterator[Flink]:
    """Yield Flink with so many events."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.jsonl"
        file.write_text("".join(json_lines(events(count))))
        flink = Flink(file, span_of(count))
        try:
            yield flink
        finally:
            flink.close()


# Flink's rows, for the tests


def _answers(count: int) -> dict[str, Any]:
    """Return the hash of the events, and what Flink makes of them: each row may move the watermark, as in malflow."""
    made: dict[str, Any] = {}
    with flink_over(count) as flink, tempfile.TemporaryDirectory() as folder:
        for name in ANSWERED:
            file = Path(folder) / name
            flink.run(text_of(name), count, every=0, out=file)
            rows = sorted(file.read_text().splitlines())
            made[name] = {"count": len(rows), "hash": digest(f"{it}\n" for it in rows)}
            if name in FEW and count == COUNTS[0]:
                made[name]["rows"] = rows
    return {"events": digest(json_lines(events(count))), "queries": made}


# The comparison


def _compare(queries: Sequence[str], count: int, rounds: int, of_flink: int) -> None:
    given = [*events(count)]
    if missing():
        print(f"without Flink, which needs {', '.join(missing())}")
        rows = [(it, *_both([_malflow(it, given)[0] for _ in range(rounds)])) for it in queries]
        print_table(("query", "malflow, least", "median"), rows)
        return
    with flink_over(count) as flink:
        times = {it: _times(it, given, rounds, flink, of_flink) for it in queries}
    print("\nCPU ns an event: least, median, and median with fewer watermarks; Flink / malflow: of the medians\n")
    header = ("query", "malflow, least", "median", "each second", "Flink, least", "median", "each 200 ms")
    print_table((*header, "Flink / malflow", "fewer"), [(it, *_row(times[it])) for it in queries])


def _times(name: str, given: Sequence[Any], rounds: int, flink: Flink, of_flink: int) -> list[list[float]]:
    """Return the CPU nanoseconds an event: of malflow by round, of Flink by lap, of both with fewer watermarks too.

    In malflow a watermark can wait for a second of the time of rows, in Flink for 200 ms of the clock: its default.
    """
    ours: list[list[float]] = [[], []]
    lap = of_flink // LAPS // (20 if name in FOR_EVER else 1)
    theirs: list[list[float]] = []
    for turn in range(rounds):
        for at, every in enumerate(("", "1 s")):
            time_, rows = _malflow(name, given, every)
            ours[at].append(time_)
            if not every and turn == 0 and (others := flink.run(text_of(name), len(given), every=0).rows) != rows:
                raise SystemExit(f"{name}: the peers disagree: {rows} rows, {others} of Flink")
        if turn == rounds // 2:
            for milliseconds in (0, 200):
                laps = flink.run(text_of(name), lap + LAPS * lap, warm=lap, lap=lap, every=milliseconds).laps
                theirs.append([it / lap for it in laps[:LAPS]])
    print(name, [[round(it) for it in peer] for peer in (*ours, *theirs)], flush=True)
    return [*ours, *theirs]


def _malflow(name: str, given: Sequence[Any], every: str = "") -> tuple[float, int]:
    """Return the CPU nanoseconds an event that a query takes, and the number of its rows."""
    count = Count()
    text = text_of(name)
    if every:
        text = text.replace("broker/events'", f"broker/events', 'watermark.every' = '{every}'")

    def connected(table: str, _url: str, _options: dict[str, str]) -> Any:
        return SingleIteratorSource(given) if table == "events" else StatelessSink(count)

    gc.collect()
    start = time.process_time()
    SingleThreadRuntime(lambda provider: provider.sql("nexmark", connect=connected).run(text)).execute()
    return (time.process_time() - start) / len(given) * 1e9, count.rows


def _row(times: Sequence[Sequence[float]]) -> list[str]:
    ours, fewer, theirs, fewer_theirs = times
    cells = [*_both(ours), f"{median(fewer):,.0f}", *_both(theirs), f"{median(fewer_theirs):,.0f}"]
    ratios = (median(theirs) / median(ours), median(fewer_theirs) / median(fewer))
    return [*cells, *(f"{it:.2f}" for it in ratios)]


def _both(times: Sequence[float]) -> list[str]:
    """Return the least and the median."""
    return [f"{pick(times):,.0f}" for pick in (min, median)]


# PySpark


def _spark(count: int, rounds: int) -> None:
    """Print how long the queries take that PySpark can say over a stream."""
    from nexmark_parts import spark_queries as peer  # noqa: PLC0415 - an extra

    given = [*events(count)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        peer.write_events(given, LAPS_OF_SPARK, span_of(count), Path(folder))
        for name in peer.QUERIES:
            command = [sys.executable, "-m", "nexmark_parts.spark_queries", folder, name, str(rounds)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)  # noqa: S603 - a module of this folder
            theirs = [it / count / LAPS_OF_SPARK * 1e9 for it in json.loads(answer.stdout.splitlines()[-1])]
            ours = [_malflow(name, given)[0] for _ in range(rounds)]
            rows.append((name, *_both(ours), *_both(theirs), f"{median(theirs) / median(ours):.2f}"))
            print(*rows[-1], flush=True)
    print("\nCPU ns an event, the least and the median; PySpark on local[1]\n")
    print_table(("query", "malflow, least", "median", "PySpark, least", "median", "PySpark / malflow"), rows)


# Reading and planning


def _plan(rounds: int) -> None:
    """Print how long texts take to be read, and to become a dataflow."""
    rows = []
    for name in PLANNED:
        text = text_of(name)
        read = _milliseconds(lambda text=text: parse(Source(text)), rounds)
        planned = _milliseconds(lambda text=text: _planned(text), rounds)
        rows.append((name, f"{len(text):,}", *(f"{pick(it):.2f}" for it in (read, planned) for pick in (min, median))))
    print(f"\nCPU ms of a text with its tables; at most {MOST:g}\n")
    print_table(("query", "characters", "parse, least", "median", "parse and plan, least", "median"), rows)


def _planned(text: str) -> None:
    """Make a text a dataflow that is not run; one that this version refuses is planned until it is refused."""

    def connected(table: str, _url: str, _options: dict[str, str]) -> Any:
        return SingleIteratorSource([]) if table == "events" else StatelessSink(Count())

    with suppress(GraphError):
        StreamProvider(Graph()).sql("nexmark", connect=connected).run(text)


def _milliseconds(work: Callable[[], object], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append((time.process_time() - start) * 1e3)
    return found


if __name__ == "__main__":
    main()
