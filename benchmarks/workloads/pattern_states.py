"""What the partial matches of a pattern cost: their expiry, their snapshots, and memory."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import itemgetter
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.pattern_matching import MatchByTime
from malflow.patterns import Pattern, step
from malflow.patterns.positions import Masks
from malflow.records.batch import BATCH_SIZE, Batch
from workloads.pattern_records import SPAN, batches, logins, three_failed

__all__ = ["print_growth", "state_rows"]

_MANY_KEYS = 100_000
_SOME_KEYS = 1_000
_RECORDS = 10_000_000
_USERS = 1_000_000
_RECORDS_OF_TRACKING = 200_000
_BATCHES_A_SNAPSHOT = 100


def _pattern() -> Pattern[Any]:
    failed, login = step("failed", lambda it: it["kind"] == "failed"), step("login", lambda it: it["kind"] == "login")
    return three_failed(failed, login)


def _operator(*, tracked: bool = False) -> MatchByTime:
    context = OperatorContext("match", tracked=tracked)
    return MatchByTime(context, _pattern(), kind=None, after="end", limit=1_000, drops_oldest=False)


def state_rows(rounds: int) -> list[Sequence[str]]:
    """Measure, and return the rows of a table: what, measured, target."""
    expiry = median(_expiry() for _ in range(rounds))
    size, flattened = _flat(rounds)
    rows = [
        (f"{_MANY_KEYS:,} keys with a partial match each, expired by one epoch", f"{expiry:.2f} s", "<= 0.5 s"),
        ("a key with 3 partial matches, as plain data: pickled", f"{size:.0f} bytes", "<= 200 bytes"),
        ("the same: time to make and to pickle it", f"{flattened * 1e6:.1f} us", "<= 8 us"),
        *_tracking(rounds),
    ]
    command = [sys.executable, str(Path(__file__).parent.parent / "patterns.py"), "--growth-of", str(_RECORDS)]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - this benchmark
    return [*rows, *(tuple(line.split("|")) for line in shown.splitlines())]


def _failures(keys: int, each: int) -> Batch:
    """Return failed logins, in turn of the keys."""
    count = keys * each
    values = [{"kind": "failed", "size": at & 1023} for at in range(count)]
    return Batch([at % keys for at in range(count)], values, range(count), [(count, count)])


def _expiry() -> float:
    """Return the CPU seconds in which one epoch expires a partial match of each of many keys."""
    operator, late = _operator(), 10 * _MANY_KEYS + SPAN
    operator.process(_failures(_MANY_KEYS, 1))
    gc.collect()
    start = time.process_time()
    timeouts = operator.process(Batch(None, (), (), [(0, late)]))[1]
    took = time.process_time() - start
    if len(timeouts) != _MANY_KEYS:
        raise SystemExit(f"{len(timeouts):,} of {_MANY_KEYS:,} partial matches have expired")
    return took


def _flat(rounds: int) -> tuple[float, float]:
    """Return the bytes of the state of a key with three partial matches, and the CPU seconds for it."""
    times, size = [], 0.0
    for _ in range(rounds):
        operator = _operator(tracked=True)
        operator.process(_failures(_SOME_KEYS, 3))
        gc.collect()
        start = time.process_time()
        operator.sync_state()
        pickled = [pickle.dumps(it, 5) for it in operator.state.values()]
        times.append((time.process_time() - start) / _SOME_KEYS)
        size = sum(map(len, pickled)) / len(pickled)
    return size, median(times)


def _tracking(rounds: int) -> list[Sequence[str]]:
    """Compare the operator where no snapshot is asked for with its parts, and with one that tracks changes."""
    columns = batches(logins(_RECORDS_OF_TRACKING))
    times: dict[str, list[float]] = {"bare": [], "untracked": [], "tracked": []}
    gc.freeze()
    for turn in range(2 * rounds):
        order = list(times)[turn % 3 :] + list(times)[: turn % 3]
        for name in order:
            gc.collect()
            start = time.process_time()
            if name == "bare":
                _bare(columns)
            else:
                _taken(columns, tracked=name == "tracked")
            times[name].append((time.process_time() - start) / _RECORDS_OF_TRACKING * 1e9)
    gc.unfreeze()
    ratios = [median(one / other for one, other in zip(times[name], times["bare"], strict=True)) for name in times]
    return [
        ("operator without snapshots / predicates, sort and machine alone", f"{ratios[1]:.2f}", "1"),
        ("the same with a snapshot each batch", f"{ratios[2]:.2f}", ""),
    ]


def _taken(columns: Sequence[Batch], *, tracked: bool) -> None:
    operator = _operator(tracked=tracked)
    for batch in columns:
        operator.process(batch)
        if tracked:
            operator.delta()


def _bare(columns: Sequence[Batch]) -> None:
    """Do what matching needs, without an operator around it."""
    pattern = _pattern()
    machine, masks_of = pattern.machine("end", 1_000), Masks(pattern.all_steps).of
    for batch in columns:
        times, keys, values, masks = batch.timestamps, batch.keys or (), batch.values, masks_of(batch.values)
        rows = [(times[at], keys[at], masks[at], values[at]) for at in compress(range(len(masks)), masks)]
        rows.sort(key=itemgetter(0))
        machine.walk(rows)
        for key in machine.timers.due(batch.epochs[-1][1]):
            machine.expire(key, batch.epochs[-1][1])


def print_growth(count: int) -> None:
    """Take records of many users with snapshots tracked; print what is left, as rows of a table."""
    operator = _operator(tracked=True)
    last_failure: dict[int, int] = {}
    before, largest = _resident(), 0.0
    for number, batch in enumerate(_batches_of_users(count)):
        rows = zip(batch.keys or (), batch.values, batch.timestamps, strict=True)
        last_failure.update((user, at) for user, value, at in rows if value["kind"] == "failed")
        operator.process(batch)
        if number % _BATCHES_A_SNAPSHOT == 0:
            operator.delta()
            largest = max(largest, _resident())
    operator.delta()
    pending = sum(at >= count - 1 - SPAN for at in last_failure.values())
    what = f"{count / 1e6:,.0f} million records of {_USERS:,} keys"
    state = f"{len(operator.state):,} of {len(last_failure):,} keys"
    print(f"{what}: keys with state, of those with a failed login|{state}|{pending:,} with one in the last 5 minutes")
    size = sum(len(pickle.dumps(it, 5)) for it in operator.state.values())
    print(f"the same: that state, pickled|{size / 1000:,.0f} kB|")
    print(f"the same: growth of the process, with the benchmark's own count|{largest - before:.0f} MB|")


def _batches_of_users(count: int) -> Iterator[Batch]:
    """Yield batches of records of a million keys, one a millisecond, with 1 % logins."""
    random = Random(4)
    kinds = ["view"] * 990 + ["failed"] * 6 + ["login"] * 4
    for start in range(0, count, BATCH_SIZE):
        times = range(start, min(count, start + BATCH_SIZE))
        users = random.choices(range(_USERS), k=len(times))
        values = [{"kind": kind} for kind in random.choices(kinds, k=len(times))]
        yield Batch(users, values, times, [(len(times), times[-1])])


def _resident() -> float:
    """Return the megabytes of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
