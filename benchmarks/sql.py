"""Compare SQL with the same jobs by hand, in one process, in rounds; and time parsing, planning and importing.

python benchmarks/sql.py [--rounds 7] [--records 200000] [--only chain,alone,time,files,plan,import,spark]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import truediv
from statistics import median
from typing import Any

from sql_parts.jobs import chains, run, times
from tables import print_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each peer does each job")
    parser.add_argument("--records", type=int, default=200_000, help="how many records a job gets")
    parser.add_argument("--only", default="chain,time", help="parts to run")
    options = parser.parse_args()
    parts: dict[str, Callable[[int, int], None]] = {"chain": _chains, "time": _times}
    for name in options.only.split(","):
        parts[name](options.records, options.rounds)


def _chains(records: int, rounds: int) -> None:
    jobs = {
        name: {"SQL": partial(run, it.by_sql, it.column), "by hand": partial(run, it.by_hand, it.column)}
        for name, it in chains(records).items()
    }
    _compare("a chain", jobs, records, rounds)


def _times(records: int, rounds: int) -> None:
    jobs = {
        name: {"SQL": partial(run, it.by_sql, it.column), "by hand": partial(run, it.by_hand, it.column)}
        for name, it in times(records).items()
    }
    _compare("over time", jobs, records, rounds)


def _compare(title: str, jobs: Mapping[str, Mapping[str, Callable[[], object]]], records: int, rounds: int) -> None:
    """Run each job by both peers in turn, and print a table."""
    rows = []
    for name, peers in jobs.items():
        found = _rounds(name, peers, records, rounds)
        one, other = found.values()
        rows.append((name, *(f"{median(it):,.0f}" for it in (one, other)), f"{median(map(truediv, one, other)):.2f}"))
    print("\nCPU ns a record, medians; SQL / by hand: median of the rounds\n")
    print_table((title, "SQL", "by hand", "SQL / by hand"), rows)


def _rounds(name: str, peers: Mapping[str, Callable[[], object]], records: int, rounds: int) -> dict[str, list[float]]:
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


if __name__ == "__main__":
    main()
