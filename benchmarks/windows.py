"""Compare windows with hand-written loops and bytewax, in one process, in rounds.

pip install 'malflow[bench]'
python benchmarks/windows.py [--rounds 5] [--records 150000] [--only tumbling] [--plot benchmarks/plots]

Whole dataflows: source, timestamps, epochs, keys, windows, sink, with changes tracked for snapshots. Records come at
1,000 a second of event time, for 1,000 keys. bytewax gets fewer records, since it takes a hundred times as long; for
sessions it gets all, since its cost of a record grows with the stream.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import truediv
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from tables import print_table
from workloads.window_loops import pairs_by_hand, sessions_by_hand, sliding_by_hand, tumbling_by_hand
from workloads.window_peers import bytewax_pairs, bytewax_windows

from malflow import SingleThreadRuntime, agg, limit_out_of_orderness
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.windows import session, sliding, tumbling

PEERS = ("malflow", "loop", "bytewax")

TARGETS: dict[str, dict[str, float]] = {
    "tumbling, agg.sum": {"loop": 1.2, "bytewax": 25},
    "tumbling, five aggregators": {"loop": 1.2, "bytewax": 25},
    "tumbling, fold": {"loop": 1.1, "bytewax": 20},
    "sliding 60 s by 1 s": {"loop": 8, "bytewax": 100},
    "session, gap 5 s": {"loop": 1.0, "bytewax": 8},
    "interval join, 2 s": {"loop": 0.5, "bytewax": 12},
}
"""How many times as fast as each peer malflow should be at least."""

_KEYS = 1_000
_START = datetime(2024, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_BOUND = 3 * _SECOND

Record = dict[str, Any]


class Outcome(NamedTuple):
    """What the results of a run come to, by which peers are compared: they must agree."""

    results: int
    total: float


class Peer(NamedTuple):
    """One way to do a job.

    Attributes:
        run: does it.
        records: how many records it gets.
        differs: whether its results are others by nature.
    """

    run: Callable[[], Outcome]
    records: int
    differs: bool = False


class Totals(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts the results, and adds their values up."""

    def __init__(self) -> None:
        self.results = 0
        self.total = 0.0

    def sink(self, msg: Any) -> None:
        """Add one result."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Add the results of a batch."""
        self.results += len(values)
        for value in values:
            made = value.value
            self.total += made[1] if isinstance(made, tuple) else made


