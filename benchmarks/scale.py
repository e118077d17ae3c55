"""Measure what grows with the number of workers: routes of keys, the driver's work in a tick on Spark, ticks, restores.

pip install 'malflow[spark]'
python benchmarks/scale.py [--rounds 5] [--only routes,driver,partial,...] [--workers 1000]
    [--keys 10000000] [--executors 10] [--ticks 15] [--records 1000000]
    [--postgres "host=localhost dbname=test"]

Each of the other measurements is a process of its own: of its work alone with made-up reports, without Spark; of whole
ticks on Spark, with two processors; of places on a cluster of four executors; of exactly-once sinks that the workers or
the driver write.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
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

_SECTIONS = ["routes", "driver", "ticks", "places", "restores", "losses", "partial", "sinks", "keys", "deals"]
_SECTIONS += ["hand_outs", "moves"]

_MEASURES = {
    "driver": "driver.measure_driver",
    "tick": "ticks.measure_tick",
    "query": "ticks.measure_query",
    "places": "ticks.measure_places",
    "loss": "losses.measure_loss",
    "restore": "restores.measure_restore",
    "rate": "partial.measure_rate",
    "work": "partial.measure_work",
    "sink": "sinks.measure_sink",
    "share": "shares.measure_share",
    "key": "keys.measure_key",
    "deal": "deals.measure_deal",
    "hand_out": "hand_outs.measure_hand_out",
    "million": "hand_outs.measure_million",
    "move": "moves.measure_move",
}
"""The functions that child processes call; some need Spark, or a peer."""

_KINDS = {"rows": "Postgres, rows appended", "keyed": "Postgres, rows by key"}
_PARTIAL = [
    ("1,000 keys, 2 workers", 1_000, 2, 0),
    ("90 % on one of 1,000 keys, 4 workers", 1_000, 4, 1),
    ("100,000 keys, 2 workers", 100_000, 2, 0),
]
"""Name, keys, workers, and whether nine records in ten have one key."""

_POLLS = 20
"""Polls of a tick of 8,192 records for each worker."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--only", default=",".join(_SECTIONS), help="sections")
    parser.add_argument("--workers", type=int, default=1_000, help="the highest number of workers")
    parser.add_argument("--ticks", type=int, default=15, help="the ticks of a driver without Spark")
    parser.add_argument("--keys", type=int, default=10_000_000, help="the keys of a snapshot that is restored")
    parser.add_argument("--executors", type=int, default=10, help="the executors of a cluster that loses one")
    parser.add_argument("--records", type=int, default=1_000_000, help="records that a sink writes")
    parser.add_argument("--postgres", default="", help="the DSN of a server, whose tables a sink writes as well")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        what, *how = json.loads(options.one)
        print(json.dumps(_measured(what, *how)))
        return
    rounds = options.rounds
    sections: dict[str, Callable[[], None]] = {
        "routes": lambda: _print_routes(rounds, options.workers),
        "driver": lambda: _print_driver(rounds, options.workers, options.ticks),
        "ticks": lambda: _print_ticks(rounds),
        "places": lambda: _print_places(rounds),
        "restores": lambda: _print_restores(rounds, options.keys),
        "losses": lambda: _print_losses(rounds, options.executors),
        "partial": lambda: _print_partial(rounds),
        "sinks": lambda: _print_sinks(rounds, options.records, options.postgres),
        "keys": _print_keys,
        "deals": _print_deals,
        "hand_outs": _print_hand_outs,
        "moves": _print_moves,
    }
    for name in options.only.split(","):
        sections[name]()


def _measured(what: str, *how: Any) -> dict[str, float]:
    module, function = _MEASURES[what].split(".")
    found = getattr(import_module(f"scale_parts.{module}"), function)(*how)
    return found if isinstance(found, dict) else {"ms": found}


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


def _print_deals() -> None:
    print("\nparts of a topic on workers, medians of 20 topics with names drawn at random; of dealt ones, the most")
    rows = []
    for parts, workers in ((8, 4), (16, 4), (16, 16), (100, 30), (100, 100), (1_000, 300), (2_000, 1_000)):
        found = _child("deal", parts, workers)
        rows.append(
            [
                f"{parts:,} parts, {workers:,} workers",
                f"{parts / workers:.1f}",
                *(f"{found[name]:,.0f}" for name in ("hashed", "idle", "dealt", "moved")),
            ]
        )
    print_table(
        ["", "mean", "busiest, hashed", "without a part, hashed", "busiest, dealt", "moved to one worker more"], rows
    )


