"""Measure snapshots: what one costs, what an increment and a restore cost, and what they take from the flow.

python benchmarks/snapshots.py [--rounds 5] [--scale 1.0] [--plot benchmarks/plots]
"""

from __future__ import annotations

import argparse
import gc
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import lz4.frame
from tables import print_table, seconds

from malflow import NoKey, SingleThreadRuntime, StreamProvider, rendezvous_select
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.snapshot import FsspecBackend, snapshots
from malflow.snapshot.persistence import RestoreOptions, Session
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from malflow.states.keyed import Delta, KeyedState
from malflow.states.kinds import StateKind, StateSpec

KEYS = 1_000_000
CHANGED = 100
"""One key in so many changes before an increment."""

FLOWS = {1_000: 20_000_000, 100_000: 10_000_000, 1_000_000: 10_000_000}
"""Records of the running sum, by its number of keys."""

OPERATORS = [StateSpec("state", StateKind.STATEFUL_MAP, 1, None)]


class Numbers(StatefulSourceImpl[Any, int, int, int]):
    """A source that resumes: the numbers below `keys`, over and over, in an order that jumps about."""

    keyed = False

    def __init__(self, records: int, keys: int) -> None:
        self._numbers = [number * 7_919 % keys for number in range(keys)]
        self._records = records

    def list_parts(self) -> Iterable[Any]:
        """List the one part."""
        return [NoKey]

    def build_part(self, part: Any, state: int | None) -> NumbersPartition:
        """Return a reader that starts at a position."""
        del part
        return NumbersPartition(self._numbers, self._records, state or 0)


class NumbersPartition(StatefulSourcePartition[int, int, int]):
    """Slices of a list."""

    def __init__(self, numbers: list[int], records: int, position: int) -> None:
        self._numbers = numbers
        self._records = records
        self._position = position

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the next slice; a shorter one where the list restarts."""
        start = self._position % len(self._numbers)
        values = self._numbers[start : start + min(limit, self._records - self._position)]
        self._position += len(values)
        return values, range(self._position - len(values), self._position)

    def poll(self) -> tuple[int, int] | None:
        """Return one number."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def is_finished(self) -> bool:
        """Whether all numbers were emitted."""
        return self._position >= self._records

    def snapshot(self) -> int:
        """Return how many numbers were emitted."""
        return self._position


