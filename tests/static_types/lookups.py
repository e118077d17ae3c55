"""The types of look-ups; checked by mypy, not run."""

from __future__ import annotations

from typing import Any, assert_type

from malflow import KeyedStream, Stream, connect
from malflow.lookups import LookupTable
from malflow.message import NoKeyType


def joined(clicks: Stream[NoKeyType, str, int], keyed: KeyedStream[int, str, int], ages: LookupTable[str, int]) -> None:
    left = clicks.lookup("left", lambda it: it, ages, lambda it, age: (it, age))
    assert_type(left, Stream[NoKeyType, tuple[str, int | None], int])
    inner = clicks.lookup("inner", lambda it: it, ages, lambda it, age: (it, age), how="inner")
    assert_type(inner, Stream[NoKeyType, tuple[str, int], int])
    by_url = clicks.lookup("url", len, connect("redis://h/ages"), lambda it, age: (it, age))
    assert_type(by_url, Stream[NoKeyType, tuple[str, Any], int])
    by_field = keyed.lookup("field", "name", connect("redis://h/ages"), lambda it, _: it, how="inner")
    assert_type(by_field, KeyedStream[int, str, int])
    of_keyed = keyed.lookup("keyed", lambda it: it, ages, lambda it, age: (it, age))
    assert_type(of_keyed, KeyedStream[int, tuple[str, int | None], int])


def mistakes(clicks: Stream[NoKeyType, str, int], ages: LookupTable[str, int]) -> None:
    clicks.lookup("key", len, ages, lambda it, age: age)  # type: ignore[arg-type]
    clicks.lookup("text", None, "redis://h/ages", lambda it, age: age)  # type: ignore[call-overload]