_WAYS = ("handed out", "sizes unknown", "dealt by size", "dealt by number")


def _print_hand_outs() -> None:
    print("\nthe time to read parts of Pareto's sizes, as a multiple of the least: medians of 20 draws, and the worst")
    rows = []
    for parts, workers in ((200, 2), (200, 4), (1_000, 4), (1_000, 16), (10_000, 100)):
        found = _child("hand_out", parts, workers, 20, 1.5)
        cells = (f"{found[way]:.2f}, {found[f'{way}, worst']:.2f}" for way in _WAYS)
        rows.append([f"{parts:,} parts, {workers:,} workers", *cells])
    print_table(["", *_WAYS], rows)
    print("\na million parts, 100 workers, seconds")
    print_table(["", "s"], [[name, f"{found:.2f}"] for name, found in _child("million", 1_000_000, 100).items()])


def _print_moves() -> None:
    print("\nthe time of a tick before and after parts move, as a multiple of the least: medians of 20, and the worst")
    rows = []
    for parts, workers in ((8, 2), (16, 4), (64, 4), (64, 16), (1_000, 100)):
        found = _child("move", parts, workers, 20, 1.5)
        cells = (f"{found[it]:.2f}, {found[f'{it}, worst']:.2f}" for it in ("before", "after"))
        moves = f"{found['moves']:.0f}, {found['most moves']:.0f}"
        rows.append([f"{parts:,} parts, {workers:,} workers", *cells, moves])
    print_table(["", "before", "after", "moves"], rows)


def _print_driver(rounds: int, most: int, ticks: int) -> None:
    print(
        f"\nthe driver's work in each of {ticks:,} ticks, medians; a third of the workers are quiet; snapshots, commits"
    )
    rows = []
    for workers, stages in [size for size in _SIZES if size[0] <= most]:
        found = [_child("driver", workers, stages, ticks) for _ in range(rounds)]
        middle = {name: median([it[name] for it in found]) for name in found[0]}
        rows.append(
            [
                f"{workers:,} workers, {stages} stages",
                f"{middle['ms']:,.1f}; {middle['mean']:,.1f}",
                f"{middle['bytes'] / 1e6:,.2f}",
                f"{middle['characters']:,.0f}",
                f"{middle['early']:,.0f}; {middle['memory']:,.0f}",
            ]
        )
    print_table(
        [
            "",
            "processor time, ms: median; mean with snapshots",
            "reports, MB",
            "command, characters",
            "peak memory, MB: at a quarter; in all",
        ],
        rows,
    )


def _print_ticks(rounds: int) -> None:
    print("\na tick with two records, two workers, from end to end, ms, medians; malflow and the query in turn")
    rows = []
    for stages in (2, 4):
        own, query = zip(
            *[[_child(what, stages)["ms"] for what in ("tick", "query")] for _ in range(rounds)], strict=True
        )
        ratio = median(one / other for one, other in zip(own, query, strict=True))
        rows.append([f"{stages} stages", f"{median(own):,.0f}", f"{median(query):,.0f}", f"{ratio:.2f}"])
    print_table(["", "malflow", "a query that does nothing", "malflow / it"], rows)


def _print_places(rounds: int) -> None:
    print("\nfour executors of one core, eight workers, three stages, medians")
    found = [_child("places", 4, 8) for _ in range(rounds)]
    middle = {name: median(it[name] for it in found) for name in found[0]}
    row = [f"{middle['stay']:.3f}", f"{middle['copies']:.2f}", f"{middle['ms']:,.0f}"]
    print_table(["tasks on the executor of the tick before", "copies of a state", "a tick, ms"], [row])


