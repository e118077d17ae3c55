"""Measure what grows with the number of workers: the route of a key, and the driver's work in a tick on Spark.

pip install 'malflow[spark]'
python benchmarks/scale.py [--rounds 5] [--only routes,driver] [--workers 1000]

Each measurement of the driver is a process of its own, with made-up reports, without Spark.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tables import print_table

from malflow.operators.routing import Router
from malflow.partitioners import former_select, rendezvous_select, slot_of, slot_owners
from malflow.records.batch import Batch

_KEYS = 50_000
_FEW = 2_000
"""Keys for the former function, which takes a third of a millisecond for each at a thousand workers."""

_SIZES = [(10, 4), (100, 4), (300, 4), (1_000, 2), (1_000, 4)]
_TICKS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--only", default="routes,driver", help="sections")
    parser.add_argument("--workers", type=int, default=1_000, help="the highest number of workers")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        from scale_parts.driver import measure_driver  # noqa: PLC0415 - needs Arrow, and only here

        print(json.dumps(measure_driver(*json.loads(options.one), _TICKS)))
        return
    only = options.only.split(",")
    if "routes" in only:
        _print_routes(options.rounds, options.workers)
    if "driver" in only:
        _print_driver(options.rounds, options.workers)


def _print_routes(rounds: int, most: int) -> None:
    print("\nthe route of a key, ns of processor time, medians: keys that no cache holds, and cached ones")
    rows = []
    for workers in [count for count in (2, 10, 100, 1_000) if count <= most]:
        for kind, make in (("text", str), ("int", int)):
            keys = [make(key) for key in range(_KEYS)]
            first, again = zip(*[_routed(keys, workers) for _ in range(rounds)], strict=True)
            former = [_asked(former_select, keys[:_FEW], workers) for _ in range(min(rounds, 3))]
            asked = [_looked_up(keys, workers) for _ in range(rounds)]
            found = (former, asked, first, again)
            rows.append([f"{workers:,} workers, {kind}", *(f"{median(it):,.0f}" for it in found)])
    print_table(["", "before slots", "not cached", "not cached, and put into the cache", "cached"], rows)


def _asked(select: Callable[[Any, Sequence[int]], int], keys: Sequence[Any], workers: int) -> float:
    every = range(workers)
    began = time.process_time_ns()
    for key in keys:
        select(key, every)
    return (time.process_time_ns() - began) / len(keys)


def _looked_up(keys: Sequence[Any], workers: int) -> float:
    owners = slot_owners(workers)
    began = time.process_time_ns()
    for key in keys:
        owners[slot_of(key)]
    return (time.process_time_ns() - began) / len(keys)


def _routed(keys: Sequence[Any], workers: int) -> tuple[float, float]:
    """Return the time of routing keys for the first time, and again, without that of making the batches."""
    router = Router("exchange", rendezvous_select, range(workers), object())
    batch = Batch(keys, keys, keys)
    taken = []
    for _ in range(2):
        began = time.process_time_ns()
        router._chosen(batch)  # noqa: SLF001 - the rest of `route` is the same for all partitioners
        taken.append((time.process_time_ns() - began) / len(keys))
    return taken[0], taken[1]


def _print_driver(rounds: int, most: int) -> None:
    print("\nthe driver's work in a tick, medians; a third of the workers are quiet")
    rows = []
    for workers, stages in [size for size in _SIZES if size[0] <= most]:
        found = [_child([workers, stages]) for _ in range(rounds)]
        middle = {name: median([it[name] for it in found]) for name in found[0]}
        rows.append(
            [
                f"{workers:,} workers, {stages} stages",
                f"{middle['ms']:,.1f}",
                f"{middle['bytes'] / 1e6:,.2f}",
                f"{middle['characters']:,.0f}",
                f"{middle['memory']:,.0f}",
            ]
        )
    print_table(["", "processor time, ms", "reports, MB", "command, characters", "peak memory, MB"], rows)


def _child(how: Sequence[int]) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", json.dumps(how)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this program
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
