"""Spans of time: every public option that takes one accepts a number of seconds, a timedelta and a text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import Breaker, Budget, GraphError, RestartPolicy, Retry, SingleThreadRuntime, agg, windows
from malflow.checks import checked_duration
from malflow.config import load
from malflow.connectors.kafka import KafkaSource
from malflow.durations import read_duration
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import PeriodicSource, SingleIteratorSource, TextFileSource
from tests.kit.extras import needs

FORMS = (90, 90.0, timedelta(seconds=90), "90s", "1.5m", "1.5 min", "90", "90000ms", "0.025h")
"""The same span."""

SPAN = timedelta(seconds=90)

MODULES = [
    "malflow",
    "malflow.sources",
    "malflow.sinks",
    "malflow.snapshot",
    "malflow.testing",
    "malflow.monitor",
    *(
        f"malflow.connectors.{it}"
        for it in ("codecs", "delta", "files", "http", "kafka", "parquet", "postgres", "redis", "sql")
    ),
]


def parquet_pause(every: Any) -> Any:
    """Return the pause of a source of Parquet files."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("numpy")
    from malflow.connectors.parquet import ParquetSource  # noqa: PLC0415 - only the extra has it

    return ParquetSource("x", discover_every=every).discover_every


BY_CLOCK: dict[str, Callable[[Any], Any]] = {
    "snapshots": lambda it: SingleThreadRuntime(print, FsspecBackend("memory://x"), it)._options.snapshots,
    "builder": lambda it: (
        SingleThreadRuntime.builder()
        .persistence(FsspecBackend("memory://x"))
        .snapshots(it)
        .build(print)
        ._options.snapshots
    ),
    "retain": lambda it: FsspecBackend("memory://x", retain=it)._limits.retain if not _is_number(it) else SPAN,
    "retry_for": lambda it: timedelta(seconds=FsspecBackend("memory://x", retry_for=it)._retry_seconds),
    "backoff": lambda it: RestartPolicy(backoff=it).backoff,
    "open_for": lambda it: Breaker(open_for=it).open_for,
    "window": lambda it: Budget(0.1, it).window,
    "first": lambda it: timedelta(seconds=next(Retry(2, first=it, longest="1h").pauses())),
    "longest": lambda it: timedelta(seconds=next(Retry(2, first="1h", longest=it).pauses())),
    "every": lambda it: PeriodicSource(it).every,
    "offset": lambda it: PeriodicSource("1h", offset=it).offset,
    "discover_every": lambda it: KafkaSource("t", servers="h", discover_every=it).discover_every,
    "files": lambda it: TextFileSource("x", discover_every=it).discover_every,
    "parquet": parquet_pause,
    "configuration": lambda it: load(None, env={}, overrides={"run.snapshots": it}).run.snapshots,
}
"""For each option, a function that passes it on and returns what it was taken for."""

WRONG = ("soon", "5 parsecs", "-1s", "", "1:30", -1, True, float("nan"), 10**400, [1], "9" * 30 + "d")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or value == "90"


@pytest.mark.parametrize("option", BY_CLOCK)
def test_every_form_means_the_same(option: str) -> None:
    assert [it for it in FORMS if BY_CLOCK[option](it) != SPAN] == []


@pytest.mark.parametrize("option", [it for it in BY_CLOCK if it != "configuration"])
def test_wrong_times_are_refused_by_the_name_of_their_option(option: str) -> None:
    name = {"builder": "snapshots", "files": "discover_every", "parquet": "discover_every"}.get(option, option)
    for wrong in WRONG if option != "retain" else WRONG[:5]:  # a number is a number of snapshots
        with pytest.raises(GraphError, match=rf"\b{name}\b.*such as '?(10s|7d)'?.*; got "):
            BY_CLOCK[option](wrong)


def timed(given: Callable[[Any], Any]) -> list[Any]:
    """Return the results of a dataflow over records at each second of a minute."""
    start, sink = datetime(2026, 1, 1, tzinfo=UTC), VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("s", SingleIteratorSource(range(60)))
        assigner: Any = lambda msg: start + timedelta(seconds=msg.value)  # noqa: E731
        given((numbers, assigner)).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return [it.value if hasattr(it, "value") else it for it in sink.values]


def keyed(numbers: Any, assigner: Any, bound: Any = "0s") -> Any:
    """Return a stream in event time with one key."""
    return numbers.event_time("t", assigner, out_of_orderness=bound).key_distribute("k", lambda _: 0)


@pytest.mark.parametrize(
    ("length", "text", "flow"),
    [
        (
            timedelta(seconds=20),
            "20s",
            lambda it, to: keyed(*to).window(windows.tumbling(it)).aggregate("n", agg.count()),
        ),
        (
            timedelta(seconds=5),
            "5 s",
            lambda it, to: keyed(*to).window(windows.tumbling("20s", offset=it)).aggregate("n", agg.count()),
        ),
        (
            timedelta(seconds=10),
            "10s",
            lambda it, to: keyed(*to).window(windows.sliding("20s", it)).aggregate("n", agg.count()),
        ),
        (timedelta(seconds=2), "2s", lambda it, to: keyed(*to).window(windows.session(it)).aggregate("n", agg.count())),
        (timedelta(seconds=5), "5000ms", lambda it, to: keyed(to[0], to[1], it).map("same", lambda x: x)),
        (timedelta(seconds=5), "5s", lambda it, to: keyed(*to).throttle("l", 1, per=it)[0]),
        (timedelta(seconds=5), "5s", lambda it, to: keyed(*to).batch("b", 100, within=it)),
        (timedelta(seconds=5), "5s", lambda it, to: keyed(*to).distinct("d", by=lambda x: x % 3, within=it)),
        (
            timedelta(seconds=2),
            "2s",
            lambda it, to: keyed(*to).match("m", step("a").then(step("b"), within=it)).matches.map("n", str),
        ),
    ],
)
def test_a_text_is_a_length_of_event_time_for_datetimes(length: Any, text: str, flow: Any) -> None:
    by_length = timed(lambda to: flow(length, to))
    assert by_length
    assert timed(lambda to: flow(text, to)) == by_length
    with pytest.raises(GraphError, match="got '5 parsecs'"):
        timed(lambda to: flow("5 parsecs", to))
    with pytest.raises(GraphError, match="got '5'"):  # in which unit
        timed(lambda to: flow("5", to))


@needs("pyarrow")
def test_no_public_option_takes_a_timedelta_alone() -> None:
    text = re.compile(r"\btimedelta\b(?! \| (float|str))")
    found = []
    for module in map(import_module, MODULES):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            methods = (
                [thing, *(it for key, it in vars(thing).items() if key[0] != "_")]
                if inspect.isclass(thing)
                else [thing]
            )
            for it in methods:
                found += [f"{name}: {it!r} {parameter}" for parameter in _alone(it, text)]
    assert [it for it in found if not it.startswith("TimeRow")] == []  # which no user makes


def _alone(thing: Any, text: re.Pattern[str]) -> list[str]:
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [it.name for it in parameters if text.search(str(it.annotation))]


@given(st.text() | st.from_regex(r"\d{1,12}(\.\d{1,8})? ?(us|ms|s|min|m|h|d)?", fullmatch=True))
def test_a_text_is_a_time_or_refused(text: str) -> None:
    found = read_duration(text)
    if found is not None:
        assert checked_duration("it", "wait", text, may_be_zero=True) == found
        return
    with pytest.raises(GraphError, match="it wait must be a time of zero or more, such as '10s'"):
        checked_duration("it", "wait", text, may_be_zero=True)