def _print_restores(rounds: int, keys: int) -> None:
    from scale_parts.restores import write_snapshot  # noqa: PLC0415 - needs Spark, and only here

    print(f"\na start from a snapshot of {keys:,} keys on 4 workers, with 8 workers, medians")
    runs: dict[str, list[dict[str, float]]] = {"one thread": [], "spark": []}
    with tempfile.TemporaryDirectory() as folder:
        write_snapshot(folder, keys)
        for _ in range(rounds):
            for on, found in runs.items():
                copy = f"{folder}/{len(found)} {on}"
                shutil.copytree(f"{folder}/default", f"{copy}/default")
                found.append(_child("restore", copy, on))
                shutil.rmtree(copy)
    rows = [[on, *(f"{median(it[name] for it in found):,.1f}" for name in ("s", "MB"))] for on, found in runs.items()]
    print_table(["", "until the first tick has ended, s", "memory of the driver, MB"], rows)


def _print_losses(rounds: int, executors: int) -> None:
    print(f"\none of {executors} executors of one core is killed, {2 * executors} workers, a million keys, medians")
    found = [_child("loss", executors, 2 * executors, 1_000_000) for _ in range(rounds)]
    middle = {name: median(it[name] for it in found) for name in found[0]}
    row = [
        f"{middle['held'] / 1e6:.1f}",
        f"{middle['read'] / 1e6:.1f}",
        f"{middle['ratio']:.2f}",
        f"{middle['moves']:.1f}",
    ]
    names = ["beside the executor's share", "workers that moved, beside its own"]
    print_table(["state in the scratch folder, MB", "read by others, MB", *names], [row])


def _print_partial(rounds: int) -> None:
    print("\nsums of ints in windows, aggregated before the exchange / not, medians of the ratios; in turn")
    rows = []
    for name, keys, workers, skewed in _PARTIAL:
        works = [[_child("work", keys, workers, skewed, before, _POLLS) for before in (1, 0)] for _ in range(rounds)]
        rates = [[_child("rate", keys, workers, skewed, before) for before in (1, 0)] for _ in range(rounds)]
        ratios = [
            *([one[it] / other[it] for one, other in works] for it in ("bytes", "ns", "longest")),
            *([one[it] / other[it] for one, other in rates] for it in ("cpu", "rate")),
        ]
        rows.append([name, *(f"{median(it):.3f}" for it in ratios)])
    print_table(["", "bytes", "processor time", "with a core for each worker", "on Spark", "records/s there"], rows)


def _print_sinks(rounds: int, records: int, dsn: str) -> None:
    print("\nexactly-once sinks on Spark, two workers, four fields, a snapshot every 4 s, medians; the two in turn")
    rows = []
    for kind in ("parquet", "delta", *(("rows", "keyed") if dsn else ())):
        found = [[_child("sink", kind, records, where, dsn) for where in ("workers", "driver")] for _ in range(rounds)]
        for name, shown in (("records/s", "records/s"), ("driver us", "driver, us a record"), ("state bytes", "bytes")):
            own, driver = [it[name] for it, _ in found], [it[name] for _, it in found]
            ratio = median(one / other for one, other in zip(own, driver, strict=True))
            what = f"{_KINDS.get(kind, kind)}, {'snapshots, bytes' if shown == 'bytes' else shown}"
            rows.append([what, f"{median(own):,.3g}", f"{median(driver):,.3g}", f"{ratio:.3f}"])
    print_table(["", "written by the workers", "by the driver", "workers / driver"], rows)
    if dsn:
        print("\na transaction of a table of Postgres, us a record, medians")
        shares = {kind: [_child("share", kind, records, dsn) for _ in range(rounds)] for kind in _KINDS}
        table = [
            [_KINDS[kind], *(f"{median(it[part] for it in found):.2f}" for part in ("encode", "stage", "merge"))]
            for kind, found in shares.items()
        ]
        print_table(["", "encoded by the workers", "reduced and copied by a task", "merged by the server"], table)


def _print_keys() -> None:
    from scale_parts.keys import KINDS  # noqa: PLC0415 - only here

    print("\nbytes of a key with its state in a process, among a million")
    print_table(["key and state", "bytes"], [[kind, f"{_child('key', kind)['bytes']:,.0f}"] for kind in KINDS])


def _child(*how: str | int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", json.dumps(how)]
    errors = subprocess.DEVNULL  # Spark's own, of executors that end
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603 - this program
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
