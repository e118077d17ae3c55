"""Why nothing comes out: each cause planted in a dataflow that runs, and named, on every runtime."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, StatefulLogic, StatelessLogic, Stream, StreamProvider, agg
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.snapshot.protocol.manifest import DATA
from malflow.sources import StatefulSource
from malflow.windows import counting, tumbling
from tests.conformance.dataflow import Started
from tests.kit.dripping import Drip, Stamps
from tests.kit.ledger import LedgerSink
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

SECONDS = 60
SECOND = timedelta(seconds=1)
NOW = datetime.now(UTC)
EPOCH = 1_700_000_000
"""A time in seconds."""

ENOUGH = 150
"""Records of an endless source in some seconds: more than a part must be silent before it is called so."""

ENDLESS = Stamps([0], 1)
SILENT = Stamps([1, 2, 3])


class Closing(StatefulLogic[Any, Any, Any, Any, Any]):
    """Counts, and emits nothing until an epoch."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        return (state or 0) + 1

    def on_epoch(self, epoch: Any, state: Any, output: Any) -> None:
        del epoch, state, output


class NotB(StatelessLogic[Any, Any, Any, Any]):
    """Drops the records of a part."""

    def on_data(self, msg: Any, output: Any) -> None:
        if msg.key != "b":
            output.send(msg)


class Flow:
    """Builds one stream of a dataflow, whose operators have its name in theirs."""

    def __init__(self, provider: StreamProvider, name: str) -> None:
        self.provider, self.name = provider, name

    def read(self, parts: Any = None, *, of: str = "source", **options: Any) -> Stream[Any, Any, Any]:
        stamps = parts if isinstance(parts, dict) else {"a": parts or ENDLESS}
        source = StatefulSource(Drip(stamps, **options))
        return self.provider.new_stream().source(f"{self.name} {of}", source)

    def timed(self, parts: Any = None, bound: Any = 0, **options: Any) -> Stream[Any, Any, Any]:
        stream = self.read(parts, **options)
        name = f"{self.name} {options.get('of', '')}epochs"
        return stream.event_time(name, lambda msg: msg.timestamp, out_of_orderness=bound)

    def windows(self, stream: Any, size: Any = 10) -> None:
        keyed = stream.key_distribute(f"{self.name} key", lambda msg: 0)
        keyed.window(tumbling(size)).aggregate(self.name, agg.count()).sink(f"{self.name} sink", VecSink())


def join(flow: Flow) -> None:
    left = flow.timed(of="left").key_distribute("join left key", lambda msg: 0)
    right = flow.timed(SILENT, of="right").key_distribute("join right key", lambda msg: 0)
    left.interval_join(flow.name, right, before=0, after=0, how="left").sink("join sink", VecSink())


def union(flow: Flow) -> None:
    both = flow.timed(of="left").union(flow.timed(Stamps([]), of="right"), name="both")
    flow.windows(both)


def reads_before(flow: Flow) -> None:
    stream = flow.read()
    stream.event_time("before epochs", lambda msg: msg.timestamp, out_of_orderness=0)
    stream.key_distribute("before key", lambda msg: 0).stateful_op(flow.name, Closing())


def no_epochs(flow: Flow) -> None:
    flow.read().key_distribute("no key", lambda msg: 0).stateful_op(flow.name, Closing())


def none_returned(flow: Flow) -> None:
    on_time, _ = flow.read().generate_epochs("none epochs", lambda *_: None)
    flow.windows(on_time)


def filtered_part(flow: Flow) -> None:
    stream: Any = flow.read({"a": ENDLESS, "b": ENDLESS})
    kept = stream.stateless_op("not b", NotB())
    flow.windows(kept.event_time("filtered epochs", lambda msg: msg.timestamp, out_of_orderness=0))


def pattern(flow: Flow) -> None:
    keyed = flow.timed().key_distribute("pattern key", lambda msg: 0)
    found = keyed.match(
        flow.name, step("any", lambda _: True).then(step("none", lambda value: value < 0)).within(10**6)
    )
    found.matches.sink("pattern sink", VecSink())


def no_number(value: Any) -> int:
    return int(f"#{value}")


def letters(flow: Flow) -> None:
    flow.read().map(flow.name, no_number, on_error="dead_letter").sink("letters sink", VecSink())


