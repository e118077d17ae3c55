"""The JSON schema of a configuration file, and the descriptions of its settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

from malflow.config.secrets import time_text
from malflow.config.shapes import WHOLE, Entries, Leaf, Shape, TableShape
from malflow.config.tables import (
    PersistenceSettings,
    ProcessSettings,
    RestartSettings,
    RunSettings,
    SparkSettings,
    Table,
)
from malflow.connectors.option_texts import ByteCount, kinds_of
from malflow.runtime.processes.runtime import MultiProcessRuntime
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.snapshot.backend import FsspecBackend

__all__ = ["default_of", "description", "schema"]

_DOCUMENTED_BY: Final[Mapping[type[Table], type]] = {
    RunSettings: SingleThreadRuntime,
    PersistenceSettings: FsspecBackend,
    ProcessSettings: MultiProcessRuntime,
    RestartSettings: RestartPolicy,
    SparkSettings: SparkRuntime,
}
_ENTRY = re.compile(r"^    (\w[\w, ]*):(.*(?:\n(?:     .*|))*)", re.MULTILINE)
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{"}
_TIME: Final = r"^\d+(\.\d+)? ?(us|ms|s|min|m|h|d)?$"


def description(table: type[Table], name: str) -> str:
    """Return the description of a setting: its own, or that of the constructor's argument."""
    for documented in (table, _DOCUMENTED_BY.get(table)):
        text = _described(documented).get(name) if documented is not None else None
        if text:
            return text
    return ""


@cache
def _described(documented: type) -> dict[str, str]:
    """Return the descriptions of arguments and attributes in a docstring."""
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(inspect.getdoc(documented) or ""):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


def default_of(table: type[Table], name: str) -> Any:
    """Return the default of a setting."""
    found = next(it for it in fields(table) if it.name == name)
    return None if found.default is MISSING else found.default


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``malflow.toml``, and so of the table ``[tool.malflow]`` of a ``pyproject.toml``.

    >>> schema()["properties"]["run"]["properties"]["recovery"]["anyOf"][0]
    {'enum': ['strict', 'previous']}
    """
    tables = _of_table(WHOLE)
    profile = {name: it for name, it in tables["properties"].items() if name != "profile"}
    tables["properties"] = profile | {
        "profile": {
            "type": "object",
            "description": "Tables that count more than those of the file if the profile is chosen.",
            "additionalProperties": {"type": "object", "properties": profile, "additionalProperties": False},
        }
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "malflow.toml", **tables}


def _of_table(shape: TableShape) -> dict[str, Any]:
    table = shape.table
    line = (inspect.getdoc(table) or "").partition("\n")[0]
    properties = {}
    for name, member in shape.members.items():
        if (table, name) in ((RunSettings, "renamed"), (RunSettings, "allow_dropped_state")):
            continue
        properties[name] = _of_shape(member) | _facts(table, name)
    return {"type": "object", "description": line, "properties": properties, "additionalProperties": False}


def _facts(table: type[Table], name: str) -> dict[str, Any]:
    default, text = default_of(table, name), description(table, name)
    facts: dict[str, Any] = {"description": text} if text else {}
    if default is not None and default != ():
        plain = list(default) if isinstance(default, tuple) else default
        facts["default"] = time_text(default) if isinstance(default, timedelta) else plain
    return facts


def _of_shape(shape: Shape | None) -> dict[str, Any]:
    match shape:
        case TableShape():
            return _of_table(shape)
        case Entries(inner):
            return {"type": "object", "additionalProperties": True if inner is None else _of_shape(inner)}
        case Leaf():
            kinds = [found for kind in kinds_of(shape.hint) for found in _of_kind(kind)]
            if shape.optional:
                kinds.append({"const": "none"})
            if {"type": "string"} not in kinds:
                kinds.append(_REFERENCE)
            return {"anyOf": kinds}
    return {}


def _of_kind(kind: Any) -> list[dict[str, Any]]:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return [{"enum": list(get_args(kind))}]
    if origin is str:
        file = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
        return [{"type": "string"}, file | {"additionalProperties": False}]
    if origin is ByteCount:
        return [{"type": "integer"}, {"type": "string", "pattern": r"^\d+(\.\d+)? ?([kMG]i?)?B?$"}]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [{"type": "array", "items": {"type": "string"}}]
    kinds: dict[Any, dict[str, Any]] = {
        bool: {"type": "boolean"},
        int: {"type": "integer"},
        float: {"type": "number"},
        timedelta: {"type": ["string", "number"], "pattern": _TIME, "minimum": 0},
        datetime: {"type": "string", "format": "date-time"},
    }
    return [kinds[origin]]
