"""Measure reading of states beside a restore, live answers, and tables beside other operators and bytewax by hand.

pip install 'malflow[parquet]'
python benchmarks/state.py [--rounds 5] [--only read,key,live,tables] [--keys 1000000] [--workers 8]

Each measurement of reading is a process of its own, on one local snapshot, which is in the page cache; each round of
tables is one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from state_parts.table_flows import measure_flows
from tables import print_table

from malflow import SingleThreadRuntime, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.state_specs import states_of
from malflow.graph import Graph
from malflow.snapshot import FsspecBackend, RestoreOptions, read_state
from malflow.sources import SingleIteratorSource

_SECTIONS = ["read", "key", "live", "tables"]

_STATES: dict[str, Callable[[int], Any]] = {
    "counts": lambda number: number,
    "tuples of seven": lambda number: (number, 2 * number, number / 7, f"abc{number}", True, number + 1, 2.5),
    "dicts of three": lambda number: {"count": number, "total": number / 7, "last": f"abc{number}"},
}

_READERS = ["restore", "read_state", "to_arrow", "export_state"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--only", default=",".join(_SECTIONS), help="sections")
    parser.add_argument("--keys", type=int, default=1_000_000, help="the keys of the snapshot")
    parser.add_argument("--workers", type=int, default=8, help="the workers of the snapshot")
    parser.add_argument("--states", type=int, default=len(_STATES), help="how many kinds of states, simple ones first")
    parser.add_argument("--records", type=int, default=400_000, help="the records of the tables")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a running job is asked")
    parser.add_argument("--runtimes", default="single_thread,spark", help="the runtimes that are asked")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        what, *how = json.loads(options.one)
        if what == "live":
            print(json.dumps(import_module("state_parts.live").measured(how[0], how[1], idle=how[2])))
            return
        found = {"write": _write, "flows": measure_flows}.get(what, partial(_measured, what))
        print(json.dumps(found(*how)))
        return
    only = options.only.split(",")
    if "tables" in only:
        _print_tables(options.rounds, options.records)
    sections = {"read": _print_read, "key": _print_key}
    if "live" in only:
        _print_live(options.runtimes.split(","), options.seconds)
    if not set(only) & set(sections):
        return
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.states):  # a process that has forked from a large one has its peak
            _child("write", folder, number, options.keys, options.workers)
        for name in sections.keys() & set(only):
            what = f"{options.keys:,} keys on {options.workers} workers"
            sections[name](folder, options.rounds, [*_STATES][: options.states], what)


def _flow(values: range, make: Callable[[int], Any]) -> Callable[[StreamProvider], None]:
    def build(provider: StreamProvider) -> None:
        source = provider.new_stream().source("numbers", SingleIteratorSource(values))
        source.key_distribute("number", lambda msg: msg.value).stateful_map(
            "kept", lambda key, _value, _state: (None, make(key))
        )

    return build


def _write(folder: str, number: int, keys: int, workers: int) -> dict[str, float]:
    make = list(_STATES.values())[number]
    backend = FsspecBackend(folder, job=f"job-{number}")
    SingleThreadRuntime(_flow(range(keys), make), backend, parallelism=workers).execute()
    return {}


def _print_read(folder: str, rounds: int, states: list[str], what: str) -> None:
    print(f"\nall states of {what}, s of processor time, medians; peak memory beside the libraries', MB")
    rows = []
    for number, name in enumerate(states):
        found = {reader: [_child(reader, folder, number) for _ in range(rounds)] for reader in _READERS}
        times = {reader: [it["cpu"] for it in them] for reader, them in found.items()}
        ratio = median(one / two for one, two in zip(times["restore"], times["to_arrow"], strict=True))
        shown = [f"{median(times[it]):.2f} ({median(m['MB'] for m in found[it]):,.0f} MB)" for it in _READERS]
        rows.append([name, *shown, f"{ratio:.2f}"])
    print_table(["", *_READERS, "speed of to_arrow / restore"], rows)


def _print_key(folder: str, rounds: int, states: list[str], what: str) -> None:
    print(f"\none of {what}, s, medians")
    rows = []
    for number, name in enumerate(states):
        found = [_child("key", folder, number) for _ in range(rounds)]
        rows.append([name, *(f"{median(it[unit] for it in found):.3f}" for unit in ("wall", "cpu"))])
    print_table(["", "from the call to the answer", "of it processor time"], rows)


_TARGETS = {
    "to_table": ("stateful_map", 1.2),
    "to_table, rows": ("stateful_map", 1.2),
    "join_table, arrival": ("stateful_map", 2.0),
    "join_table, time": ("asof_join", 1.2),
}
"""The flow that each is compared with, and how many times its processor time is allowed."""


def _print_tables(rounds: int, records: int) -> None:
    measured = [_child("flows", records) for _ in range(rounds)]
    found = {name: [it[name] for it in measured] for name in measured[0]}
    print(f"\ntables of 10,000 keys, {records:,} records, ns of processor time a record, medians")
    rows = []
    for name, times in found.items():
        base, most = _TARGETS.get(name, ("", None))
        ratio = median(mine / other for mine, other in zip(times, found[base], strict=True)) if base else None
        beside = "" if ratio is None else f"{ratio:.2f} x {base} ({most:g})"
        rows.append([name, f"{median(times):,.0f}", beside])
    print_table(["flow", "ns", "beside (target)"], rows)


def _print_live(runtimes: list[str], seconds: float) -> None:
    print("\na question for one of 10,000 keys on 2 workers, ten a second; ms; the throughput with questions / without")
    rows = []
    for runtime in runtimes:
        for idle in (False, True):
            found = _child("live", runtime, seconds, idle)
            times = [f"{found[it]:,.1f}" for it in ("median", "p99", "tick", "longest")]
            ratio = "" if idle else f"{found['ratio']:.3f}"
            rows.append([f"{runtime}, {'idle' if idle else 'busy'}", f"{found['asked']:.0f}", *times, ratio])
    print_table(["", "questions", "median", "p99", "median tick", "longest tick", "throughput"], rows)


def _measured(reader: str, folder: str, number: int) -> dict[str, float]:
    """Read a snapshot; return seconds of processor time and of the clock, and the growth of peak memory in MB."""
    backend = FsspecBackend(folder, job=f"job-{number}")
    read = _reader(reader, backend, f"{folder}/{number}.parquet")
    before, cpu, wall = _peak(), time.process_time(), time.perf_counter()
    read()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "MB": _peak() - before}


def _reader(reader: str, backend: FsspecBackend, path: str) -> Callable[[], object]:
    """Return the measurement; libraries are imported before."""
    match reader:
        case "restore":
            graph = Graph()
            _flow(range(0), int)(StreamProvider(graph))
            specs = states_of(compile_graph(graph))
            return lambda: backend.open(specs, RestoreOptions())
        case "read_state":
            return lambda: sum(1 for _ in read_state(backend, "kept"))
        case "key":
            return lambda: read_state(backend, "kept", key=77)
    tables: Any = import_module("malflow.reading.tables")
    if reader == "to_arrow":
        return lambda: tables.to_arrow(backend, "kept")
    Path(path).unlink(missing_ok=True)
    return lambda: tables.export_state(backend, "kept", path)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _child(*how: str | float) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", json.dumps(how)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this program
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
