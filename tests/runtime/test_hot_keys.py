"""Keys that have most of the records are named."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.operators.key_sampling import HotKeys
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import tumbling
from tests.kit.driving import compiled

Read = Callable[[Any], Any]


def run(read: Read, keys: list[str], parallelism: int = 4) -> SingleThreadRuntime:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("keys", SingleIteratorSource(keys))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=1)
        read(timed.key_distribute("key", lambda msg: msg.value)).sink("sink", VecSink())

    runtime = SingleThreadRuntime(build, parallelism=parallelism)
    runtime.execute()
    return runtime


def bars(keyed: Any) -> Any:
    return keyed.window(tumbling(1_000)).aggregate("bars", agg.variance(len))


def is_added_up_before_the_exchange(aggregator: Any) -> bool:
    def build(provider: StreamProvider) -> None:
        timed = provider.new_stream().source("keys", SingleIteratorSource([])).event_time("t", len, out_of_orderness=1)
        windows = timed.key_distribute("key", lambda msg: msg.value).window(tumbling(1_000))
        windows.aggregate("bars", aggregator).sink("sink", VecSink())

    (node,) = [it.node for it in compiled(build).vertices if it.node.name == "bars"]
    return getattr(node, "local", None) is not None


def running(keyed: Any) -> Any:
    return keyed.aggregate("running", agg.count())


SKEWED = [key for number in range(40_000) for key in ("AAPL", f"other {number}", "AAPL", "AAPL")]
EVEN = [f"key {number % 997}" for number in range(80_000)]


@pytest.mark.slow
def test_the_busiest_key_and_its_worker_are_in_the_progress() -> None:
    hot = run(bars, SKEWED).progress.hot
    assert set(hot) == {"bars"}
    assert hot["bars"].key == "'AAPL'"
    assert 0.7 < hot["bars"].key_share < 0.8 < hot["bars"].worker_share < 0.9


@pytest.mark.fault("E30")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "cure"),
    [
        (bars, "not all of agg.variance(len, ddof=1) in windows of 1000 can"),
        (running, "key by more than that, such as"),
    ],
)
def test_one_warning_names_worker_operator_key_and_cure(
    read: Read, cure: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "malflow"):
        hot = run(read, SKEWED).progress.hot
    (name,) = hot
    (message,) = [it.getMessage() for it in caplog.records if "takes" in it.getMessage()]
    assert message.startswith(f"worker {hot[name].worker} of '{name}' takes 8")
    assert "of the records: key 'AAPL' 7" in message
    assert cure in message
    named = re.findall(r"agg\.(\w+)", message.partition("exchange;")[2].partition(" can;")[0])
    aggregators = [agg.sum(of=int) if it == "sum" else getattr(agg, it)() for it in named]
    assert [it for it in aggregators if not is_added_up_before_the_exchange(it)] == []


@pytest.mark.parametrize(("keys", "parallelism"), [(EVEN, 4), (SKEWED, 1), (SKEWED[:2_000], 4)])
@pytest.mark.slow
def test_nothing_is_told_of_even_keys_one_worker_or_few_records(
    keys: list[str], parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "malflow"):
        run(bars, keys, parallelism)
    assert not [it for it in caplog.records if "takes" in it.getMessage()]


def noted(sampled: HotKeys, keys: list[int], step: int) -> None:
    """Send each key so often that it is sampled once, in batches of some size."""
    spread = [key for key in keys for _ in range(61)]
    for start in range(0, len(spread), step):
        part = spread[start : start + step]
        sampled.note(part, [key % 2 for key in part])


@given(st.lists(st.integers(0, 60), min_size=64, max_size=150), st.integers(1, 100))
@pytest.mark.slow
def test_a_sample_has_the_busiest_key_and_worker(keys: list[int], step: int) -> None:
    sampled = HotKeys(2)
    noted(sampled, keys, step)
    found = sampled.take()
    assert found is not None
    exact, of_workers = Counter(map(str, keys)), Counter(key % 2 for key in keys)
    assert found.records == len(keys)
    assert found.of_worker == of_workers[found.worker] == max(of_workers.values())
    assert found.of_key == exact[found.key] == max(exact.values())
    assert sampled.take() is None, "nothing new"


def test_old_records_lose_weight() -> None:
    sampled = HotKeys(2)
    noted(sampled, [1] * 4_000, 10_000)
    for _ in range(4):
        noted(sampled, [2, *range(10, 20)] * 200, 10_000)
    found = sampled.take()
    assert found is not None
    assert found.records <= 4_096
    noted(sampled, [*range(100, 10_000)], 10_000)
    noted(sampled, [2] * 4_000, 10_000)
    found = sampled.take()
    assert found is not None
    assert (found.key, found.worker) == ("2", 0)
