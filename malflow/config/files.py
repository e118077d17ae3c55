"""Find, read and parse configuration files, with the lines of their keys."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from malflow.config.entries import Faults, Origin
from malflow.config.entries import Path as Key
from malflow.words import short_repr

__all__ = [
    "FILE",
    "ConfigFile",
    "KeyLines",
    "found_file",
]

_PIECE = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}\n=]"
    r"|[^\[\]{}\n=\"'#]+",
    re.DOTALL,
)


class KeyLines:
    """The line of each key and table header.

    Args:
        text: the text of a file that could be parsed.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Key, int] = {}
        table: Key = ()
        for line, key in _statements(text.replace("\r\n", "\n")):
            if key.startswith("["):
                table = _path(f"[{key.strip('[]')}]")
                path = table
            else:
                path = (*table, *_path(f"{key} = 0"))
            for length in range(1, len(path) + 1):
                self._lines.setdefault(path[:length], line)

    def __getitem__(self, path: Key) -> int | None:
        """Return the line of a key, or of the table around it; None if neither is written."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)


def _statements(text: str) -> list[tuple[int, str]]:
    """Return the line and the key of each assignment, and each header with its brackets."""
    found: list[tuple[int, str]] = []
    line, depth, start, key = 1, 0, 1, ""
    in_value = False
    for piece in (it[0] for it in _PIECE.finditer(text)):
        if piece == "\n" and depth == 0:
            if key.strip().startswith("["):
                found.append((start, key.strip()))
            in_value, key = False, ""
        elif in_value:
            depth += (piece in "[{") - (piece in "]}") if len(piece) == 1 else 0
        elif piece == "=":
            found.append((start, key.strip()))
            in_value = True
        elif not piece.startswith("#"):
            start = start if key.strip() else line
            key += piece
        line += piece.count("\n")
    if key.strip().startswith("[") and not in_value:
        found.append((start, key.strip()))
    return found


def _path(statement: str) -> Key:
    """Return the names in a key or header, with quotes and spaces resolved by the parser itself."""
    try:
        value: object = tomllib.loads(statement)
    except ValueError:
        return ()
    path: list[str] = []
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        path.append(name)
    return tuple(path)


FILE: Final = "malflow.toml"
"""The name of a configuration file."""

_PROJECT: Final = "pyproject.toml"
_TABLE: Final = ("tool", "malflow")
_LARGEST = 1_000_000
"""The largest file in bytes, far beyond any written by hand. The limit keeps a wrong path, such as a data file, out of
memory; half or double makes no difference to a real file."""

_PLACE = re.compile(
    r"^(?P<reason>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$", re.DOTALL
)


@dataclass(frozen=True)
class ConfigFile:
    """A parsed file.

    Attributes:
        path: its path.
        label: its name in messages.
        tables: its tables, without profiles.
        profiles: the tables of each profile.
    """

    path: Path
    label: str
    tables: Mapping[str, Any] = field(repr=False)
    profiles: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _within: Key = field(repr=False)
    _lines: KeyLines = field(repr=False)

    def origin(self, key: Key, profile: str | None = None) -> Origin:
        """Return the place of a setting."""
        line = self._lines[(*self._within, *(() if profile is None else ("profile", profile)), *key)]
        place = self.label if line is None else f"{self.label}:{line}"
        return Origin("file", place) if profile is None else Origin("profile", f"{place} [profile.{profile}]")


def found_file(path: str | os.PathLike[str] | None, faults: Faults) -> ConfigFile | None:
    """Return the configuration at a path, or of the nearest folder upwards of a folder; None without one.

    In a folder, ``malflow.toml`` comes before a ``pyproject.toml`` with a table ``[tool.malflow]``. A file of another
    user in a folder above is left alone, with a warning: anybody may write to some folders above.

    Args:
        path: a file, or a folder to search from.
        faults: gets the fault of a file that can't be read.
    """
    if path is None:
        return None
    start = Path(path)
    if not start.is_dir():
        return _parsed(start, faults, required=True)
    start = start.resolve()
    owners = {0, os.geteuid(), start.stat().st_uid}
    for folder in (start, *start.parents):
        for name in (FILE, _PROJECT):
            file = folder / name
            if not file.is_file() or (name == _PROJECT and not _mentions(file)):
                continue
            if folder != start and file.stat().st_uid not in owners:
                faults.warn(file, "belongs to another user and is not read; name it as the configuration to use it")
                continue
            found = _parsed(file, faults, required=False)
            if found is not None or faults.found:
                return found
    return None


def _mentions(file: Path) -> bool:
    """Whether a project file has settings of malflow, as far as its text shows."""
    try:
        with file.open("rb") as opened:
            return b"malflow" in opened.read(_LARGEST)
    except OSError:
        return False


def _parsed(path: Path, faults: Faults, *, required: bool) -> ConfigFile | None:
    """Return the content of a file; None if it can't be read, or is a project file without settings of malflow."""
    label = _label(path)
    try:
        text = _text(path)
        content = tomllib.loads(text)
    except OSError as error:
        faults.add(None, label, f"the file can't be read: {error.strerror or error}")
    except RecursionError:
        faults.add(None, label, "the file has too many brackets within each other")
    except ValueError as error:
        _add_unparsed(error, path, label, faults, required=required)
    else:
        return _of_content(content, path, label, KeyLines(text), faults, required=required)
    return None


def _text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        OSError: if it can't be read.
        ValueError: if it is too large, or not text.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError("the file is larger than 1 MB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ValueError(f"the file is not text in UTF-8 (at line {line}, column {column})") from None


def _add_unparsed(error: ValueError, path: Path, label: str, faults: Faults, *, required: bool) -> None:
    """Record the fault of a file that is not TOML, unless it is a project file that another tool reads."""
    if path.name == _PROJECT and not required and b"[tool.malflow" not in path.read_bytes()[:_LARGEST]:
        return
    found = _PLACE.match(str(error))
    if found is None:
        faults.add(None, label, str(error).partition("\n")[0])
    elif found["line"]:
        faults.add(None, f"{label}:{found['line']}", f"{_lowered(found['reason'])} at column {found['column']}")
    else:
        faults.add(None, label, f"{_lowered(found['reason'])} at the end of the file, which may be cut short")


def _of_content(
    content: Mapping[str, Any], path: Path, label: str, lines: KeyLines, faults: Faults, *, required: bool
) -> ConfigFile | None:
    within: Key = _TABLE if path.name == _PROJECT else ()
    tables: Any = content
    for name in within:
        tables = tables.get(name) if isinstance(tables, Mapping) else None
    if tables is None and not required:
        return None
    if not isinstance(tables, Mapping):
        faults.add(None, label, f"the file has no table [{'.'.join(within)}]")
        return None
    profiles = tables.get("profile", {})
    file = ConfigFile(path, label, {name: it for name, it in tables.items() if name != "profile"}, {}, within, lines)
    if not isinstance(profiles, Mapping) or not all(isinstance(it, Mapping) for it in profiles.values()):
        faults.add(
            ("profile",), file.origin(("profile",)), "profile needs a table for each profile: [profile.NAME.run]"
        )
        return file
    return ConfigFile(path, label, file.tables, profiles, within, lines)


def _label(path: Path) -> str:
    """Return the name of a file for messages: relative to the working folder if it is below it."""
    try:
        shown = path.resolve().relative_to(Path.cwd())
    except (ValueError, OSError):
        shown = path
    text = str(shown)
    return text if text.isprintable() else short_repr(text)


def _lowered(reason: str) -> str:
    return reason[:1].lower() + reason[1:]
