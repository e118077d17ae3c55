"""Equal keys meet, whatever their classes, on any number of workers and after a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from malflow import SingleThreadRuntime, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import END, ScriptedSource
from tests.kit.equal_keys import EXAMPLES, nested

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds")]


def pairs(values: list[Any], workers: int) -> Counter[Any]:
    """Return the pairs, by their indices, that a join of the values with themselves finds."""
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        left, right = (
            provider.new_stream()
            .source(name, SingleIteratorSource(range(len(values))))
            .generate_epochs(f"{name} epochs", limit_out_of_orderness(0))[0]
            .key_distribute(f"{name} key", lambda msg: values[msg.value])
            for name in ("left", "right")
        )
        left.interval_join("join", right, before=10**6, after=10**6).sink("out", out)

    SingleThreadRuntime(build, parallelism=workers).execute()
    return Counter(out.values)


@pytest.mark.fault("E10")
@settings(max_examples=max(25, settings().max_examples // 2))
@given(nested())
def test_a_join_finds_the_same_pairs_on_one_to_five_workers(values: list[Any]) -> None:
    alone = pairs(values, 1)
    assert len(alone) >= len(values)
    for workers in range(2, 6):
        assert pairs(values, workers) == alone


def counts(values: list[Any], folder: Path, workers: int) -> Counter[Any]:
    """Return the running counts of the values as keys, of one run or of the next one, which reads them again."""
    out: VecSink[Any, Any, Any] = VecSink()
    numbers = range(len(values))

    def build(provider: Any) -> None:
        source = StatefulSource(ScriptedSource([*numbers, END, *reversed(numbers)]))
        keyed = provider.new_stream().source("numbers", source).key_distribute("key", lambda msg: values[msg.value])
        keyed.stateful_map("count", lambda key, value, count: ((value, count + 1), count + 1), default=int).sink(
            "out", out
        )

    backend = FsspecBackend(str(folder), job="counts", allow_unsigned_pickle=True)
    SingleThreadRuntime(build, backend, parallelism=workers).execute()
    return Counter(out.values)


@pytest.mark.fault("E10")
@pytest.mark.parametrize("of", EXAMPLES)
def test_a_count_continues_with_equal_keys_of_other_classes(of: str, tmp_path: Path) -> None:
    values = EXAMPLES[of]
    for workers in (3, 4):
        assert counts(values, tmp_path / "several", workers) == counts(values, tmp_path / "alone", 1)
