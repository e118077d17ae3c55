"""Compare SQL with the same jobs by hand, in one process, in rounds; and time parsing, planning and importing.

python benchmarks/sql.py [--rounds 7] [--records 200000] [--only chain,time,files,plan,import]

The rows are bids of five columns, up to three seconds out of order; whole dataflows, from a source to a sink that adds
up. The chain has three conditions and a product, and keeps a third of the rows. "checked" is the chain by hand, after a
step that checks types and ranges as the door of a table does.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from sql_parts.files import files
from sql_parts.jobs import chains, run, times
from tables import print_table

from malflow import SingleThreadRuntime
from malflow.sources import SingleIteratorSource
from malflow.sql.parser.statements import parse
from malflow.sql.text import Source

Peers = Mapping[str, Callable[[], object]]

_QUERIES = Path(__file__).parent.parent / "tests" / "sql" / "nexmark"
_BY_DAY = {
    "FROM bids": "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' DAY))",
    "GROUP BY channel, DATE_FORMAT(ts, 'yyyy-MM-dd')": "GROUP BY window_start, window_end, channel",
    "DATE_FORMAT(ts, 'yyyy-MM-dd') AS": "DATE_FORMAT(window_start, 'yyyy-MM-dd') AS",
}
"""Query 16 of Nexmark groups by the text of a day. A window of a day gives the same rows, once each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each peer does each job")
    parser.add_argument("--records", type=int, default=200_000, help="how many records a job gets")
    parser.add_argument("--only", default="chain,time,files,plan,import", help="parts to run")
    options = parser.parse_args()
    parts = {"chain": _chains, "time": _times, "files": _files, "plan": _plan, "import": _import}
    for name in options.only.split(","):
        parts[name](options.records, options.rounds)


def _chains(records: int, rounds: int) -> None:
    jobs = {}
    for name, it in chains(records).items():
        ways = {"SQL": it.by_sql, "by hand": it.by_hand, "checked": it.checked}
        jobs[name] = {peer: partial(run, way, it.column) for peer, way in ways.items()}
    _compare("a chain", jobs, records, rounds)


def _times(records: int, rounds: int) -> None:
    jobs = {
        name: {"SQL": partial(run, it.by_sql, it.column), "by hand": partial(run, it.by_hand, it.column)}
        for name, it in times(records).items()
    }
    _compare("over time", jobs, records, rounds)


def _files(records: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _compare("files to JSON lines", files(Path(folder), records), records, rounds)


def _compare(title: str, jobs: Mapping[str, Peers], records: int, rounds: int) -> None:
    """Run each job by its peers in turn, and print a table."""
    rows = []
    for name, peers in jobs.items():
        found = _rounds(name, peers, records, rounds)
        first, *others = found.values()
        ratios = (median(map(truediv, first, it)) for it in others)
        rows.append((name, *(f"{median(it):,.0f}" for it in found.values()), *(f"{it:.2f}" for it in ratios)))
    first_name, *names = next(iter(jobs.values()))
    print("\nCPU ns a record, medians; ratios: median of the rounds\n")
    print_table((title, first_name, *names, *(f"{first_name} / {it}" for it in names)), rows)


def _rounds(name: str, peers: Peers, records: int, rounds: int) -> dict[str, list[float]]:
    """Run each peer once a round, each round beginning with another one; return the times by peer."""
    found: dict[str, list[float]] = {it: [] for it in peers}
    order = list(peers)
    for turn in range(rounds):
        outcomes: set[Any] = set()
        for peer in order[turn % len(order) :] + order[: turn % len(order)]:
            gc.collect()
            start = time.process_time()
            outcomes.add(peers[peer]())
            found[peer].append((time.process_time() - start) / records * 1e9)
        if len(outcomes) > 1:
            raise SystemExit(f"{name}: the peers disagree: {outcomes}")
    print(name, {peer: round(median(it)) for peer, it in found.items()}, flush=True)
    return found


def _plan(_records: int, rounds: int) -> None:
    """Time texts of Nexmark: parsing alone; and all that is done before the first row."""
    tables = (_QUERIES / "tables.sql").read_text()
    rows = []
    for name in ("q16", "q7", "q5", "q0"):
        text = (_QUERIES / f"{name}.sql").read_text()
        for old, new in _BY_DAY.items() if name == "q16" else ():
            text = text.replace(old, new)
        parsing = [_milliseconds(lambda text=text: parse(Source(text))) for _ in range(3 * rounds)]
        planning = [_planned(tables, text) for _ in range(3 * rounds)]
        rows.append((name, f"{len(text):,}", f"{min(parsing):.2f}", f"{min(planning):.2f}"))
    print("\nCPU ms of a text, the least of all rounds; the tables and views that it reads were planned before\n")
    print_table(("query", "characters", "parse", "parse, bind and build"), rows)


def _planned(tables: str, text: str) -> float:
    """Return how long a text takes in a catalogue of tables."""
    took: list[float] = []

    def build(provider: Any) -> None:
        sql = provider.sql("sql", connect=lambda _name, _url, _options: SingleIteratorSource([]))
        sql.run(tables)
        took.append(
            _milliseconds(lambda: sql.query("q", text.partition("INSERT INTO")[2].split(maxsplit=1)[1].rstrip(";\n ")))
        )
        sql.query("all", "SELECT ts FROM bids").rows().filter("none", bool)

    SingleThreadRuntime(build).execute()
    return took[0]


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


_DATAFLOW = (
    "from malflow import SingleThreadRuntime, agg, connect; import malflow.sources, malflow.sinks, malflow.windows"
)
_IMPORTS = {
    "import malflow": ("import time, sys", "import malflow"),
    "malflow.sql, after that of a dataflow": (f"import time, sys; {_DATAFLOW}", "import malflow.sql.api"),
}
_CHILD = """
{}
start = time.process_time()
{}
print(time.process_time() - start, sum(it.startswith("malflow.sql") for it in sys.modules))
"""


def _import(_records: int, rounds: int) -> None:
    """Time importing in new processes, in turn."""
    found: dict[str, list[float]] = {it: [] for it in _IMPORTS}
    modules = {}
    for _ in range(3 * rounds):
        for name, statements in _IMPORTS.items():
            command = [sys.executable, "-c", _CHILD.format(*statements)]
            took, modules[name] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603
            found[name].append(float(took) * 1e3)
    print("\nCPU ms of a new process, the least of all rounds\n")
    print_table(
        ("what", "ms", "modules of malflow.sql"), [(it, f"{min(ms):.0f}", modules[it]) for it, ms in found.items()]
    )


if __name__ == "__main__":
    main()
