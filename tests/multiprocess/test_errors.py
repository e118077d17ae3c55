"""Errors of user code in worker processes have the user's frames, and functions travel as they are."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest

from malflow import MultiProcessRuntime, OperatorError, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

RUNTIME = functools.partial(MultiProcessRuntime, processes=2, start_method="forkserver")


def inverse(value: int) -> float:
    """Return the inverse."""
    return 1 / value


def careful(value: int) -> float:
    """Return the inverse, or raise a KeyError."""
    try:
        return inverse(value)
    except ZeroDivisionError as error:
        raise KeyError("no inverse") from error


def mapped(function: Any) -> VecSink[Any, Any, Any]:
    """Map the first numbers by a function in worker processes."""
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource([2, 1, 0])).map("f", function).sink("out", sink)

    RUNTIME(build).execute()
    return sink


@pytest.mark.slow
def test_an_error_has_the_frames_of_the_user() -> None:
    with pytest.raises(OperatorError, match=r"operator 'f' failed .* value 0.*KeyError.*test_errors\.py:\d+") as caught:
        mapped(careful)
    assert isinstance(caught.value.__cause__, KeyError)
    told = "".join(traceback.format_exception(caught.value))
    frames = told.partition("in another process:")[2].partition("KeyError: 'no inverse'")[0]
    assert "return inverse(value)" in frames
    assert "return 1 / value" in frames
    assert "ZeroDivisionError: division by zero" in frames
    assert "malflow/operators" not in frames


def test_an_endless_recursion_is_told_briefly() -> None:
    def endless(value: int) -> int:
        return endless(value)

    with pytest.raises(OperatorError, match="RecursionError") as caught:
        mapped(endless)
    assert len("".join(traceback.format_exception(caught.value))) < 10_000


def test_a_function_with_a_cache_travels() -> None:
    @functools.lru_cache(maxsize=2)
    def twice(value: int) -> int:
        return 2 * value

    assert mapped(twice).values == [4, 2, 0]
    assert twice.cache_info().currsize == 0
    assert mapped(lambda value: (twice(value), twice.cache_parameters()["maxsize"])).values == [(4, 2), (2, 2), (0, 2)]
