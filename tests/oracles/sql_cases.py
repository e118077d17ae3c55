"""Cases of Flink SQL, run through malflow: a query over tables of rows, with watermarks between them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime
from malflow.errors import GraphError
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource

__all__ = ["CASES", "Answer", "answer_of_flink", "answer_of_malflow", "table_of"]

Answer = dict[str, Any]
"""The types and rows of a result, or when it fails."""

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in map(json.loads, (Path(__file__).parent / "sql.jsonl").read_text().splitlines())
}


def answer_of_malflow(case: dict[str, Any], workers: int = 1) -> Answer:
    """Return what malflow answers to a case."""
    results = VecSink[Any, Any, Any]()
    types: list[str] = []

    def build(provider: Any) -> None:
        sql = provider.sql("case")
        items = [part for it in case.get("input", ()) for part in (it, PAUSE)]
        source = StatefulSource(ScriptedSource(items))
        stream = provider.new_stream().source("input", source) if case.get("tables") else None
        for name, table in case.get("tables", {}).items():
            on_time, late = table_of(stream, name, table)
            sql.table(name, on_time, table["schema"], time=table.get("time"), late=late)
        for statement in case.get("setup", ()):
            sql.run(statement)
        query = sql.query("query", case["sql"])
        types[:] = [f"{it.type}{'' if it.nullable else ' NOT NULL'}" for it in query.columns]
        query.rows(tuple).sink("results", results)

    when = "plan"
    try:
        runtime = SingleThreadRuntime(build, parallelism=workers, debug=workers == 1)
        when = "run"
        runtime.execute()
    except GraphError:
        return {"error": "plan"}
    except Exception:
        if when == "plan":
            raise
        return {"error": "run"}
    return {"types": types, "rows": sorted((_row(it, types) for it in results.values), key=repr)}


def table_of(stream: Any, name: str, table: dict[str, Any]) -> tuple[Any, Any]:
    """Return the rows of a table, and its late ones: None if it has no time attribute."""
    kinds = [it[1] for it in _COLUMN.findall(table["schema"])]
    names = [it[0] for it in _COLUMN.findall(table["schema"])]

    def row(item: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_given(value, kind) for value, kind in zip(item["row"][1:], kinds, strict=True))

    own = stream.filter(f"{name} items", lambda it: it["table"] == name)
    if "time" not in table:
        return own.map(f"{name} rows", row), None
    at = names.index(table["time"]) + 1

    def millis(text: str) -> int:
        return (datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)

    def watermark(message: Any, _epoch: Any) -> int | None:
        return millis(message.value["watermark"]) if "watermark" in message.value else None

    stamped = own.assign_timestamps(
        f"{name} times",
        lambda msg: millis(msg.value["watermark"] if "watermark" in msg.value else msg.value["row"][at]),
    )
    on_time, late = stamped.generate_epochs(f"{name} watermarks", watermark)
    parts = []
    for which, it in (("", on_time), (" late", late)):
        rows = it.filter(f"{name} without watermarks{which}", lambda item: "row" in item)
        parts.append(rows.map(f"{name} rows{which}", row))
    return parts[0], parts[1]


def answer_of_flink(case: dict[str, Any]) -> Answer:
    """Return the answer of Flink to a case."""
    expected = case["expected"]["flink"]
    if "error" in expected:
        return {"error": expected["when"]}
    types = [_NAMES.sub(_short, it.replace(" *ROWTIME*", "")) for it in expected["types"]]
    rows = [[_read(value, kind) for value, kind in zip(it[1:], types, strict=True)] for it in expected["rows"]]
    return {"types": types, "rows": sorted(rows, key=repr)}


_NAMES = re.compile(r"(VARCHAR|VARBINARY)\(2147483647\)")


def _short(match: re.Match[str]) -> str:
    """Return the name of a type without a bound, as Flink writes it elsewhere."""
    return {"VARCHAR": "STRING", "VARBINARY": "BYTES"}[match[1]]


def _row(values: Sequence[Any], types: Sequence[str]) -> list[Any]:
    return [_shown(it, kind) for it, kind in zip(values, types, strict=True)]


_COLUMN = re.compile(r"\s*(\w+) ((?:[^,<(]|\([^)]*\)|<.*?>(?!>))+)(?:,|$)")


def _given(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.startswith("MAP"):
        return dict(value)
    return float(value) if kind.startswith(("FLOAT", "DOUBLE")) else value


def _read(value: Any, kind: str) -> Any:
    """Return a value of Flink's answer; what is no date of Python stays a text."""
    read = next((it for name, it in _READ.items() if kind.startswith(name)), None)
    if read is not None and value is not None:
        with suppress(ValueError):
            return read(value)
    return _shown(value, kind)


_READ: dict[str, Callable[[str], Any]] = {
    "TIMESTAMP": datetime.fromisoformat,
    "TIME": time.fromisoformat,
    "DATE": date.fromisoformat,
}


def _shown(value: Any, kind: str) -> Any:
    """Return a value as an answer holds it: floats with 14 digits, floats of 32 bits with 6."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float():
            return float(f"{value + 0:.5e}" if kind.startswith("FLOAT") else f"{value + 0:.13e}")
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_shown(it, "") for it in value]
        case dict():
            return [_shown(it, "") for it in (value.values() if kind.startswith("ROW") else value.items())]
    return value
