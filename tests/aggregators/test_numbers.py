"""Sums, means and variances are those of the numbers, whatever type and context they come in."""

from __future__ import annotations

import decimal
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add
from statistics import pvariance
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import session, sliding, tumbling

EXTREMES: dict[str, list[Any]] = {
    kind.__name__: [np.iinfo(kind).max, np.iinfo(kind).max, np.iinfo(kind).min, 1, np.iinfo(kind).max]
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
} | {
    "bool_": [True, True, False, True],
    "float16": [0.1, 60000.0, 60000.0, 0.25],
    "float32": [0.1, 16777216.0, 1.0, 0.3],
    "float64": [0.1, 1e16, 1.0],
}


@dataclass
class Sold:
    """A value with the number as an attribute."""

    amount: Any


FORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "value": (lambda x: x, None),
    "item": (lambda x: {"amount": x}, "amount"),
    "attribute": (Sold, "amount"),
    "function": (lambda x: [x], lambda value: value[0]),
}

KINDS: dict[str, Any] = {"running": None, "tumbling": tumbling(99), "sliding": sliding(99, 33), "session": session(99)}


def result(items: Any, aggregator: Any, kind: str = "running", *, background: bool = False) -> Any:
    """Return the result of an aggregation of all items."""
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        source = provider.new_stream().source("in", SingleIteratorSource(items))
        counted = agg.count(), aggregator
        if kind == "running":
            source.key_distribute("k", lambda _: 0).aggregate("a", *counted).sink("out", out)
            return
        timed = source.event_time("t", lambda msg: msg.timestamp, out_of_orderness=0)
        timed.key_distribute("k", lambda _: 0).window(KINDS[kind]).aggregate("a", *counted).sink("out", out)

    runtime = SingleThreadRuntime(build)
    if background:
        runtime.start().await_termination()
    else:
        runtime.execute()
    found = [it if kind == "running" else it.value for it in out.values]
    count, total = max(found, key=lambda it: it[0])
    assert count == len(items)
    return total


FEW = ("uint8", "bool_", "float32")


@pytest.mark.parametrize(
    ("name", "form", "kind"),
    [
        *((name, "value", "running") for name in EXTREMES),
        *((name, form, "running") for name in FEW for form in FORMS if form != "value"),
        *((name, "item", kind) for name in FEW for kind in KINDS if kind != "running"),
    ],
)
def test_numbers_of_numpy_neither_wrap_nor_round(name: str, form: str, kind: str) -> None:
    scalars = list(np.array(EXTREMES[name], dtype=getattr(np, name)))
    make, field = FORMS[form]
    plain = [it.item() for it in scalars]
    aggregators = agg.tuple_(agg.sum(field), agg.mean(field), agg.variance(field, ddof=0))
    total, mean, variance = result([make(it) for it in scalars], aggregators, kind)
    expected = reduce(add, plain, 0)  # one by one: from Python 3.12 on, sum() carries what floats round away
    assert (type(total), total) == (type(expected), expected)
    assert (type(mean), mean) == (float, expected / len(plain))
    assert float(variance) == pytest.approx(float(pvariance(map(Fraction, plain))), rel=1e-9)


@pytest.mark.parametrize("mixed", [[5, np.uint8(255)], [2.5, np.float32(0.1)], [np.int8(100), 100], [True, np.True_]])
def test_numbers_of_numpy_beside_those_of_python(mixed: list[Any]) -> None:
    plain = [it.item() if isinstance(it, np.generic) else it for it in mixed]
    assert result(mixed, agg.sum()) == sum(plain)


def test_a_state_of_before_with_a_number_of_numpy_is_continued() -> None:
    summed = agg.sum()
    assert summed.add(np.uint8(200), np.uint8(100), 0) == 300
    assert summed.merge(np.uint8(200), np.uint8(100)) == 300


@pytest.mark.parametrize("kind", ["Int8", "UInt8", "Float32", "boolean"])
def test_numbers_of_pandas(kind: str) -> None:
    column = pd.array([100, 100, 100] if kind != "boolean" else [True, True, True], dtype=kind)
    assert result([{"n": it} for it in column], agg.sum("n")) == (3 if kind == "boolean" else 300)


def test_the_missing_value_of_pandas_is_refused_as_none_is() -> None:
    with pytest.raises(OperatorError, match="None"):
        result([{"n": it} for it in pd.array([1, None], dtype="Int64")], agg.sum("n"))


def test_a_sum_of_spans_of_numpy_does_not_wrap() -> None:
    hours = [np.timedelta64(2**62, "h"), np.timedelta64(1, "h")]
    assert result(hours, agg.sum()) == hours[0] + hours[1]
    with pytest.raises(OperatorError, match=r"64 bits|Overflow in timedelta64"):  # from numpy 2.5 on, its own error
        result([hours[0], hours[0]], agg.sum())


DECIMALS = [Decimal("1e25") + Decimal("0.01"), Decimal("0.005"), -Decimal("1e25"), Decimal("0.005")]


@pytest.mark.parametrize(("prec", "background"), [(5, False), (50, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_of_decimals_is_exact_in_any_context(kind: str, prec: int, background: bool) -> None:
    aggregators = agg.tuple_(agg.sum(), agg.mean())
    with decimal.localcontext() as context:
        context.prec = prec
        total, mean = result(DECIMALS, aggregators, kind, background=background)
    assert (total, mean) == (Decimal("0.02"), Decimal("0.005"))


@settings(max_examples=15)
@given(
    terms=st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**40), max_value=10**40)
        | st.integers(-(10**40), 10**40),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 99),
)
def test_a_sum_of_decimals_and_integers_does_not_depend_on_their_order(terms: list[Any], seed: int) -> None:
    shuffled = random.Random(seed).sample(terms, len(terms))  # noqa: S311 - it keeps no secret
    cut = seed % (len(terms) + 1)
    for field in (None, lambda x: x):
        total = agg.sum(field)
        exact = sum(map(Fraction, terms))
        accs = [folded(total, part) for part in (shuffled[:cut], shuffled[cut:])]
        assert Fraction(total.result(total.merge(*accs))) == Fraction(result(shuffled, total)) == exact


def folded(aggregator: Any, terms: list[Any]) -> Any:
    acc = aggregator.create()
    for term in terms:
        acc = aggregator.add(acc, term, 0)
    return acc


def test_a_mean_of_decimals_has_the_usual_digits() -> None:
    assert result([Decimal(1), Decimal(2), Decimal(2)], agg.mean()) == Decimal(5) / Decimal(3)
    long = [Decimal("1234567890123456789012345678.99"), Decimal("0.02")]
    assert result(long, agg.mean()) == Decimal("617283945061728394506172839.505")


def test_a_sum_of_decimals_with_too_many_digits_is_refused() -> None:
    with pytest.raises(OperatorError, match="more than 100,000 digits"):
        result([Decimal("1e999999"), Decimal(1)], agg.sum())