def late_sink(flow: Flow) -> None:
    timed: Any = flow.timed()
    timed.late.sink(flow.name, VecSink())


def healthy(flow: Flow) -> None:
    timed = flow.timed(Stamps([0], 5), bound=3)
    keyed = timed.filter("flows half", lambda value: value % 2 == 0).key_distribute("flows key", lambda msg: 0)
    keyed.window(tumbling(10)).aggregate("flows windows", agg.count()).sink(flow.name, VecSink())


PLANTED: dict[str, tuple[Callable[[Flow], object], str, tuple[str, ...]]] = {
    "silent part": (
        lambda it: it.windows(it.timed({"a": ENDLESS, "b": Stamps([0])})),
        "silent_part",
        (
            "part 'b' of source 'silent part source' gave its last record",
            "idle_after= to operator 'silent part epochs'",
        ),
    ),
    "silent source": (
        lambda it: it.windows(it.timed({"a": SILENT, "b": SILENT})),
        "silent_source",
        ("source 'silent source source' (2 unfinished parts: 'a', 'b') is silent: it has emitted 6 records, the last",),
    ),
    "never": (
        lambda it: it.read(Stamps([])).map("never map", str).sink(it.name, VecSink()),
        "silent_source",
        ("source 'never source' is silent: it has emitted no record since the start",),
    ),
    "filter": (
        lambda it: it.read().filter("filter none", lambda value: value < 0).map("m", str).sink(it.name, VecSink()),
        "filter",
        ("filter 'filter none' by <lambda> (", "test_why.py:", "has dropped all "),
    ),
    "all late": (
        lambda it: it.windows(it.timed(Stamps([1000], -1), bound=1)),
        "all_late",
        ("all records are late at operator 'all late epochs'", "its epoch is 999, 1 behind the newest", "test_why.py:"),
    ),
    "bound": (
        lambda it: it.windows(it.timed(Stamps([0], 1), bound=10**6)),
        "bound",
        (
            "waits for 9; the newest timestamp",
            "issues epochs that are 1000000 earlier",
            "A record at 1000009 or later is needed",
        ),
    ),
    "no epochs": (no_epochs, "no_epochs", ("nothing generates them after source 'no epochs source'",)),
    "none returned": (none_returned, "no_epochs", ("the generator of operator 'none epochs'", "has returned none")),
    "before": (reads_before, "reads_before", ("from before operator 'before epochs', which generates them",)),
    "join": (join, "silent_input", ("operator 'join' waits for its input 2", "source 'join right' is silent")),
    "union": (union, "silent_input", ("operator 'both' waits for its input 2", "source 'union right' is silent")),
    "units": (
        lambda it: it.windows(it.timed(Stamps([EPOCH, EPOCH + 100]), bound=5000)),
        "units",
        ("The timestamps fit seconds; if the bound does not, write 5.",),
    ),
    "small units": (
        lambda it: it.windows(it.timed(Stamps([EPOCH * 1000, EPOCH * 1000 - 4000], 0), bound=5)),
        "units",
        ("fit milliseconds, but the bound of 5", "write 5000"),
    ),
    "future": (
        lambda it: it.windows(it.timed(Stamps([NOW, NOW + timedelta(3650), NOW], SECOND), bound=SECOND), 10 * SECOND),
        "future_record",
        ("which is ahead of the clock by 36", "Drop such records"),
    ),
    "pattern": (pattern, "pattern", ("no match of pattern 'pattern' was completed", "were started, of which")),
    "letters": (
        letters,
        "letters",
        ("has failed at ", "became dead letters. The commonest error is ValueError, ", "last one was ValueError: "),
    ),
    "unfinished": (
        lambda it: it.windows(it.timed(SILENT, discovers=True, ends=True)),
        "unfinished_source",
        ("has read all of its parts to the end and looks for new ones",),
    ),
    "read to its end": (
        lambda it: it.windows(it.timed(SILENT, lag=0)),
        "unfinished_source",
        ("with no input left (lag 0), but it is not finished",),
    ),
    "filtered part": (
        filtered_part,
        "silent_part",
        ("part 'b' of source 'filtered part source' is read", "operator 'not b' drops some"),
    ),
    "count window": (
        lambda it: it.read().key_distribute("k", lambda _: 0).window(counting(10**6)).aggregate(it.name, agg.count()),
        "waits",
        ("no window of a key has got full",),
    ),
    "waits": (lambda it: it.windows(it.timed(), 10**6), "waits", ("1 window open and waits for 999999",)),
    "late": (late_sink, "other_output", ("none of them through its output 1 (the late records)",)),
    "flows": (healthy, "flows", ("records flow",)),
}


