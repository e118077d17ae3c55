"""Measure the runtime on Spark beside PySpark's own operators, bytewax, a plain loop, and an empty query.

python benchmarks/spark.py [--rounds 3] [--seconds 10] [--warm-up 10] [--only sums,latency] [--plot benchmarks/plots]
                           [--beside FOLDER]

Each run of each peer is a process of its own, with a session of its own. With --beside, parts are also read by another
version of malflow, which is in that folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import truediv
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import uuid4

from tables import print_table
from workloads.measured import Measured

SECTIONS = ("sums", "windows", "latency", "growth", "parts")
KEYS = (1_000, 100_000)
IN_SPARK = (
    "transformWithStateInPandas",
    "transformWithStateInPandas by record",
    "applyInPandasWithState",
    "applyInPandasWithState by record",
    "transformWithState",
)
PEERS = ("malflow", "malflow in long ticks", *IN_SPARK, "bytewax", "loop", "two loops")
BATCHES = {"bytewax": (1_000, 10_000)}
MANY_KEYS = 10_000
BATCH, BATCH_OF_MANY_KEYS = 1_000_000, 100_000
"""Records a batch of those in Spark: fewer where there are many keys, or a batch would take even more minutes."""

WINDOWS = {
    "malflow": "malflow, windows",
    "malflow, columns": "malflow, windows, columns",
    "malflow, columns, floats": "malflow, windows, columns, floats",
    "window()": "window()",
    "applyInPandasWithState": "applyInPandasWithState, windows",
}
"""The ways to sum in windows."""

OWN = (
    "malflow",
    *[it for it in WINDOWS.values() if it.startswith("malflow")],
    "malflow in long ticks",
    "trickle",
    "empty",
    "empty in Python",
)
"""Workloads in a session that malflow makes."""

TARGETS = {(1_000, peer): 20.0 for peer in IN_SPARK} | {(100_000, peer): 100.0 for peer in IN_SPARK}
TARGETS |= {(keys, "bytewax"): 2.0 for keys in KEYS}
WINDOW_TARGETS = {"window()": 3.0, "applyInPandasWithState": 8.0}
GROWING_WORKERS = (1, 2, 4, 8)
GROWING_KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
CORES = 2
CLUSTER_WORKERS, CLUSTER_PARTS = 4, 16
CLUSTER = f"local-cluster[{CLUSTER_WORKERS},1,1024]"
"""The cluster on which parts are dealt. Its executors share the cores of the machine."""

LONG_TICK = 8.0
"""Seconds of a trigger: of ticks that long half is for polling."""
_TOLD = 4_000
"""Characters of what a child said that are shown where it failed; Spark says much at each start."""


class Case(NamedTuple):
    """A case that one child process measures.

    Attributes:
        peer: what is measured.
        keys: the number of keys.
        workers: the number of workers.
        batch: the records of a batch, or 0.
        names: the names of the parts, in a cluster.
        version: the folder of another version of malflow.
    """

    peer: str
    keys: int = 1_000
    workers: int = CORES
    batch: int = 0
    names: Sequence[str] = ()
    version: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each thing is measured")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the window is")
    parser.add_argument("--warm-up", type=float, default=10.0, help="how long a run goes on before it")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, such as sums,latency")
    parser.add_argument("--keys", type=_numbers, default=KEYS, help="numbers of keys of the sums")
    parser.add_argument("--peers", type=_names, default=PEERS, help="of the sums, beside malflow")
    parser.add_argument("--batches", type=_numbers, help="records a batch to try PySpark's operators with")
    parser.add_argument("--growing-workers", type=_numbers, default=GROWING_WORKERS, help="of the growth")
    parser.add_argument("--growing-keys", type=_numbers, default=GROWING_KEYS, help="of the growth")
    parser.add_argument("--beside", type=Path, help="folder of another version of malflow, for parts")
    parser.add_argument("--plot", type=Path, help="folder for the plot; needs matplotlib")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(_measure(Case(*json.loads(options.one)), options.warm_up, options.seconds)))
        return
    bench = Bench(options)
    only = options.only.split(",")
    rates = bench.sums() if "sums" in only else {}
    if "windows" in only:
        bench.windows()
    if "latency" in only:
        bench.latency()
    costs = bench.growth() if "growth" in only else {}
    if "parts" in only:
        bench.parts()
    if options.plot is not None:
        from plots import plot_spark  # noqa: PLC0415 - an extra

        plot_spark(options.plot, rates, costs)


def _names(text: str) -> tuple[str, ...]:
    ends = tuple(text.split(","))
    return tuple(peer for peer in PEERS if peer == "malflow" or peer in ends)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number.replace("_", "")) for number in text.split(","))


# In a child


def _measure(case: Case, warm_up: float, seconds: float) -> Any:
    """Measure one case in this process."""
    if case.peer in ("loop", "two loops", "bytewax"):
        from workloads import process_peers  # noqa: PLC0415 - what a peer needs, only its process loads

        if case.peer == "bytewax":
            return asdict(process_peers.measure_bytewax(case.keys, case.batch, warm_up, seconds))
        return asdict(process_peers.measure_loop(case.keys, 1 if case.peer == "loop" else CORES, warm_up, seconds))
    if case.peer == "parts":
        from workloads import spark_parts  # noqa: PLC0415 - as above

        return asdict(spark_parts.measure_parts(case.keys, case.names, case.workers, warm_up, seconds))
    from workloads import spark_flow, spark_peers  # noqa: PLC0415 - as above

    session = _own_session() if case.peer in OWN else spark_peers.make_session(CORES)
    try:
        if case.peer == "trickle":
            return spark_flow.measure_trickle(session, case.workers, warm_up, seconds)
        if case.peer.startswith("empty"):
            in_python = case.peer == "empty in Python"
            return spark_peers.measure_empty(session, case.workers, warm_up, seconds, in_python=in_python)
        if case.peer == WINDOWS["malflow"]:
            return asdict(spark_flow.measure_windows(session, case.keys, case.workers, warm_up, seconds))
        if case.peer.startswith("malflow, windows"):
            floats = case.peer.endswith("floats")
            measured = spark_flow.measure_column_windows(
                session, case.keys, case.workers, warm_up, seconds, floats=floats
            )
            return asdict(measured)
        if case.peer.startswith("malflow"):
            trigger = LONG_TICK if "long" in case.peer else 0.0
            measured = spark_flow.measure_sum(session, case.keys, case.workers, warm_up, seconds, trigger=trigger)
            return asdict(measured)
        return asdict(spark_peers.measure_peer(case.peer, session, case.keys, case.batch, warm_up, seconds))
    finally:
        session.stop()


def _own_session() -> Any:
    """Make a session as malflow makes it where it is given none."""
    from malflow.runtime.spark.session.session import make_session  # noqa: PLC0415 - as above

    session, _ = make_session()
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    return session


# In the parent


class Bench:
    """The sections, each of which prints its tables."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rounds = options.rounds

    def sums(self) -> dict[int, dict[str, list[float]]]:
        """Compare the running sum; return the rates of each round, by keys and peer."""
        rows, tried_rows = [], []
        peers = self._options.peers
        tuned = [peer for peer in (*IN_SPARK, *BATCHES) if peer in peers]
        rates: dict[int, dict[str, list[float]]] = {}
        for keys in self._options.keys:
            sizes = {peer: self._sizes(peer, keys) for peer in tuned}
            tried = {peer: self._try_batches(peer, keys) for peer in tuned if len(sizes[peer]) > 1}
            best = {peer: sizes[peer][0] for peer in tuned}
            best |= {peer: max(by_size, key=lambda size: by_size[size].rate) for peer, by_size in tried.items()}
            cases = {peer: Case(peer, keys, CORES, best.get(peer, 0)) for peer in peers}
            found = self._in_turn(cases, self._measured)
            rates[keys] = {peer: [it.rate for it in found[peer]] for peer in peers}
            for peer in peers:
                name, *cells = _row(peer, best.get(peer), found, TARGETS.get((keys, peer)))
                rows.append((name, f"{keys:,}", *cells))
            tried_rows += [_tried_row(keys, peer, by_size) for peer, by_size in tried.items()]
        print(f"\nrunning sum, local[{CORES}]; malflow with a snapshot each second; medians\n")
        print_table((_HEADER[0], "keys", *_HEADER[1:]), rows)
        print("\nthe sizes of batches that were tried: records/s (seconds a batch), one run each\n")
        columns = sorted({size for *_, by_size in tried_rows for size in by_size})
        cells = [(*names, *(by_size.get(size, "") for size in columns)) for *names, by_size in tried_rows]
        print_table(("peer", "keys", *(f"{size:,}" for size in columns)), cells)
        return rates

    def windows(self) -> None:
        """Compare sums in tumbling windows."""
        sizes = {name: BATCH for name in WINDOWS if name in WINDOW_TARGETS}
        cases = {name: Case(peer, KEYS[0], CORES, sizes.get(name, 0)) for name, peer in WINDOWS.items()}
        found = self._in_turn(cases, self._measured)
        rows = [_row(name, sizes.get(name), found, WINDOW_TARGETS.get(name)) for name in cases]
        print(f"\nsums in windows, {KEYS[0]:,} keys, local[{CORES}]; malflow with a snapshot each second; medians\n")
        print_table(_HEADER, rows)

    def latency(self) -> None:
        """Compare ticks that hold next to nothing with the emptiest query."""
        cases = {
            "malflow": Case("trickle"),
            "emptiest query": Case("empty"),
            "the same, its source in Python": Case("empty in Python"),
        }
        found = self._in_turn(cases, self._child)
        rows = []
        for peer, rounds in found.items():
            ticks = [1_000 * tick for ticks in rounds for tick in ticks]
            ratios = map(truediv, map(median, found["malflow"]), map(median, rounds))
            spread = quantiles(ticks, n=10)
            rows.append((
                peer, f"{len(ticks):,}", f"{median(median(ticks) for ticks in rounds) * 1_000:,.0f}",
                f"{spread[0]:,.0f}", f"{spread[-1]:,.0f}", f"{median(ratios):.2f}",
            ))  # fmt: skip
        print("\nfrom tick to tick with a few records in each, two stages, two workers, milliseconds\n")
        print_table(("peer", "ticks", "median", "10 % are below", "10 % are above", "malflow / it"), rows)

    def growth(self) -> dict[str, dict[int, list[float]]]:
        """Vary the number of workers and of keys; return the ns per record of each round, by what varies."""
        workers = {count: Case("malflow", 100_000, count) for count in self._options.growing_workers}
        keys = {count: Case("malflow", count, CORES) for count in self._options.growing_keys}
        costs: dict[str, dict[int, list[float]]] = {}
        for what, cases in (("workers", workers), ("keys", keys)):
            found = self._in_turn(cases, self._measured)
            costs[what] = {count: [1e9 / it.rate for it in found[count]] for count in cases}
            costs[f"CPU {what}"] = {count: [1e9 * it.cpu / it.records for it in found[count]] for count in cases}
            fixed = "100,000 keys" if what == "workers" else f"{CORES} workers"
            print(f"\nrunning sum as its {what} grow, {fixed}, local[{CORES}], a snapshot each second; medians\n")
            print_table(
                (what, "records/s", "ns a record", "CPU ns a record", "s a tick", "snapshots"),
                [_growth_row(count, found[count]) for count in cases],
            )
        return costs

    def parts(self) -> None:
        """Read parts with names drawn in each round, in a cluster; beside another version if there is one."""
        beside = self._options.beside
        versions = {"malflow": ""} | ({} if beside is None else {"the other version": str(beside)})
        found: dict[str, list[Measured]] = {version: [] for version in versions}
        for turn in range(self._rounds):
            names = [uuid4().hex for _ in range(CLUSTER_PARTS)]
            for version in [*versions][:: -1 if turn % 2 else 1]:
                case = Case("parts", KEYS[0], CLUSTER_WORKERS, names=names, version=versions[version])
                found[version].append(self._measured(case))
        print(f"\nrunning sum of {CLUSTER_PARTS} parts with drawn names, {CLUSTER}, a snapshot each second; medians\n")
        rows = [
            (
                version,
                *_growth_row(KEYS[0], its)[1:],
                f"{median(map(truediv, _rates(found['malflow']), _rates(its))):.2f}",
            )
            for version, its in found.items()
        ]
        columns = ("version", "records/s", "ns a record", "CPU ns a record", "s a tick", "snapshots", "malflow / it")
        print_table(columns, rows)

    def _sizes(self, peer: str, keys: int) -> Sequence[int]:
        if peer not in IN_SPARK:
            return BATCHES[peer]
        return self._options.batches or [BATCH_OF_MANY_KEYS if keys > MANY_KEYS else BATCH]

    def _try_batches(self, peer: str, keys: int) -> dict[int, Measured]:
        return {size: self._measured(Case(peer, keys, CORES, size)) for size in self._sizes(peer, keys)}

    def _in_turn(self, cases: Mapping[Any, Case], measure: Callable[[Case], Any]) -> dict[Any, list[Any]]:
        """Measure each case once a round, each round beginning with another one."""
        names = list(cases)
        found: dict[Any, list[Any]] = {name: [] for name in names}
        for turn in range(self._rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found[name].append(measure(cases[name]))
        return found

    def _measured(self, case: Case) -> Measured:
        measured = Measured(**self._child(case))
        print(f"{case._replace(names=())}: {measured.rate:,.0f} records/s", file=sys.stderr, flush=True)
        return measured

    def _child(self, case: Case) -> Any:
        """Measure a case in a new process."""
        options = self._options
        command = [sys.executable, __file__, "--one", json.dumps(case)]
        command += ["--seconds", str(options.seconds), "--warm-up", str(options.warm_up)]
        here = str(Path(__file__).parent)
        path = os.pathsep.join(filter(None, (case.version, here, os.environ.get("PYTHONPATH"))))
        master = f"--conf spark.master={CLUSTER if case.names else f'local[{CORES},4]'} pyspark-shell"
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": master,
        }
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)  # noqa: S603
        if done.returncode != 0:
            raise SystemExit(f"{case} failed:\n{done.stderr[-_TOLD:]}")
        return json.loads(done.stdout.splitlines()[-1])


