"""Values with the places where they were written, and the faults that are found on the way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from malflow.errors import ConfigError, ConfigFault
from malflow.words import printable

__all__ = [
    "LAYERS",
    "Entry",
    "Faults",
    "Layer",
    "LayerName",
    "Origin",
    "Path",
    "Stacks",
    "dotted",
    "stacked",
    "toml_escaped",
]

LayerName: TypeAlias = Literal["default", "code", "file", "profile", "environment", "override"]

LAYERS: Final[tuple[LayerName, ...]] = ("default", "code", "file", "profile", "environment", "override")
"""The layers of a configuration; each hides those before it."""

Path: TypeAlias = tuple[str, ...]
"""The names of the tables around a setting, and its own."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED = re.compile(r'["\\]')
_WIDE = 0x10000
"""The first character beyond four hexadecimal digits: TOML escapes it as `\\U` with eight."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where a value was written.

    Attributes:
        layer: the layer.
        place: the place in it, such as ``malflow.toml:7``.
    """

    layer: LayerName
    place: str

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and its origin."""

    value: Any = field(repr=False)
    origin: Origin


Layer: TypeAlias = Mapping[Path, Entry]
"""The entries of one layer; one for each name of a mapping, such as `storage_options`."""

Stacks: TypeAlias = dict[Path, tuple[Entry, ...]]
"""The entries of each setting in the order of the layers; the last one counts and hides the others."""


def dotted(path: Path) -> str:
    """Return a setting as it is written, with quotes around names that need them.

    >>> dotted(("run", "parallelism")), dotted(("operators", "my orders", "url"))
    ('run.parallelism', 'operators."my orders".url')
    """
    return ".".join(
        name if _BARE.fullmatch(name) else f'"{toml_escaped(_QUOTED.sub(_escaped, name))}"' for name in path
    )


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def toml_escaped(text: str) -> str:
    r"""Return a text with control characters and the like as TOML escapes them, and Python reads them.

    >>> toml_escaped("a\x1b[31m\nb")
    'a\\u001b[31m\\u000ab'
    """
    return "".join(
        it if it.isprintable() else f"\\u{ord(it):04x}" if ord(it) < _WIDE else f"\\U{ord(it):08x}" for it in text
    )


def stacked(layers: Iterable[Layer]) -> Stacks:
    """Return the entries of each setting, in the order of the layers.

    Tables merge, everything else is replaced: also a table by a value, and a value by a table.
    """
    stacks: Stacks = {}
    for layer in layers:
        for path, entry in layer.items():
            for other in [it for it in stacks if it != path and (it[: len(path)] == path or path[: len(it)] == it)]:
                if other not in layer:
                    del stacks[other]
            stacks[path] = (*stacks.get(path, ()), entry)
    return stacks


class Faults:
    """The faults and warnings found so far."""

    def __init__(self) -> None:
        self.found: list[ConfigFault] = []
        self.warnings: list[str] = []

    def add(self, path: Path | None, origin: object, reason: str) -> None:
        """Record a fault of a setting, or of a file as a whole."""
        place = printable(str(origin)) if origin else None
        self.found.append(ConfigFault(dotted(path) if path else None, place, printable(reason)))

    def warn(self, origin: object, text: str) -> None:
        """Record a warning."""
        self.warnings.append(printable(f"{origin}: {text}"))

    def raise_if_any(self) -> None:
        """Raise the faults.

        Raises:
            ConfigError: if there are any.
        """
        if self.found:
            raise ConfigError(self.found)
