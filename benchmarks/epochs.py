"""Measure what an epoch generator costs a record, record by record and by the column of timestamps.

python benchmarks/epochs.py [--rounds 5] [--records 400000]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from operator import truediv
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from tables import print_table

from malflow import limit_out_of_orderness
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.epochs.part_epochs import GeneratePartEpochs
from malflow.records.batch import BATCH_SIZE, Batch

_START = datetime(2024, 1, 1, tzinfo=UTC)
_BOUND = 4_000
_SECOND = 1_000
_DISORDER = 3_000
_CONTEXT = OperatorContext("epochs")
_PEERS = ("by record", "by column", "by record, every 1 s", "by column, every 1 s")


class Case(NamedTuple):
    """A stream of a thousand records per second of event time.

    Attributes:
        datetimes: whether timestamps are datetimes, and not integers.
        disorder: how many milliseconds a record may be behind.
        parts: how many parts have an epoch of their own; 0 for one epoch of the stream.
    """

    datetimes: bool
    disorder: int
    parts: int

    def __str__(self) -> str:
        order = f"{self.disorder // _SECOND} s disorder" if self.disorder else "in order"
        parts = {0: "one stream", 1: "one part"}.get(self.parts, f"{self.parts} parts")
        return f"{'datetimes' if self.datetimes else 'integers'}, {order}, {parts}"


_CASES = [Case(kind, disorder, parts) for parts in (0, 1, 8) for disorder in (0, _DISORDER) for kind in (False, True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each peer takes each stream")
    parser.add_argument("--records", type=int, default=400_000, help="the length of a stream")
    options = parser.parse_args()
    rows = [_measure(case, _batches(case, options.records), options.rounds) for case in _CASES]
    print("\nCPU ns a record, medians; '/': how many times as long, median of the rounds\n")
    print_table(("stream", *_PEERS, "1 / 2", "1 / 4", "3 / 4"), rows)


def _measure(case: Case, batches: Sequence[Batch], rounds: int) -> Sequence[str]:
    """Run each peer once a round, each round beginning with another one, and make the row of the table."""
    records = sum(map(len, batches))
    times: dict[str, list[float]] = {peer: [] for peer in _PEERS}
    late: dict[str, set[int]] = {peer: set() for peer in _PEERS}
    for turn in range(rounds):
        for peer in _PEERS[turn % len(_PEERS) :] + _PEERS[: turn % len(_PEERS)]:
            elapsed, count = _seconds(_operator(case, peer), batches)
            times[peer].append(elapsed / records * 1e9)
            late[peer].add(count)
    if late["by record"] != late["by column"] or late["by record, every 1 s"] != late["by column, every 1 s"]:
        raise SystemExit(f"{case}: the peers disagree: {late}")
    ratios = [median(map(truediv, times[_PEERS[one]], times[_PEERS[other]])) for one, other in ((0, 1), (0, 3), (2, 3))]
    print(case, {peer: round(median(times[peer])) for peer in _PEERS}, flush=True)
    return (str(case), *(f"{median(times[peer]):,.0f}" for peer in _PEERS), *(f"{ratio:.1f}" for ratio in ratios))


def _seconds(operator: GenerateEpochs, batches: Sequence[Batch]) -> tuple[float, int]:
    """Time the operator on a stream, in processor time; return how many records were late too."""
    gc.collect()
    start = time.process_time()
    late = sum(len(outputs[1]) for outputs in operator.run([batches]))
    return time.process_time() - start, late


def _operator(case: Case, peer: str) -> GenerateEpochs:
    unit: Any = timedelta(milliseconds=1) if case.datetimes else 1
    bound, every = _BOUND * unit, _SECOND * unit if "every" in peer else None
    generator = limit_out_of_orderness(bound) if "column" in peer else _by_record(bound)
    if not case.parts:
        return GenerateEpochs(_CONTEXT, generator, every=every, checked=True)
    operator = GeneratePartEpochs(_CONTEXT, generator, "source", every=every, checked=True)
    parts = tuple(_names(case.parts))
    operator.source = SimpleNamespace(may_get_more=False, polled_parts=parts, live_parts=parts, in_order=False)  # type: ignore[assignment] # what of it is asked
    return operator


def _by_record(bound: Any) -> Callable[[Any, Any], Any]:
    def newest_minus_bound(msg: Any, _previous: Any) -> Any:
        return msg.timestamp - bound

    return newest_minus_bound


def _batches(case: Case, records: int) -> list[Batch]:
    """Make the batches of a stream; its parts take turns, as those of a source do."""
    random = Random(1)
    ticks = [at - (random.randrange(case.disorder) if case.disorder else 0) for at in range(records)]
    stamps: list[Any] = [_START + timedelta(milliseconds=tick) for tick in ticks] if case.datetimes else ticks
    names = _names(max(1, case.parts))
    keys = [names[at % len(names)] for at in range(records)]
    return [
        Batch(keys[at : at + BATCH_SIZE], ticks[at : at + BATCH_SIZE], stamps[at : at + BATCH_SIZE])
        for at in range(0, records, BATCH_SIZE)
    ]


def _names(parts: int) -> list[str]:
    return [f"part-{number}.csv" for number in range(parts)]


if __name__ == "__main__":
    main()
