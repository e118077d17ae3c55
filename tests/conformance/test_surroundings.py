"""Functions find the settings of the interpreter that the script has set, wherever they are called."""

from __future__ import annotations

import decimal
import locale
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.conformance.dataflow import sis, values_of


@pytest.fixture(autouse=True)
def _changed() -> Iterator[None]:
    """Change each setting, and restore it at the end."""
    depth, digits, place = sys.getrecursionlimit(), sys.get_int_max_str_digits(), locale.setlocale(locale.LC_ALL)
    sys.setrecursionlimit(depth + 77)
    sys.set_int_max_str_digits(5000)
    locale.setlocale(locale.LC_ALL, "C")
    with decimal.localcontext() as context, np.errstate(over="raise"):
        context.prec, context.rounding = 50, decimal.ROUND_UP
        yield
    sys.setrecursionlimit(depth)
    sys.set_int_max_str_digits(digits)
    locale.setlocale(locale.LC_ALL, place)


def found(_value: Any) -> Any:
    """Return the settings that a function finds."""
    return (
        Decimal(1) / Decimal(3),
        decimal.getcontext().rounding,
        sys.getrecursionlimit(),
        sys.get_int_max_str_digits(),
        locale.setlocale(locale.LC_ALL),
        np.geterr()["over"],
    )


async def found_later(value: Any) -> Any:
    return found(value)


def test_a_function_finds_the_settings_of_the_script(runtime: Any) -> None:
    assert values_of(runtime, [1], lambda s: s.map("found", found)) == [found(1)]


@pytest.mark.parametrize("make", [SingleThreadRuntime, MultiProcessRuntime])
@pytest.mark.slow
def test_a_function_of_a_run_in_the_background_finds_them(make: Any) -> None:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        provider.new_stream().source("in", SingleIteratorSource([1])).map("found", found).sink("out", out)

    if make is MultiProcessRuntime:
        make(build, processes=1).start().await_termination()
    else:
        make(build).start().await_termination()
    assert out.values == [found(1)]


@pytest.mark.parametrize("threads", [None, 2])
def test_a_function_that_calls_out_finds_them(threads: Any) -> None:
    function: Any = found if threads else found_later
    assert values_of(SingleThreadRuntime, [1], lambda s: s.map_async("found", function, threads=threads)) == [found(1)]


def test_a_change_within_the_run_stays_there() -> None:
    def change(_value: Any) -> Any:
        decimal.getcontext().prec = 3
        return decimal.getcontext().prec

    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        provider.new_stream().source("in", sis([1])).map("change", change).sink("out", out)

    SingleThreadRuntime(build).start().await_termination()
    assert (out.values, decimal.getcontext().prec) == ([3], 50)