class PairTotals(Totals):
    """A sink that counts pairs, and adds the amounts of their left records up."""

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Add the pairs of a batch."""
        self.results += len(values)
        self.total += sum([left["amount"] for left, _ in values])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each peer does each job")
    parser.add_argument("--records", type=int, default=150_000, help="how many records malflow and the loops get")
    parser.add_argument("--only", default="", help="a word in the names of the jobs to run")
    parser.add_argument("--plot", type=Path, help="folder for the plot; needs matplotlib")
    options = parser.parse_args()
    times = {
        name: _measure(name, peers, options.rounds)
        for name, peers in jobs(options.records).items()
        if options.only in name
    }
    ratios = {name: {peer: _ratios(its, peer) for peer in PEERS[1:]} for name, its in times.items()}
    print("\nCPU ns a record, medians; '/': how many times malflow's, median of the rounds; in brackets: at least\n")
    header = ("job", *PEERS, *(f"{peer} / malflow" for peer in PEERS[1:]))
    print_table(header, [_row(name, its, ratios[name]) for name, its in times.items()])
    if options.plot is not None:
        from plots import plot_windows  # noqa: PLC0415 - an extra

        plot_windows(options.plot, ratios, TARGETS)


def jobs(count: int) -> dict[str, Mapping[str, Peer]]:
    """Return the ways to do each job, with `count` records."""
    few = max(10_000, count // 15)
    disordered, short = _records(count, 3), _records(few, 3)
    ordered, brief = _records(count, 0), _records(few, 0)
    bursts = _bursts(count)
    by_side = [(number % 2, record) for number, record in enumerate(disordered)]
    minute = tumbling(60 * _SECOND)
    five = agg.count(), agg.sum("amount"), agg.min("amount"), agg.max("amount"), agg.mean("amount")
    fold = agg.fold(int, lambda total, value: total + value["amount"], merge=lambda one, other: one + other)
    by_hand = Peer(lambda: Outcome(*tumbling_by_hand(disordered, 60 * _SECOND, _BOUND)), count)
    minutes = Peer(lambda: Outcome(*bytewax_windows(short, _START, "tumbling")), few)
    slides = sliding(60 * _SECOND, _SECOND)
    return {
        "tumbling, agg.sum": {
            "malflow": Peer(lambda: _windowed(disordered, minute, agg.sum("amount")), count),
            "loop": by_hand,
            "bytewax": minutes,
        },
        "tumbling, five aggregators": {
            "malflow": Peer(lambda: _windowed(disordered, minute, *five), count),
            "loop": by_hand,
            "bytewax": minutes,
        },
        "tumbling, fold": {
            "malflow": Peer(lambda: _windowed(disordered, minute, fold), count),
            "loop": by_hand,
            "bytewax": minutes,
        },
        "sliding 60 s by 1 s": {
            "malflow": Peer(lambda: _windowed(ordered, slides, agg.sum("amount")), count),
            "loop": Peer(lambda: Outcome(*sliding_by_hand(brief, 60, _SECOND, _BOUND)), few),
            "bytewax": Peer(lambda: Outcome(*bytewax_windows(brief[:5_000], _START, "sliding")), 5_000),
        },
        "session, gap 5 s": {
            "malflow": Peer(lambda: _windowed(bursts, session(5 * _SECOND), agg.sum("amount")), count),
            "loop": Peer(lambda: Outcome(*sessions_by_hand(bursts, 5 * _SECOND, _BOUND)), count),
            "bytewax": Peer(lambda: Outcome(*bytewax_windows(bursts, _START, "session")), count),
        },
        "interval join, 2 s": {
            "malflow": Peer(lambda: _joined(*_sides(disordered)), count),
            "loop": Peer(lambda: Outcome(*pairs_by_hand(by_side, 2 * _SECOND, _BOUND)), count),
            "bytewax": Peer(lambda: Outcome(*bytewax_pairs(_sides(short), _START, 4 * _SECOND)), few, differs=True),
        },
    }


def _records(count: int, disorder: int) -> list[Record]:
    """Make records at 1,000 a second, up to `disorder` seconds behind."""
    random = Random(7)
    made = []
    for number in range(count):
        behind = random.randrange(1000 * disorder) if disorder else 0
        at = _START + timedelta(milliseconds=10_000 + number - behind)
        made.append({"key": f"key-{random.randrange(_KEYS)}", "at": at, "amount": random.randrange(100)})
    return made


def _bursts(count: int) -> list[Record]:
    """Make records of keys that are busy for five seconds in a hundred, fifty at a time."""
    random = Random(7)
    return [
        {
            "key": f"key-{number * 7919 % 50 + 50 * (number // 5000 % 20)}",
            "at": _START + timedelta(milliseconds=10_000 + number),
            "amount": random.randrange(100),
        }
        for number in range(count)
    ]


def _sides(records: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """Return the records of the left and of the right stream of a join."""
    return records[::2], records[1::2]


def _timed(provider: Any, name: str, records: Sequence[Record]) -> Any:
    """Return a keyed stream of records with epochs."""
    stream = provider.new_stream().source(f"records{name}", SingleIteratorSource(records))
    timed = stream.assign_timestamps(f"at{name}", lambda msg: msg.value["at"])
    on_time, late = timed.generate_epochs(f"epochs{name}", limit_out_of_orderness(_BOUND), every=_SECOND)
    late.filter(f"none{name}", lambda _: False)
    return on_time.key_distribute(f"key{name}", lambda msg: msg.value["key"])


def _windowed(records: Sequence[Record], windows: Any, *aggregators: Any) -> Outcome:
    totals = Totals()

    def build(provider: Any) -> None:
        keyed = _timed(provider, "", records)
        keyed.window(windows).aggregate("windows", *aggregators).sink("totals", StatelessSink(totals))

    return _outcome(build, totals)


def _joined(lefts: Sequence[Record], rights: Sequence[Record]) -> Outcome:
    totals = PairTotals()

    def build(provider: Any) -> None:
        left, right = _timed(provider, " of the left", lefts), _timed(provider, " of the right", rights)
        pairs = left.interval_join("pairs", right, before=2 * _SECOND, after=2 * _SECOND)
        pairs.sink("totals", StatelessSink(totals))

    return _outcome(build, totals)


def _outcome(build: Callable[[Any], None], totals: Totals) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        SingleThreadRuntime(build, FsspecBackend(folder), at_end="finish").execute()
    return Outcome(totals.results, totals.total)


def _measure(name: str, peers: Mapping[str, Peer], rounds: int) -> dict[str, list[float]]:
    """Run each peer once a round, each round beginning with another one; return the times by peer."""
    times: dict[str, list[float]] = {peer: [] for peer in peers}
    order = list(peers)
    for turn in range(rounds):
        outcomes: dict[int, set[Outcome]] = {}
        for peer in order[turn % len(order) :] + order[: turn % len(order)]:
            run, records, differs = peers[peer]
            gc.collect()
            start = time.process_time()
            outcome = run()
            times[peer].append((time.process_time() - start) / records * 1e9)
            if not differs:
                outcomes.setdefault(records, set()).add(outcome)
        if any(len(found) > 1 for found in outcomes.values()):
            raise SystemExit(f"{name}: the peers disagree: {outcomes}")
    print(name, {peer: round(median(found)) for peer, found in times.items()}, flush=True)
    return times


def _ratios(times: Mapping[str, Sequence[float]], peer: str) -> list[float]:
    return list(map(truediv, times[peer], times["malflow"]))


def _row(name: str, times: Mapping[str, Sequence[float]], ratios: Mapping[str, Sequence[float]]) -> Sequence[str]:
    compared = [f"{median(ratios[peer]):.1f} ({target:g})" for peer, target in TARGETS[name].items()]
    return (name, *(f"{median(times[peer]):,.0f}" for peer in PEERS), *compared)


if __name__ == "__main__":
    main()
