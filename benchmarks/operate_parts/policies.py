"""The price of policies for failed records: without one, with each, and beside another version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tables import print_table

__all__ = ["print_policies"]

ROOT = Path(__file__).parents[2]
BEFORE, DEFAULT = "before", "fail"


def print_policies(rounds: int, records: int, before: Path | None = None) -> None:
    """Print what each policy costs.

    Args:
        rounds: how often each job runs in each mode.
        records: how many records each job gets.
        before: a checkout of another version, whose operators are measured in turn with those of this one.
    """
    modes = [*([BEFORE] if before else []), DEFAULT, *POLICIES]
    rows = [_row(name, modes, rounds, records, before) for name in JOBS]
    print(f"\nCPU ns a record by the policy for failed records, medians; '/': the speed, '{modes[0]}' is 1\n")
    print_table(("job", *modes, *(f"{mode} / {modes[0]}" for mode in modes[1:])), rows)


def _row(name: str, modes: Sequence[str], rounds: int, records: int, before: Path | None) -> Sequence[str]:
    """Run a job once a round in each mode, each in a process of its own, and make the row of the table."""
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(rounds):
        first = turn % len(modes)
        for mode in [*modes[first:], *modes[:first]]:
            times[mode].append(_in_child(name, mode, records, before))
    print(name, {mode: round(median(found), 1) for mode, found in times.items()}, flush=True)
    base = median(times[modes[0]])
    ratios = [base / median(times[mode]) for mode in modes[1:]]
    return (name, *(f"{median(times[mode]):,.0f}" for mode in modes), *(f"{ratio:.2f}" for ratio in ratios))


def _in_child(name: str, mode: str, records: int, before: Path | None) -> float:
    folder = before if mode == BEFORE else ROOT
    argument = json.dumps([name, None if mode == BEFORE else mode, records])
    command = [sys.executable, __file__, argument]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "benchmarks")])}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - itself
    return float(json.loads(told.stdout))


def _measured(job: Callable[[Any, dict[str, Any]], Any], policy: str | None, records: int) -> float:
    """Return the processor time of a run in ns a record: the least of three."""
    from malflow import SingleThreadRuntime  # noqa: PLC0415 - of the version that is measured
    from malflow.sinks import StatelessSink  # noqa: PLC0415 - as there
    from malflow.sources import SingleIteratorSource  # noqa: PLC0415 - as there

    class Nothing:
        def sink(self, message: Any) -> None:
            pass

    options = {} if policy is None else {"on_error": policy}
    found = []
    for _ in range(3):

        def build_dataflow(provider: Any) -> None:
            stream = provider.new_stream().source("numbers", SingleIteratorSource(range(records)))
            job(stream, options).filter("none", _never).sink("out", StatelessSink(Nothing()))

        start = time.process_time()
        SingleThreadRuntime(build_dataflow).execute()
        found.append((time.process_time() - start) / records * 1e9)
    return min(found)


def _never(_value: Any) -> bool:
    return False


def _map(stream: Any, options: dict[str, Any]) -> Any:
    return stream.map("map", lambda value: value + 1, **options)


def _stateful_map(stream: Any, options: dict[str, Any]) -> Any:
    keyed = stream.key_distribute("key", lambda msg: msg.value % 1000)
    return keyed.stateful_map("sum", lambda key, value, state: (state + value, state + value), int, **options)


POLICIES = ("skip", "dead_letter")
JOBS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {"map": _map, "stateful_map": _stateful_map}


if __name__ == "__main__":  # a child
    _name, _policy, _records = json.loads(sys.argv[1])
    print(json.dumps(_measured(JOBS[_name], _policy, _records)))
