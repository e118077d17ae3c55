"""Measure what Python's cyclic garbage collector costs a dataflow, by its threshold, and with `gc.freeze`.

pip install 'malflow[bench]'
python benchmarks/garbage.py [--rounds 5] [--records 150000]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import truediv
from statistics import median

from tables import print_table
from windows import jobs
from workloads import running_sum

MODES = ("700", "50,000", "50,000, frozen", "off")
"""Python's threshold, malflow's during a run, malflow's with all objects frozen that exist before it, and none."""

_PYTHONS = (701, 10, 10)
"""Python's thresholds, but for one: malflow leaves thresholds alone that are not the default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each job runs in each mode")
    parser.add_argument("--records", type=int, default=150_000, help="how many records each job gets")
    options = parser.parse_args()
    work = _work(options.records)
    rows = [_measure(name, run, options.records, options.rounds) for name, run in work.items()]
    print("\nCPU ns a record by the collector's threshold, medians; '/': how many times, median of the rounds\n")
    print_table(("job", *MODES, *(f"700 / {mode}" for mode in MODES[1:])), rows)


def _work(records: int) -> Mapping[str, Callable[[], object]]:
    """Return a run of each job under malflow."""
    windows = {name: peers["malflow"].run for name, peers in jobs(records).items()}
    summed = running_sum.WORKLOAD
    return {"running sum": partial(summed.malflow, summed.make(records)), **windows}


def _measure(name: str, run: Callable[[], object], records: int, rounds: int) -> Sequence[str]:
    """Run a job once a round in each mode, each round beginning with another one, and make the row of the table."""
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn in range(rounds):
        for mode in MODES[turn % len(MODES) :] + MODES[: turn % len(MODES)]:
            gc.collect()
            with _collecting(mode):
                start = time.process_time()
                run()
                times[mode].append((time.process_time() - start) / records * 1e9)
    print(name, {mode: round(median(found)) for mode, found in times.items()}, flush=True)
    ratios = [median(map(truediv, times[MODES[0]], times[mode])) for mode in MODES[1:]]
    return (name, *(f"{median(times[mode]):,.0f}" for mode in MODES), *(f"{ratio:.2f}" for ratio in ratios))


@contextmanager
def _collecting(mode: str) -> Iterator[None]:
    """Collect garbage in this mode."""
    before = gc.get_threshold()
    if mode == "700":
        gc.set_threshold(*_PYTHONS)
    elif mode == "off":
        gc.disable()
    elif "frozen" in mode:
        gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()
        gc.set_threshold(*before)


if __name__ == "__main__":
    main()