class Forget(StatelessSinkImpl[Any, Any, Any]):
    """A sink that costs nothing."""

    def sink(self, msg: Any) -> None:
        """Do nothing."""

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Do nothing."""


def counter(number: int) -> Any:
    return number * 7


def window(number: int) -> Any:
    draw = random.Random(number)
    start = 1_700_000_000_000 + number * 1_000
    return [
        (
            start + at * 250,
            draw.choice(("view", "click", "buy")),
            round(draw.uniform(1, 500), 2),
            f"user-{number % 997}",
        )
        for at in range(20)
    ]


def profile(number: int) -> Any:
    draw = random.Random(number)
    return {
        "id": number,
        "name": f"customer {number}",
        "active": number % 3 == 0,
        "address": {"city": draw.choice(("Bern", "Oslo", "Porto", "Gent")), "zip": f"{draw.randrange(10_000, 99_999)}"},
        "totals": {month: draw.randrange(10_000) for month in ("jan", "feb", "mar", "apr")},
        "tags": draw.sample(("new", "vip", "mail", "phone", "late", "eu"), 3),
    }


KINDS: dict[str, tuple[Callable[[int], Any], int]] = {
    "counters": (counter, KEYS),
    "windows of 20 events": (window, KEYS // 50),
    "nested dicts": (profile, KEYS // 20),
}


class Costs(NamedTuple):
    """The measurements of one round, in seconds and bytes."""

    plain: float
    captured: float
    full: float
    increment_captured: float
    increment: float
    plain_restore: float
    restore: float
    raw: int
    plain_bytes: int
    full_bytes: int
    increment_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    parser.add_argument("--plot", type=Path, help="folder for the plots; needs matplotlib")
    options = parser.parse_args()
    rounds = {kind: [_costs(kind, options.scale) for _ in range(options.rounds)] for kind in KINDS}
    _print_costs(rounds, options.scale)
    flow = _print_flow(options.rounds, options.scale)
    _print_moves()
    if options.plot is not None:
        from plots import plot_snapshots  # noqa: PLC0415 - an extra

        plot_snapshots(options.plot, {kind: _medians(costs) for kind, costs in rounds.items()}, flow)


def _costs(kind: str, scale: float) -> Costs:
    """Fill a state, and take a full snapshot, an increment, and a restore of both."""
    make, size = KINDS[kind]
    count = int(size * scale)
    state = KeyedState(tracked=True)
    state.update((f"key-{number}", make(number)) for number in range(count))
    gc.collect()
    gc.freeze()  # what the state costs the garbage collector is nobody's doing here
    with tempfile.TemporaryDirectory() as folder:
        backend = FsspecBackend(folder, job="costs")
        session, _ = backend.open(OPERATORS, RestoreOptions())
        plain_state = dict(state)
        plain, (raw, packed) = seconds(lambda: _plain(plain_state))
        captured, full = _commit(session, state)
        changed = [f"key-{number}" for number in range(0, count, CHANGED)]
        for number, key in enumerate(changed):
            state[key] = make(count + number)
        state.touch(changed)
        increment_captured, increment = _commit(session, state)
        session.close(wait=True)
        plain_restore, _ = seconds(lambda: pickle.loads(lz4.frame.decompress(packed)))  # noqa: S301 - just written
        restore, again = seconds(lambda: _restored(backend))
        if again != state:
            raise SystemExit("what was restored is not what was kept")
        base, both = (snapshot.bytes for snapshot in snapshots(backend))
    gc.unfreeze()
    return Costs(
        plain, captured, full, increment_captured, increment, plain_restore, restore, len(raw), len(packed), base,
        both - base,
    )  # fmt: skip


def _plain(state: dict[str, Any]) -> tuple[bytes, bytes]:
    raw = pickle.dumps(state, 5)
    return raw, lz4.frame.compress(raw)


def _commit(session: Session, state: KeyedState) -> tuple[float, float]:
    """Take a snapshot; return how long the run is paused, and how long until it is committed."""
    gc.collect()
    start = time.perf_counter()
    made = session.commit(1, 1, OPERATORS, [(0, "state", state.delta(), len(state))])
    captured = time.perf_counter() - start
    made.result()
    return captured, time.perf_counter() - start


def _restored(backend: FsspecBackend) -> KeyedState:
    session, restored = backend.open(OPERATORS, RestoreOptions())
    session.close(wait=True)
    state = KeyedState(tracked=True)
    state.apply(Delta(restored.states["state"][0] if restored else {}, whole=True))
    return state


def _print_costs(rounds: dict[str, list[Costs]], scale: float) -> None:
    rows, shares = [], []
    for kind, costs in rounds.items():
        middle = _medians(costs)
        rows.append((
            kind,
            f"{int(KINDS[kind][1] * scale):,}",
            *(f"{1000 * time:,.0f}" for time in (middle.plain, middle.full, middle.captured)),
            f"{1000 * middle.increment:,.1f}",
            *(f"{1000 * time:,.0f}" for time in (middle.plain_restore, middle.restore)),
            f"{median(it.full / it.plain for it in costs):.2f}",
            f"{median(it.increment / it.full for it in costs):.1%}",
            f"{median(it.restore / it.plain_restore for it in costs):.2f}",
        ))  # fmt: skip
        shares.append((
            kind,
            f"{middle.raw / 1e6:,.1f}",
            f"{middle.plain_bytes / 1e6:,.1f}",
            f"{middle.full_bytes / 1e6:,.1f}",
            f"{1 - middle.full_bytes / middle.raw:.0%}",
            f"{middle.increment_bytes / 1e6:,.2f}",
            f"{middle.increment_bytes / middle.full_bytes:.1%}",
        ))  # fmt: skip
    print(
        "\nmilliseconds, medians; plain: pickle.dumps and lz4 of the same dict, and back; stands: what the run waits\n"
    )
    header = ("state", "keys", "plain", "full", "stands", "1 % changed", "plain restore", "restore")
    print_table((*header, "full / plain", "1 % / full", "restore / plain"), rows)
    print("\nmegabytes\n")
    header = ("state", "pickled", "with lz4", "full snapshot", "saved", "1 % changed", "1 % / full")
    print_table(header, shares)


def _medians(costs: list[Costs]) -> Costs:
    return Costs(*map(median, zip(*costs, strict=True)))


def _flow(keys: int, records: int, folder: str | None) -> None:
    """Run a running sum, with a snapshot a second where there is a folder."""

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(records, keys)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value)
        sums = keyed.stateful_map("sum", lambda _key, value, total: (total + value, total + value), default=int)
        sums.sink("forget", StatelessSink(Forget()))

    if folder is None:
        SingleThreadRuntime(build_dataflow).execute()
        return
    SingleThreadRuntime(build_dataflow, FsspecBackend(folder), snapshots=timedelta(seconds=1)).execute()


def _print_flow(rounds: int, scale: float) -> dict[int, list[float]]:
    """Compare runs with and without snapshots, in turn."""
    lost: dict[int, list[float]] = {}
    rows = []
    for keys, records in FLOWS.items():
        count = int(records * scale)
        times: dict[str, list[float]] = {"without": [], "with": []}
        made = []
        for turn in range(rounds):
            for which in ("without", "with") if turn % 2 else ("with", "without"):
                with tempfile.TemporaryDirectory() as folder:
                    elapsed, _ = seconds(partial(_flow, keys, count, folder if which == "with" else None))
                    times[which].append(elapsed)
                    if which == "with":
                        made.append(list(snapshots(FsspecBackend(folder)))[-1].id - 1)
        lost[keys] = [1 - without / with_ for without, with_ in zip(times["without"], times["with"], strict=True)]
        rate = median(count / elapsed for elapsed in times["without"])
        with_rate = median(count / elapsed for elapsed in times["with"])
        figures = (f"{keys:,}", f"{count:,}", f"{rate / 1e6:.2f}", f"{with_rate / 1e6:.2f}", f"{median(made):.0f}")
        rows.append((*figures, f"{median(lost[keys]):.1%}"))
    print("\nrunning sum, million records a second, without snapshots and with one each second; medians\n")
    print_table(("keys", "records", "without", "with", "snapshots", "lost"), rows)
    return lost


def _print_moves() -> None:
    """Count which of 100,000 keys move when workers come or go; no key may move between workers that stay."""
    rows = []
    keys = range(100_000)
    for before, after in ((1, 2), (2, 3), (4, 5), (8, 9), (4, 3), (4, 8)):
        places = [(rendezvous_select(key, range(before)), rendezvous_select(key, range(after))) for key in keys]
        moved = sum(old != new for old, new in places)
        needless = sum(old != new and old < after and new < before for old, new in places)
        least = abs(after - before) / max(before, after)
        rows.append((f"{before} to {after}", f"{moved / len(keys):.2%}", f"{least:.2%}", f"{needless}"))
    print("\nkeys that move when the number of workers changes, of 100,000\n")
    print_table(("workers", "moved", "least possible", "moved needlessly"), rows)


if __name__ == "__main__":
    main()
