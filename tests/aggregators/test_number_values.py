"""The law of values for numbers that a run adds up in its thread or process, in the script's decimal context."""

from __future__ import annotations

import decimal
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from statistics import pvariance
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from malflow import MultiProcessRuntime, SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource, SourceValues
from malflow.windows import tumbling

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:overflow encountered")]  # as a program has it

EXAMPLES = int(os.environ.get("VALUES", "5"))


def integers(kind: Any) -> st.SearchStrategy[Any]:
    limits = np.iinfo(kind)
    low, high = int(limits.min), int(limits.max)
    return (st.integers(low, high) | st.sampled_from([low, high])).map(kind)


KINDS: list[st.SearchStrategy[Any]] = [
    st.one_of([integers(it) for it in (np.int8, np.int16, np.int32, np.int64)]),
    st.one_of([integers(it) for it in (np.uint8, np.uint16, np.uint32, np.uint64)]) | st.integers(),
    st.booleans().map(np.bool_) | st.booleans(),
    st.floats(-1000, 1000, width=16).map(np.float16) | st.floats(-1000, 1000, width=32).map(np.float32),
    st.integers(-128, 127).map(lambda it: pd.array([it], dtype="Int8")[0]),
    st.decimals(-(10**30), 10**30, places=2),
]
ALWAYS = [
    [np.uint8(it) for it in (200, 100, 7)],
    [np.int32(2**31 - 1), np.int32(1), np.int32(4)],
    [np.int64(2**63 - 1), np.int64(1)],
    [np.uint64(2**64 - 1), np.uint64(1)],
    [np.True_, np.True_, np.True_],
    [np.float32(0.1), np.float32(16777216.0), 1.0],
    [5, np.uint8(255)],
    [*pd.array([100, 100, 100], dtype="Int8")],
    [Decimal("1e40"), Decimal("0.01"), Decimal("-1e40")],
    [Decimal(1), Decimal(1)],
]


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    with decimal.localcontext() as context:
        context.prec, context.rounding = 60, decimal.ROUND_UP
        yield


def third(number: Any) -> Any:
    """Return a third of a Decimal, in the decimal context of whoever calls."""
    return number / 3 if isinstance(number, Decimal) else number


def thirds(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "x": third(record["x"])}


def figures(runtime: Any, lists: Sequence[Sequence[Any]], *, windows: bool) -> list[dict[str, Any]]:
    """Return the sum, mean and variance of each list, from a run in the background."""
    out: VecSink[Any, Any, Any] = VecSink()
    summed = agg.tuple_(agg.sum("x"), agg.mean("x"), agg.variance("x", ddof=0))

    def build(provider: Any) -> None:
        records = [{"at": at, "x": number} for at, numbers in enumerate(lists) for number in numbers]
        source = provider.new_stream().source("in", SingleIteratorSource(records)).map("thirds", thirds)
        if windows:
            timed = source.event_time("t", lambda _: 0, out_of_orderness=1)
            timed.key_distribute("list", "at").window(tumbling(9)).aggregate("figures", summed).sink("out", out)
        else:
            source.key_distribute("list", "at").aggregate("figures", summed).sink("out", out)

    runtime(build).start().await_termination()
    last = {msg.key: msg.value.value if windows else msg.value for msg in out}
    return [{"n": at, "v": it} for at, it in last.items()]


def plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def fraction(number: Any) -> Fraction:
    return Fraction(plain(number))


def same(wrote: Sequence[Any], read: Any) -> bool:
    """Whether a sum is that of the numbers, as Python's own, and mean and variance are close to theirs."""
    numbers = [third(plain(it)) for it in wrote]
    total = read[0]
    mean, variance = map(fraction, read[1:])
    if any(isinstance(it, float) for it in numbers):
        exact = total == sum(numbers)
    else:
        exact = fraction(total) == sum(map(Fraction, numbers))
    terms = list(map(Fraction, numbers))
    size: Fraction = max(*map(abs, terms), Fraction(1, 10**9))
    near = abs(mean - fraction(sum(terms)) / len(terms)) * 10**9 <= size
    spread = abs(variance - fraction(pvariance(terms)))
    is_python = not isinstance(total, np.generic)
    return exact and near and spread * 10**9 <= size * size and is_python


def check(runtime: Any, *, windows: bool, examples: int) -> None:
    lists: list[Sequence[Any]] = []

    def write(some: Sequence[Sequence[Any]]) -> None:
        lists[:] = some

    def source() -> ScriptedSource:
        return ScriptedSource(figures(runtime, lists, windows=windows))

    values = st.one_of([st.lists(kind, min_size=1, max_size=5) for kind in KINDS])
    SourceValues("numbers", source, write, values, same=same, always=ALWAYS, examples=examples).check()


@pytest.mark.parametrize("windows", [False, True])
def test_numbers_that_a_thread_adds(windows: bool) -> None:
    check(SingleThreadRuntime, windows=windows, examples=EXAMPLES)


def test_numbers_that_a_process_adds() -> None:
    check(lambda build: MultiProcessRuntime(build, processes=1), windows=False, examples=1)
