"""The lines of keys in the text of a TOML file, which the parser does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from malflow.config.entries import Path as Key

__all__ = ["KeyLines"]

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
