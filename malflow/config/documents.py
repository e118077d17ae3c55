"""A configuration as documents, as text and as TOML; none of them has secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from malflow.config.entries import Path, dotted, toml_escaped
from malflow.config.secrets import HIDDEN, Secret, is_secret, shown, time_text
from malflow.config.settings import Settings
from malflow.config.shapes import WHOLE, every_leaf
from malflow.config.values import NONE
from malflow.errors import ConfigFault
from malflow.store.redaction import redacted, secrets_in
from malflow.words import iso

__all__ = ["ShownSetting", "faults_document", "settings_document", "settings_text", "shown_settings", "toml_text"]

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
    text = time_text(value) if isinstance(value, timedelta) else str(value).replace("$", "$$")
    return f'"{toml_escaped(re.sub(_QUOTED, _ESCAPE, text))}"'
