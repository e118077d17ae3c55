"""The types of answers to questions to a running job; checked by mypy, not run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

from malflow import RunHandle, StateView, WindowsView
from malflow.windows import WindowResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def bare(handle: RunHandle) -> None:
    total = handle.state("total")
    assert_type(total.get("tea").result(), Any)
    assert_type(total.get("tea").tick, int | None)
    assert_type(total.items().result(), list[tuple[Any, Any]])
    assert_type(handle.windows("sales").get("tea", at=NOW).result(), list[WindowResult[Any, Any]])


def annotated(handle: RunHandle) -> None:
    total: StateView[str, int] = handle.state("total")
    assert_type(total.get("tea").result(), int)
    assert_type(total.get("tea", default=None).result(), int | None)
    assert_type(total.get_many(["tea"]).result(timeout=1), dict[str, int])
    assert_type(total.items(limit=10).result(), list[tuple[str, int]])
    sales: WindowsView[str, float, datetime] = handle.windows("sales")
    assert_type(sales.get("tea", unit="day").result(), list[WindowResult[float, datetime]])


def mistakes(handle: RunHandle) -> None:
    total: StateView[str, int] = handle.state("total")
    total.get(1)  # type: ignore[call-overload]
    total.get_many([1])  # type: ignore[list-item]
    sales: WindowsView[str, float, datetime] = handle.windows("sales")
    sales.get("tea", at=1)  # type: ignore[arg-type]
