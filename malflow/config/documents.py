"""A configuration as documents, text and TOML, without secrets, and the JSON schema of its files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

from malflow.config.entries import Path, dotted, toml_escaped
from malflow.config.reading import NONE
from malflow.config.secrets import HIDDEN, shown
from malflow.config.sections import (
    WHOLE,
    Entries,
    Leaf,
    PersistenceSettings,
    ProcessSettings,
    RestartSettings,
    RunSettings,
    Shape,
    SparkSettings,
    Table,
    TableShape,
    every_leaf,
)
from malflow.config.settings import Settings
from malflow.connectors.option_texts import ByteCount, kinds_of
from malflow.durations import PATTERN, span_text
from malflow.errors import ConfigFault
from malflow.runtime.processes.runtime import MultiProcessRuntime
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.snapshot.backend import FsspecBackend
from malflow.store.redaction import redacted, secrets_in
from malflow.store.references import Secret, is_secret
from malflow.words import iso

__all__ = [
    "ShownSetting",
    "default_of",
    "description",
    "faults_document",
    "schema",
    "settings_document",
    "settings_text",
    "shown_settings",
    "toml_text",
]

_DEFAULT = "default"
_QUOTED = r'(["\\])'
_ESCAPE = r"\\\1"


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting as text, without secrets.

    Attributes:
        key: the setting, such as ``run.parallelism``.
        value: its value.
        origin: the place where it was written; ``default`` if nowhere.
        hides: the values of lower layers, each with its place, the nearest first.
    """

    key: str
    value: str
    origin: str
    hides: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        over = f"   over {', '.join(f'{value} {origin}' for value, origin in self.hides)}" if self.hides else ""
        return f"{self.key}  {self.value}  {self.origin}{over}"


def shown_settings(settings: Settings, *, defaults: bool = True) -> list[ShownSetting]:
    """Return the effective settings in the order of the tables.

    Args:
        settings: the settings.
        defaults: whether to return those too that no layer has.
    """
    return [
        ShownSetting(
            dotted(path),
            shown(path, value),
            origin,
            tuple((shown(path, entry.value), str(entry.origin)) for entry in hides),
        )
        for path, value, origin, hides in _effective(settings, defaults=defaults)
    ]


def _effective(settings: Settings, *, defaults: bool) -> Iterator[tuple[Path, Any, str, list[Any]]]:
    """Yield the path, value and place of each setting, and the entries that it hides, the nearest first."""
    stacks = settings.stacks
    paths = [path for path, _ in every_leaf(WHOLE)]
    order = {path: number for number, path in enumerate(paths)}
    tables = {name: number for number, name in enumerate(WHOLE.members)}
    unset = [path for path in paths if not any(found[: len(path)] == path for found in stacks)] if defaults else []

    def rank(path: Path) -> tuple[int, int, Path]:
        lengths = (order[path[:length]] for length in range(len(path), 0, -1) if path[:length] in order)
        return tables[path[0]], next(lengths, len(order)), path

    for path in sorted([*stacks, *unset], key=rank):
        if path not in stacks:
            yield path, _default(settings, path), _DEFAULT, []
            continue
        *hidden, entry = stacks[path]
        yield path, entry.value, str(entry.origin), hidden[::-1]


def _default(settings: Settings, path: Path) -> Any:
    value: Any = settings
    for name in path:
        value = getattr(value, name, None)
    return value


def settings_text(settings: Settings, *, defaults: bool = False) -> str:
    """Return the effective settings in columns: name, value, place, and the values that this one hides."""
    rows = shown_settings(settings, defaults=defaults)
    keys, values = (max((len(text) for text in texts), default=0) for texts in _columns(rows))
    lines = [
        f"{row.key:{keys}}  {row.value:{values}}  {row.origin}"
        + (f"   over {', '.join(f'{value} {origin}' for value, origin in row.hides)}" if row.hides else "")
        for row in rows
    ]
    return "".join(f"{line}\n" for line in lines)


def _columns(rows: Iterable[ShownSetting]) -> tuple[list[str], list[str]]:
    found = list(rows)
    return [row.key for row in found], [row.value for row in found]


def settings_document(settings: Settings) -> dict[str, Any]:
    """Return the effective settings as a JSON document: times in seconds, sizes in bytes, secrets as ``***``."""
    return {
        "malflow": 1,
        "kind": "config",
        "file": settings.file,
        "profile": settings.profile,
        "settings": [
            {
                "key": dotted(path),
                "value": _json(path, value),
                "origin": origin,
                "hides": [{"value": _json(path, it.value), "origin": str(it.origin)} for it in hides],
            }
            for path, value, origin, hides in _effective(settings, defaults=True)
        ],
        "warnings": list(settings.warnings),
    }


def faults_document(faults: Iterable[ConfigFault]) -> dict[str, Any]:
    """Return the faults of a configuration as a JSON document."""
    found = [{"key": it.key, "origin": it.origin, "message": it.reason} for it in faults]
    return {"malflow": 1, "kind": "config_check", "faults": found}


def _json(path: Path, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _json((*path, str(name)), it) for name, it in value.items()}
    if value is None or isinstance(value, bool):
        return value
    if is_secret(path):
        return HIDDEN
    if isinstance(value, list | tuple):
        return [_json(path, it) for it in value]
    if isinstance(value, int | float):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return iso(value)
    return _text(value) if isinstance(value, str) else shown(path, value)


def _text(value: str) -> str:
    secrets = value.secrets if isinstance(value, Secret) else ()
    return redacted(str(value), (*secrets, *secrets_in({}, str(value))))


def toml_text(settings: Settings) -> str:
    """Return the effective settings that differ from the defaults as a configuration file; secrets are left out."""
    tables: dict[Path, list[str]] = {}
    for path, value, _, _ in _effective(settings, defaults=False):
        lines = tables.setdefault(path[:-1], [])
        name = dotted(path[-1:])
        if path[:2] in (("run", "renamed"), ("run", "allow_dropped_state")):
            continue  # of one start
        if is_secret(path) or (isinstance(value, str) and _has_secret(value)):
            lines.append(f"# {name} is left out: it has a secret")
        else:
            lines.append(f"{name} = {_toml(value)}")
    parts = ("\n".join([f"[{dotted(path)}]", *lines, ""]) for path, lines in tables.items() if lines)
    return "\n".join(parts)


def _has_secret(text: str) -> bool:
    return isinstance(text, Secret) or (HIDDEN in _text(text) and HIDDEN not in text)


def _toml(value: Any) -> str:
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(int(value)) if isinstance(value, int) else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{dotted((str(name),))} = {_toml(it)}' for name, it in value.items())} }}"
    text = span_text(value) if isinstance(value, timedelta) else str(value).replace("$", "$$")
    return f'"{toml_escaped(re.sub(_QUOTED, _ESCAPE, text))}"'


_DOCUMENTED_BY: Final[Mapping[type[Table], type]] = {
    RunSettings: SingleThreadRuntime,
    PersistenceSettings: FsspecBackend,
    ProcessSettings: MultiProcessRuntime,
    RestartSettings: RestartPolicy,
    SparkSettings: SparkRuntime,
}
_ENTRY = re.compile(r"^    (\w[\w, ]*):(.*(?:\n(?:     .*|))*)", re.MULTILINE)
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{"}


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
        facts["default"] = span_text(default) if isinstance(default, timedelta) else plain
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
        timedelta: {"type": ["string", "number"], "pattern": f"^{PATTERN}$", "minimum": 0},
        datetime: {"type": "string", "format": "date-time"},
    }
    return [kinds[origin]]
