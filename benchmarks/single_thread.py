"""Measure the single-thread runtime beside a plain loop and bytewax, in one run, and print one table.

python benchmarks/single_thread.py [--rounds 5] [--scale 1.0] [--only a,b]
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from operator import truediv
from statistics import median
from typing import Any

from tables import print_table, seconds
from workloads import WORKLOADS, Workload

_BATCH_SIZES = (1, 10, 100, 1_000, 10_000)
_TUNING_RECORDS = 200_000
_PEAK_RECORDS = (2_000_000, 10_000_000)
_DEFAULT_BATCH = 1_000
_PEERS = ("malflow", "loop", "tight loop", "bytewax", "bytewax at best")
_HEADER = ("workload", "records", *_PEERS, *(f"{peer} / malflow" for peer in _PEERS[1:]), "best batch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each peer runs each workload")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, such as a,b")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of is not None:
        _print_peak(options.peak_of)
        return
    peaks = [_peak_in_child(int(count * options.scale)) for count in _PEAK_RECORDS]
    rows, batch_rows = [], []
    for letter in options.only.split(","):
        workload = WORKLOADS[letter]
        records = workload.make(int(workload.size * options.scale))
        gc.freeze()  # what the records cost the garbage collector is no peer's doing
        tried = _try_batch_sizes(workload, records)
        rows.append(_measure(workload, records, options.rounds, min(tried, key=tried.__getitem__)))
        batch_rows.append((f"({letter})", *(f"{tried[size]:,.0f}" for size in _BATCH_SIZES)))
        gc.unfreeze()
    print("\nns per record, medians; 'x / malflow': how many times as long as malflow x takes, median of the rounds\n")
    print_table(_HEADER, rows)
    print(f"\nbytewax by its source's batch size, ns per record, the first {_TUNING_RECORDS:,} records, one run each\n")
    print_table(("workload", *(f"{size:,}" for size in _BATCH_SIZES)), batch_rows)
    print(f"\npeak memory of (a) under malflow: {'; '.join(peaks)}")


def _measure(workload: Workload, records: Sequence[Any], rounds: int, best_batch: int) -> Sequence[str]:
    """Run each peer once a round, each round beginning with another one, and make the row of the table."""
    count = workload.count(records)
    runs = {
        "malflow": partial(workload.malflow, records),
        "loop": partial(workload.loop, records),
        "tight loop": partial(workload.tight_loop, records),
        "bytewax": partial(workload.bytewax, records, _DEFAULT_BATCH),
        "bytewax at best": partial(workload.bytewax, records, best_batch),
    }
    times: dict[str, list[float]] = {peer: [] for peer in _PEERS}
    totals = set()
    for turn in range(rounds):
        for peer in _PEERS[turn % len(_PEERS) :] + _PEERS[: turn % len(_PEERS)]:
            elapsed, total = seconds(runs[peer])
            times[peer].append(elapsed / count * 1e9)
            totals.add(total)
        print(f"({workload.letter}) round {turn + 1}:", {peer: round(times[peer][-1]) for peer in _PEERS}, flush=True)
    if len(totals) > 1:
        raise SystemExit(f"({workload.letter}) the peers disagree: {totals}")
    ratios = {peer: median(map(truediv, times[peer], times["malflow"])) for peer in _PEERS[1:]}
    return (
        f"({workload.letter}) {workload.title}",
        f"{count:,}",
        *(f"{median(times[peer]):,.0f}" for peer in _PEERS),
        *(f"{ratio:.2f}" for ratio in ratios.values()),
        f"{best_batch:,}",
    )


def _try_batch_sizes(workload: Workload, records: Sequence[Any]) -> dict[int, float]:
    """Time bytewax on the first of the records at each size of batch, in ns per record."""
    sample = records[:_TUNING_RECORDS]
    count = workload.count(sample)
    return {size: seconds(partial(workload.bytewax, sample, size))[0] / count * 1e9 for size in _BATCH_SIZES}


def _peak_in_child(count: int) -> str:
    """Run (a) under malflow alone in a new process, while this one is small: a child's peak begins at its parent's."""
    command = [sys.executable, __file__, "--peak-of", str(count)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()  # noqa: S603


def _print_peak(count: int) -> None:
    workload = WORKLOADS["a"]
    before = _peak()
    workload.malflow(workload.make(count))
    print(f"{count:,} records {_peak():.0f} MB ({before:.0f} MB of it before the first)")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
