"""Measure worker processes beside one thread and bytewax's processes, with their start, idle ticks and memory.

pip install 'malflow[bench,processes]'
python benchmarks/processes.py [--rounds 5] [--records N] [--only a,b,c,d,e,f,g,h,start,ticks] [--kafka localhost:9092]

Each run of each peer is a process of its own. Rates count from the moment when all its processes are ready to open the
source to the last result in any, so they leave the start of processes out. (c) and (g) need malflow[kafka] and a
server, where they make topics, and leave them. (e), (f) and (h) read files with names drawn at random in each run, (h)
also of drawn sizes. There are no snapshots.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from operator import truediv
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

from process_parts.inputs import FILES, PARTITIONS, PARTS, drawn_names, topics_of, write_files, write_uneven_files
from process_parts.marks import Memory
from tables import print_table

_BUSY_SECONDS = 20e-6
_SMALL = 20
"""Ticks with few records for each one without: they need no pause."""

_TOLD = 4_000
"""Characters of what a child said that are shown where it failed."""


class Peer(NamedTuple):
    """One way to run a dataflow.

    Attributes:
        library: malflow or bytewax.
        processes: the number of worker processes; 0 for one thread.
        method: how they are started.
    """

    library: str
    processes: int
    method: str = "spawn"


PEERS = {
    "one thread": Peer("malflow", 0),
    "1 process": Peer("malflow", 1),
    "2 processes": Peer("malflow", 2),
    "4 processes": Peer("malflow", 4),
    "bytewax, 1": Peer("bytewax", 1),
    "bytewax, 2": Peer("bytewax", 2),
}
STARTS = {
    "one thread": Peer("malflow", 0),
    "1 process": Peer("malflow", 1),
    "2 processes": Peer("malflow", 2),
    "4 processes": Peer("malflow", 4),
    "2 processes, forkserver": Peer("malflow", 2, "forkserver"),
    "4 processes, forkserver": Peer("malflow", 4, "forkserver"),
}
TICKING = {name: peer for name, peer in PEERS.items() if peer.library == "malflow"}

ONE, OURS, THEIRS = "one thread", "2 processes", "bytewax, 2"
"""The peers that are compared."""


class Job(NamedTuple):
    """A job.

    Attributes:
        title: its name in tables.
        records: how many records it has by default: some seconds for one thread.
        share: bytewax gets one record of so many.
        faster: the target: how many times as fast as one thread two processes are, at least.
        than_bytewax: the target: how many times as fast as two processes of bytewax they are, at least.
    """

    title: str
    records: int
    share: int
    faster: float
    than_bytewax: float | None = None


JOBS = {
    "a": Job("running sum", 8_000_000, 4, 1.1, 4.0),
    "b": Job("JSON lines to windows", 1_000_000, 4, 1.6, 4.0),
    "c": Job("Kafka to windows to Kafka", 2_400_000, 4, 1.6),
    "d": Job("20 us a record", 150_000, 1, 1.8),
    "e": Job("4 files of text by functions", 1_000_000, 4, 1.3),
    "f": Job("4 files of text by fields", 1_000_000, 4, 1.3),
    "g": Job("12 partitions of Kafka by functions", 1_000_000, 4, 1.3),
    "h": Job("200 uneven files by functions", 1_000_000, 4, 1.5),
}
_DRAWN = ("e", "f", "h")
"""The jobs that read files with names drawn at random in each round."""

SECTIONS = (*JOBS, "start", "ticks")
START_TARGET, TICK_TARGET = 1.0, 2.0
"""Seconds until an empty dataflow has ended, and milliseconds of a tick without records, at most."""

T = TypeVar("T")
Runs = dict[str, list[dict[str, Any]]]
"""What was measured in each round, by peer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each peer does each job")
    parser.add_argument("--records", type=int, help="how many records malflow gets; by default it depends on the job")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, such as a,b,start")
    parser.add_argument("--starts", type=int, default=7, help="how many runs measure the start")
    parser.add_argument("--ticks", type=int, default=60, help="how many ticks without records are measured")
    parser.add_argument("--processes", type=int, default=4, help="the most worker processes for starts and ticks")
    parser.add_argument("--kafka", default="localhost:9092", help="the broker's address, for (c) and (g)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(_measure(*json.loads(options.one))))
        return
    only = options.only.split(",")
    if unknown := set(only) - set(SECTIONS):
        raise SystemExit(f"--only takes {', '.join(SECTIONS)}; got {', '.join(sorted(unknown))}")
    jobs = {letter: _run_job(letter, options) for letter in JOBS if letter in only}
    if jobs:
        _print_jobs(jobs)
    starts, ticking = (
        {name: it for name, it in them.items() if it.processes <= options.processes} for them in (STARTS, TICKING)
    )
    if "start" in only:
        _print_starts(_in_turn("start", starts, options.rounds, lambda peer: _child("start", peer, options.starts)))
    if "ticks" in only:
        idle = _in_turn("idle", ticking, options.rounds, lambda peer: _child("ticks", peer, options.ticks, 0))
        most = _SMALL * options.ticks
        small = _in_turn("small", ticking, options.rounds, lambda peer: _child("ticks", peer, most, 1))
        _print_ticks(idle, small)


# In a child


def _measure(what: str, peer: Sequence[Any], *how: Any) -> Any:
    """Measure one thing in this process."""
    library, processes, method = peer
    if library == "bytewax":
        from process_parts import bytewax_jobs  # noqa: PLC0415 - what a peer needs, only its process loads

        return bytewax_jobs.measure_job(what, processes, *how)
    from process_parts import malflow_jobs  # noqa: PLC0415 - as above

    if what == "start":
        return malflow_jobs.measure_start(processes, method, *how)
    if what == "ticks":
        return malflow_jobs.measure_ticks(processes, *how)
    return malflow_jobs.measure_job(what, processes, *how)


# In the parent


def _child(what: str, peer: Peer, *how: Any) -> Any:
    """Measure one thing in a new process."""
    command = [sys.executable, __file__, "--one", json.dumps([what, peer, *how])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - this program
    if done.returncode != 0:
        raise SystemExit(f"{what}, {peer} failed:\n{done.stderr[-_TOLD:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _in_turn(name: str, peers: Mapping[str, Peer], rounds: int, measure: Callable[[Peer], T]) -> dict[str, list[T]]:
    """Measure each peer once a round, each round beginning with another one."""
    order = list(peers)
    found: dict[str, list[T]] = {peer: [] for peer in order}
    for turn in range(rounds):
        for peer in order[turn % len(order) :] + order[: turn % len(order)]:
            found[peer].append(measure(peers[peer]))
        print(f"{name}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def _run_job(letter: str, options: argparse.Namespace) -> Runs:
    """Run a job by each peer once a round."""
    job = JOBS[letter]
    most = (options.records or job.records) // PARTS * PARTS
    counts = {"malflow": most, "bytewax": most // job.share // PARTS * PARTS}
    with tempfile.TemporaryDirectory() as folder:
        sources = {count: _source(letter, count, folder, options.kafka) for count in set(counts.values())}

        def measure(peer: Peer) -> dict[str, Any]:
            count = counts[peer.library]
            with tempfile.TemporaryDirectory() as notes, tempfile.TemporaryDirectory(dir=folder) as names:
                source = drawn_names(sources[count], names) if letter in _DRAWN else sources[count]
                found = _child(letter, peer, count, source, notes)
            if found["records"] != count:
                raise SystemExit(f"({letter}) {peer}: results of {found['records']} of {count} records")
            return {**found, "rate": count / found["seconds"]}

        runs = _in_turn(f"({letter})", PEERS, options.rounds, measure)
    totals = {(it["records"], it["total"]) for found in runs.values() for it in found}
    if len(totals) > len(sources):
        raise SystemExit(f"({letter}) the peers disagree: {totals}")
    return runs


def _source(letter: str, records: int, folder: str, servers: str) -> Any:
    """Make the input of a job; return what its dataflow needs to know."""
    if letter == "b" or letter in _DRAWN:
        path = Path(folder, str(records))
        path.mkdir()
        if letter == "h":
            return write_uneven_files(str(path), records)
        return write_files(str(path), records, FILES if letter in _DRAWN else PARTS)
    if letter in ("c", "g"):
        return (servers, *topics_of(servers, records, PARTS if letter == "c" else PARTITIONS))
    return _loops() if letter == "d" else None


def _loops() -> int:
    """Return how often to loop for 20 microseconds."""
    loops = 1_000_000
    return round(loops * _BUSY_SECONDS / min(_seconds_of(loops) for _ in range(5)))


def _seconds_of(loops: int) -> float:
    began = time.perf_counter()
    for _ in range(loops):
        pass
    return time.perf_counter() - began


# Tables


def _print_jobs(jobs: Mapping[str, Runs]) -> None:
    names = {letter: f"({letter}) {JOBS[letter].title}" for letter in jobs}
    print("\nrecords/s, medians; '/': how many times as fast, median of the rounds (least); in brackets: at least\n")
    header = ("job", "records", *PEERS, f"{OURS} / {ONE}", "least", f"{OURS} / {THEIRS}", "least")
    print_table(header, [(names[letter], *_rates(letter, runs)) for letter, runs in jobs.items()])
    print("\nprocessor time of all processes, us a record, medians\n")
    costs = [
        (names[letter], *(f"{median(map(_cpu, runs[peer])):.2f}" for peer in PEERS)) for letter, runs in jobs.items()
    ]
    print_table(("job", *PEERS), costs)
    print("\nresident memory, MB, medians: of a worker process before its first record and at its end; PSS of all\n")
    header = ("peer", "coordinator", "before", *(f"after ({it})" for it in jobs), *(f"all of ({it})" for it in jobs))
    print_table(header, [(peer, *_memories([runs[peer] for runs in jobs.values()])) for peer in PEERS])


def _rates(letter: str, runs: Runs) -> Sequence[str]:
    job = JOBS[letter]
    rates = {peer: [it["rate"] for it in found] for peer, found in runs.items()}
    faster = list(map(truediv, rates[OURS], rates[ONE]))
    than = list(map(truediv, rates[OURS], rates[THEIRS]))
    return (
        f"{runs[OURS][0]['records']:,}",
        *(f"{median(rates[peer]):,.0f}" for peer in PEERS),
        f"{median(faster):.2f} ({job.faster:g})",
        f"{min(faster):.2f}",
        f"{median(than):.1f}" + ("" if job.than_bytewax is None else f" ({job.than_bytewax:g})"),
        f"{min(than):.1f}",
    )


def _cpu(run: Mapping[str, Any]) -> float:
    cpu: float = 1e6 * (run["cpu"] + run.get("coordinator_cpu", 0.0)) / run["records"]
    return cpu


def _memories(by_job: Sequence[Sequence[Mapping[str, Any]]]) -> Sequence[str]:
    every = [run for runs in by_job for run in runs]
    coordinators = [Memory(*run["coordinator"]).rss for run in every if "coordinator" in run]
    before = median(Memory(*it).rss for run in every for it in run["before"])
    after = [median(Memory(*it).rss for run in runs for it in run["after"]) for runs in by_job]
    whole = [median(map(_whole_memory, runs)) for runs in by_job]
    return (f"{median(coordinators):.0f}" if coordinators else "", *(f"{it:.0f}" for it in (before, *after, *whole)))


def _whole_memory(run: Mapping[str, Any]) -> float:
    parts = [*run["after"], *([run["coordinator"]] if "coordinator" in run else [])]
    return sum(Memory(*it).pss for it in parts)


def _print_starts(found: Mapping[str, Sequence[Sequence[float]]]) -> None:
    rows = []
    for name, rounds in found.items():
        firsts, others = [first for first, *_ in rounds], [it for _, *others in rounds for it in others]
        target = f"< {START_TARGET:g}" if STARTS[name].processes else ""
        rows.append((name, f"{median(firsts):.3f}", f"{median(others):.3f}", f"{max(others):.3f}", target))
    print("\nan empty dataflow, seconds: the first run of a program, and later ones\n")
    print_table(("peer", "first, median", "later, median", "later, most", "target"), rows)


def _print_ticks(idle: Mapping[str, Sequence[Sequence[float]]], small: Mapping[str, Sequence[Sequence[float]]]) -> None:
    rows = []
    for name in idle:
        cells = []
        for rounds in (idle[name], small[name]):
            ticks = [1_000 * it for round_ in rounds for it in round_]
            cells += [f"{median(ticks):.2f}", f"{quantiles(ticks, n=10)[-1]:.2f}"]
        rows.append((name, *cells, f"< {TICK_TARGET:g}"))
    print("\nticks of a dataflow with one exchange, milliseconds: without records, and with one of each of 16 parts\n")
    columns = ("idle, median", "10 % are above", "16 records, median", "10 % are above", "target")
    print_table(("peer", *columns), rows)


if __name__ == "__main__":
    main()
