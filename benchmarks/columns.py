"""Measure dataflows over columns beside polars, DuckDB, a plain loop, bytewax, and an earlier malflow.

pip install 'malflow[columns]' polars duckdb bytewax
python benchmarks/columns.py [--rounds 3] [--records 4000000] [--keys 1000] [--each 10] [--only memory,running]
    [--beside ../other]

Each number is processor time, in nanoseconds a record, of a process of its own with one thread; peers take turns.
polars and DuckDB get the whole input at once and keep no state. With ``--beside``, a checkout of an earlier malflow
runs the same dataflow by fields and by functions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tables import print_table

_PROGRAMS = {
    "read": "Parquet to a sink of columns",
    "derive": "filter and derive, from memory",
    "memory": "windows of four aggregates, from memory",
    "parquet": "windows of four aggregates, from zstd Parquet",
    "running": "running sums, integers",
    "runningf": "running sums, floats",
    "parts": "windows of exact aggregates, from four parts in memory",
    "sent": "the same in two processes, together",
}
_PEERS = ("columns", "functions", "fields before", "functions before", "polars", "duckdb", "loop", "bytewax")
_CHILD = Path(__file__).with_name("column_parts") / "child.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each peer runs")
    parser.add_argument("--records", type=int, default=4_000_000, help="how many records it gets")
    parser.add_argument("--keys", type=int, default=1000, help="how many keys they have")
    parser.add_argument("--each", type=int, default=10, help="how many records of a key a window has")
    parser.add_argument("--only", help="programs, separated by commas")
    parser.add_argument("--peers", help="peers, separated by commas")
    parser.add_argument("--beside", help="a checkout of an earlier malflow")
    options = parser.parse_args()
    programs = options.only.split(",") if options.only else [*_PROGRAMS]
    peers = [
        it for it in (options.peers.split(",") if options.peers else _PEERS) if options.beside or "before" not in it
    ]
    rows = []
    with TemporaryDirectory() as folder:
        _child("write", "", folder, options, None)
        for program in programs:
            found: dict[str, list[float]] = {peer: [] for peer in peers}
            for _ in range(options.rounds):
                for peer in peers:
                    if (took := _child(program, peer, folder, options, options.beside)) is not None:
                        found[peer].append(took)
            cells = {peer: median(them) for peer, them in found.items() if them}
            own = cells.get("columns", 0.0)
            shown = (f"{cells[it]:,.0f}" if it in cells else "" for it in peers)
            rows.append((_PROGRAMS[program], *shown, f"{1000 / own:.1f}" if own else ""))
    print(f"\nprocessor time, ns a record, {options.keys:,} keys, {options.records:,} records, medians\n")
    print_table(("program", *peers, "M/s by columns"), rows)


def _child(program: str, peer: str, folder: str, options: argparse.Namespace, beside: str | None) -> float | None:
    """Return the nanoseconds a record; None if the peer has no such program, or is not installed."""
    earlier = beside if "before" in peer else None
    path = os.pathsep.join([str(Path(earlier or Path(__file__).parents[1]).resolve()), str(Path(__file__).parent)])
    settings = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    numbers = map(str, (options.records, options.keys, options.each))
    arguments = [program, peer.removesuffix(" before"), folder, *numbers]
    done = subprocess.run(  # noqa: S603 - this program
        [sys.executable, str(_CHILD), *arguments],
        check=False,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"{program} by {peer}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    said = json.loads(done.stdout.strip().splitlines()[-1])
    return None if said is None else float(said)


if __name__ == "__main__":
    main()