def planted(provider: StreamProvider) -> None:
    for name, (add, _, _) in PLANTED.items():
        add(Flow(provider, name))


def test_each_cause_is_named(any_parallelism: Any) -> None:
    with Started(any_parallelism(planted)) as started, ThreadPoolExecutor(len(PLANTED)) as threads:
        handle = started.run
        wait_until(lambda: handle.progress.records.get("bound source", 0) > ENOUGH, SECONDS)
        answers = dict(zip(PLANTED, threads.map(partial(handle.why, timeout=SECONDS), PLANTED), strict=True))
        ends = handle.why("flows windows", timeout=SECONDS), handle.why("flows half", timeout=SECONDS)
        whole = handle.why(timeout=SECONDS)
        for refused in ("nowhere", "al late", 3):
            with pytest.raises(GraphError, match="no operator"):
                handle.why(refused)
    found = {
        name: (answer.cause, [part for part in PLANTED[name][2] if part not in str(answer)])
        for name, answer in answers.items()
    }
    assert found == {name: (cause, []) for name, (_, cause, _) in PLANTED.items()}, "\n".join(
        map(str, answers.values())
    )
    assert {it.cause for it in ends} == {"flows"}
    assert whole.cause == "silent_part"
    for answer in answers.values():
        assert json.loads(json.dumps(answer.as_json()))["cause"] == answer.cause
    assert handle.why("flows").cause == "ended"
    assert handle.why("filter").cause == "filter"


class Ledger(LedgerSink):
    """A ledger that lets the run wait after some transactions."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path)
        self.max_pending = most


SPOILS = pytest.mark.damages_snapshots("a file takes the place of the folder of their data")


def spoilt(data: Path) -> bool:
    """Put a file in the place of a folder, in which nothing can be written then; return whether that is done."""
    with suppress(OSError):
        data.rename(data.with_name(f"away-{time.monotonic_ns()}"))
    with suppress(OSError), data.open("x"):
        return True
    return False


@pytest.mark.parametrize(
    ("most", "every", "broken", "cause", "text"),
    [
        (4, None, False, "sink_waits", "the run takes none by itself: pass snapshots=timedelta(...)"),
        (4, timedelta(hours=1), False, "sink_waits", "the interval is 3600 s"),
        pytest.param(1000, timedelta(seconds=0.05), True, "snapshots_fail", "The last snapshot failed: ", marks=SPOILS),
        pytest.param(
            1,
            timedelta(seconds=0.05),
            True,
            "blocked",
            "sink 'ledger' has 1 transaction that no durable snapshot",
            marks=SPOILS,
        ),
        (4, timedelta(seconds=0.05), False, "flows", "records flow"),
    ],
    ids=["no snapshots", "rare snapshots", "failing snapshots", "blocked", "healthy"],
)
def test_sinks_that_wait_for_snapshots(
    runtime: Any, tmp_path: Path, most: int, every: Any, broken: bool, cause: str, text: str
) -> None:
    def build(provider: StreamProvider) -> None:
        Flow(provider, "numbers").read().sink("ledger", Ledger(tmp_path / "db", most))

    folder = tmp_path / "kept"
    with Started(runtime(build, FsspecBackend(str(folder)), every)) as started:
        handle = started.run
        wait_until(lambda: handle.progress.records.get("ledger", 0) > 5, SECONDS)
        if broken:
            wait_until(lambda: spoilt(folder / "default" / DATA.rstrip("/")), SECONDS)
            wait_until(lambda: handle.progress.snapshot_failure, SECONDS)
            if cause == "blocked":
                wait_until(lambda: handle.progress.status == "blocked", SECONDS)
        elif every is not None and every < SECOND:
            wait_until(lambda: handle.progress.sinks["ledger"].kept, SECONDS)
        answers = [handle.why(name, timeout=SECONDS) for name in ("ledger", None)]
    for answer in answers:
        assert (answer.cause, answer.is_fault) == (cause, cause != "flows")
        assert text in str(answer)
