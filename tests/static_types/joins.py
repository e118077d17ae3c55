"""The inferred types of joins; checked by mypy, not run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

from malflow import ConnectLogic, DataMessage, KeyedStream, Output
from malflow.windows import WindowResult, tumbling

SECOND = timedelta(seconds=1)


def intervals(left: KeyedStream[str, int, datetime], right: KeyedStream[str, float, datetime]) -> None:
    inner = left.interval_join("inner", right, before=SECOND, after=SECOND)
    assert_type(inner, KeyedStream[str, tuple[int, float], datetime])
    with_left = left.interval_join("left", right, before=SECOND, after=SECOND, how="left")
    assert_type(with_left, KeyedStream[str, tuple[int, float | None], datetime])
    with_right = left.interval_join("right", right, before=SECOND, after=SECOND, how="right")
    assert_type(with_right, KeyedStream[str, tuple[int | None, float], datetime])
    outer = left.interval_join("outer", right, before=SECOND, after=SECOND, how="outer")
    assert_type(outer, KeyedStream[str, tuple[int, float] | tuple[int, None] | tuple[None, float], datetime])


class Pairs(ConnectLogic[str, int, float, datetime, bytes, list[int]]):
    def on_left(
        self, msg: DataMessage[str, int, datetime], state: list[int], output: Output[str, bytes, datetime]
    ) -> list[int]:
        return [*state, msg.value]

    def on_right(
        self, msg: DataMessage[str, float, datetime], state: list[int], output: Output[str, bytes, datetime]
    ) -> list[int] | None:
        output.send(DataMessage(msg.key, bytes(state), msg.timestamp))
        return None


def connected(left: KeyedStream[str, int, datetime], right: KeyedStream[str, float, datetime]) -> None:
    logic = Pairs()
    assert_type(left.connect("logic", right, logic, default=list), KeyedStream[str, bytes, datetime])
    functions = left.connect("functions", right, logic.on_left, logic.on_right, default=list)
    assert_type(functions, KeyedStream[str, bytes, datetime])


def tables(left: KeyedStream[str, int, datetime], right: KeyedStream[str, float, datetime]) -> None:
    assert_type(left.asof_join("left", right), KeyedStream[str, tuple[int, float | None], datetime])
    inner = left.asof_join("inner", right, tolerance=SECOND, how="inner")
    assert_type(inner, KeyedStream[str, tuple[int, float], datetime])
    tied = left.asof_join("tied", right, tie=lambda value: value.hex())
    assert_type(tied, KeyedStream[str, tuple[int, float | None], datetime])


def groups(
    left: KeyedStream[str, int, datetime],
    right: KeyedStream[str, float, datetime],
    third: KeyedStream[str, bytes, datetime],
) -> None:
    windowed = left.window(tumbling(SECOND))
    two = windowed.cogroup("two", right)
    assert_type(two, KeyedStream[str, WindowResult[tuple[list[int], list[float]], datetime], datetime])
    three = windowed.cogroup("three", right, third)
    assert_type(three, KeyedStream[str, WindowResult[tuple[list[int], list[float], list[bytes]], datetime], datetime])


def late_groups(left: KeyedStream[str, int, datetime], right: KeyedStream[str, float, datetime]) -> None:
    results, too_late = left.window(tumbling(SECOND)).allow_late(left).cogroup("late", right, late=[right])
    assert_type(results, KeyedStream[str, WindowResult[tuple[list[int], list[float]], datetime], datetime])
    assert_type(too_late, list[KeyedStream[str, Any, datetime]])


def mistakes(left: KeyedStream[str, int, datetime], other: KeyedStream[bytes, int, datetime]) -> None:
    left.interval_join("keys", other, before=SECOND, after=SECOND)  # type: ignore[arg-type]
    left.interval_join("how", left, before=SECOND, after=SECOND, how="full")  # type: ignore[call-overload]
