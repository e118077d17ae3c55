"""Compare patterns with hand-written loops and with Siddhi, in one process each, in rounds; measure their state.

pip install 'malflow[bench]'; Siddhi needs Java 17 and Maven, and is left out where they are missing
python benchmarks/patterns.py [--rounds 5] [--records 400000] [--only logins] [--plot benchmarks/plots]

Records come at 1,000 a second of event time, for 1,000 keys, in order. "Matching" is the operator alone, on columns in
memory, beside a loop over the same columns: the targets are about these two. "Dataflow" is the whole of malflow, from
the source to the sink, beside a loop that calls the same functions of timestamps and keys.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter, itemgetter, truediv
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from java_programs import missing
from tables import print_table
from workloads.pattern_loops import (
    absence_by_hand,
    classes_by_hand,
    failures_by_hand,
    on_time,
    rising_by_hand,
    rows_of,
)
from workloads.pattern_records import (
    Failed,
    LoggedIn,
    absence,
    batches,
    by_class,
    five_rising,
    logins,
    orders,
    prices,
    three_failed,
)
from workloads.pattern_siddhi import Siddhi
from workloads.pattern_states import print_growth, state_rows

from malflow import SingleThreadRuntime, limit_out_of_orderness
from malflow.message import MAX
from malflow.operators.contract import OperatorContext
from malflow.operators.pattern_matching import MatchByTime
from malflow.patterns import Pattern, step
from malflow.records.batch import Batch
from malflow.runtime.process_state import rarer_collections
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import SingleIteratorSource

_KIND = itemgetter("kind")
_PEERS = ("loop on columns", "matching", "loop", "dataflow", "Siddhi")
_RATIOS = (
    ("matching", "loop on columns"),
    ("dataflow", "loop"),
    ("Siddhi", "matching"),
    ("Siddhi", "dataflow"),
)


class Job(NamedTuple):
    """A pattern, records and a loop that does the same.

    Attributes:
        records: the records.
        pattern: the pattern.
        loop: returns the number of matches in rows.
        kind: returns the kind of a value; None if no step has one.
        query: the name of Siddhi's query; None if Siddhi is left out.
        target: how many times as long as the loop's the matching may take.
    """

    records: Sequence[Any]
    pattern: Pattern[Any]
    loop: Callable[[Any], int]
    kind: Callable[[Any], Any] | None = None
    query: str | None = None
    target: float = 0


class Count(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts the matches."""

    def __init__(self) -> None:
        self.matches = 0

    def sink(self, _msg: Any) -> None:
        """Count a match."""
        self.matches += 1

    def sink_batch(self, _keys: Sequence[Any], values: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Count the matches of a batch."""
        self.matches += len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each peer does each job")
    parser.add_argument("--records", type=int, default=400_000, help="how many records there are")
    parser.add_argument("--only", default="", help="a word in the names of the jobs to run, or 'state'")
    parser.add_argument("--plot", type=Path, help="the folder for the plot")
    parser.add_argument("--growth-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.growth_of is not None:
        print_growth(options.growth_of)
        return
    states = state_rows(options.rounds) if options.only in "state" else []
    found = {
        name: _measure(name, make(options.records), options.rounds)
        for name, make in _JOBS.items()
        if options.only in name
    }
    if found:
        print("\nCPU ns a record, medians; '/': how many times as long, median of the rounds\n")
        ratios = [f"{one} / {other}" for one, other in _RATIOS]
        print_table(("job", *_PEERS, *ratios, "target"), [_row(name, *it) for name, it in found.items()])
    if states:
        print("\nstate\n")
        print_table(("what", "measured", "target"), states)
    if options.plot and found:
        from plots import plot_patterns  # noqa: PLC0415 - matplotlib is not needed for the table

        plot_patterns(options.plot, {name: times for name, (times, _) in found.items()})


def _logins(count: int) -> Job:
    failed, login = step("failed", lambda it: it["kind"] == "failed"), step("login", lambda it: it["kind"] == "login")
    return Job(logins(count), three_failed(failed, login), failures_by_hand, query="failures", target=2.5)


def _logins_by_kind(count: int) -> Job:
    pattern = three_failed(step("failed", "failed"), step("login", "login"))
    return Job(logins(count), pattern, failures_by_hand, _KIND, target=1.7)


def _logins_by_class(count: int) -> Job:
    pattern = three_failed(step("failed", Failed), step("login", LoggedIn))
    return Job(by_class(logins(count)), pattern, classes_by_hand, target=1.7)


def _orders(count: int) -> Job:
    pattern = absence(lambda it: it["kind"] == "A", lambda it: it["kind"] == "B", lambda it: it["kind"] == "C")
    return Job(orders(count), pattern, absence_by_hand, target=4)


def _orders_by_kind(count: int) -> Job:
    return Job(orders(count), absence("A", "B", "C"), absence_by_hand, _KIND, target=4)


def _prices(count: int) -> Job:
    return Job(prices(count), five_rising(), rising_by_hand, query="rising", target=7)


_JOBS = {
    "1 logins, predicates": _logins,
    "1 logins, kind=": _logins_by_kind,
    "1 logins, classes": _logins_by_class,
    "2 A, B, no C, predicates": _orders,
    "2 A, B, no C, kind=": _orders_by_kind,
    "3 five rising, given=": _prices,
}


def _matching(job: Job, columns: Sequence[Any]) -> int:
    """Return how many matches the operator alone finds."""
    operator = MatchByTime(
        OperatorContext("match"),
        job.pattern,
        kind=job.kind,
        after="end",
        limit=1_000,
        drops_oldest=False,
        is_on_time=True,  # as in a dataflow, where epochs come from the same stream
    )
    found = sum(len(operator.process(batch)[0]) for batch in columns)
    return found + len(operator.process(Batch(None, (), (), [(0, MAX)]))[0])


def _dataflow(job: Job, time_of: Callable[[Any], int], key_of: Callable[[Any], Any]) -> int:
    """Return how many matches a whole dataflow finds."""
    count = Count()

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("records", SingleIteratorSource(job.records))
        timed = stream.assign_timestamps("at", time_of)
        punctual, late = timed.generate_epochs("epochs", limit_out_of_orderness(1_000), every=1_000)
        late.filter("none", lambda _: False)
        keyed = punctual.key_distribute("user", key_of)
        keyed.match("match", job.pattern, kind=job.kind).matches.sink("count", StatelessSink(count))

    SingleThreadRuntime(build).execute()
    return count.matches


@contextmanager
def _peers(job: Job) -> Iterator[Mapping[str, Callable[[], tuple[float, int]]]]:
    """Yield the peers of a job: each returns its CPU seconds and the number of matches."""
    field = itemgetter if isinstance(job.records[0], dict) else attrgetter
    at_of, user_of = field("at"), field("user")

    def time_of(msg: Any) -> int:
        at: int = at_of(msg.value)
        return at

    def key_of(msg: Any) -> Any:
        return user_of(msg.value)

    columns = batches(job.records)
    peers = {
        "loop on columns": lambda: _timed(lambda: job.loop(rows_of(columns))),
        "matching": lambda: _timed(lambda: _matching(job, columns)),
        "loop": lambda: _timed(lambda: job.loop(on_time(job.records, time_of, key_of))),
        "dataflow": lambda: _timed(lambda: _dataflow(job, time_of, key_of)),
    }
    absent = missing()
    if job.query is None or absent:
        if job.query is not None:
            print(f"Siddhi is left out: {', '.join(absent)} not found")
        yield peers
        return
    with tempfile.TemporaryDirectory() as folder:
        siddhi = Siddhi(job.query, job.records, Path(folder))
        siddhi.round()  # its compiler does its work
        yield {**peers, "Siddhi": siddhi.round}
        siddhi.close()


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    gc.collect()
    with rarer_collections():  # as in a run, for all
        start = time.process_time()
        result = work()
        return time.process_time() - start, result


def _measure(name: str, job: Job, rounds: int) -> tuple[Mapping[str, Sequence[float]], float]:
    """Run each peer once a round, each round beginning with another one; return CPU ns a record, and the target."""
    with _peers(job) as peers:
        gc.freeze()  # what the records cost the garbage collector is no peer's doing
        times: dict[str, list[float]] = {peer: [] for peer in peers}
        order = list(peers)
        for turn in range(rounds):
            matches: dict[str, int] = {}
            for peer in order[turn % len(order) :] + order[: turn % len(order)]:
                elapsed, matches[peer] = peers[peer]()
                times[peer].append(elapsed / len(job.records) * 1e9)
            if len({count for peer, count in matches.items() if peer != "Siddhi"}) > 1:
                raise SystemExit(f"{name}: the peers disagree: {matches}")
        gc.unfreeze()
    print(name, {peer: round(median(its)) for peer, its in times.items()}, "matches:", matches, flush=True)
    return times, job.target


def _row(name: str, times: Mapping[str, Sequence[float]], target: float) -> Sequence[str]:
    medians = [f"{median(times[peer]):,.0f}" if peer in times else "" for peer in _PEERS]
    ratios = [f"{median(map(truediv, times[one], times[other])):.1f}" if one in times else "" for one, other in _RATIOS]
    return name, *medians, *ratios, f"<= {target}"


if __name__ == "__main__":
    main()