_HEADER = (
    "peer", "records a batch", "records/s", "CPU us a record", "s a tick", "snapshots", "malflow / it", "least",
    "by CPU", "target",
)  # fmt: skip


def _row(peer: str, batch: int | None, found: Mapping[str, Sequence[Measured]], target: float | None) -> Sequence[str]:
    its = found[peer]
    pairs = list(zip(found["malflow"], its, strict=True))
    ratios = [ours.rate / it.rate for ours, it in pairs]
    by_cpu = [it.cpu / it.records * ours.records / ours.cpu for ours, it in pairs]
    return (
        peer,
        "" if batch is None else f"{batch:,}",
        f"{median(it.rate for it in its):,.0f}",
        f"{median(1e6 * it.cpu / it.records for it in its):.2f}",
        f"{median(it.tick for it in its):.2f}" if its[0].ticks else "",
        f"{median(it.snapshots for it in its):.0f}" if peer.startswith("malflow") else "",
        f"{median(ratios):.2f}",
        f"{min(ratios):.2f}",
        f"{median(by_cpu):.2f}",
        "" if target is None else f">= {target:g}",
    )


def _tried_row(keys: int, peer: str, by_size: Mapping[int, Measured]) -> tuple[str, str, dict[int, str]]:
    cells = {size: f"{it.rate:,.0f}" + (f" ({it.tick:.1f})" if it.ticks else "") for size, it in by_size.items()}
    return peer, f"{keys:,}", cells


def _rates(its: Sequence[Measured]) -> list[float]:
    return [it.rate for it in its]


def _growth_row(count: int, its: Sequence[Measured]) -> Sequence[str]:
    return (
        f"{count:,}",
        f"{median(it.rate for it in its):,.0f}",
        f"{median(1e9 / it.rate for it in its):,.0f}",
        f"{median(1e9 * it.cpu / it.records for it in its):,.0f}",
        f"{median(it.tick for it in its):.2f}",
        f"{median(it.snapshots for it in its):.0f}",
    )


if __name__ == "__main__":
    main()
