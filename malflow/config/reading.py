"""Read layers of a configuration from tables, environment variables, overrides and texts as in URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal, get_args, get_origin

from malflow.config.entries import Entry, Faults, Layer, Origin, Path, dotted
from malflow.config.secrets import shown
from malflow.config.sections import WHOLE, Entries, Leaf, Shape, TableShape, every_leaf
from malflow.connectors.option_texts import UNREADABLE, ByteCount, forms_of, kinds_of, read_text
from malflow.durations import read_duration
from malflow.snapshot.protocol.signing import KEY_VARIABLE
from malflow.words import cut, did_you_mean

__all__ = [
    "NONE",
    "PREFIX",
    "PROFILE",
    "LayerReader",
    "Override",
    "expected",
    "of_environment",
    "of_overrides",
    "value_of",
]

NONE = "none"
"""The text for no value, where a setting may have none."""


def value_of(raw: Any, leaf: Leaf) -> Any:
    """Return the value of a setting; `UNREADABLE` if it is of another kind.

    >>> value_of("none", Leaf(int | None)), value_of("4", Leaf(int)), value_of(True, Leaf(int)) is UNREADABLE
    (None, 4, True)
    """
    if raw is None or (isinstance(raw, str) and raw == NONE):
        return None if leaf.optional else UNREADABLE if raw is None else _parsed_text(raw, leaf)
    if isinstance(raw, str):
        return _parsed_text(raw, leaf)
    found = (_as_kind(raw, kind) for kind in kinds_of(leaf.hint))
    return next((value for value in found if value is not UNREADABLE), UNREADABLE)


def _parsed_text(text: str, leaf: Leaf) -> Any:
    value = read_text(text, leaf.hint)
    return tuple(value) if isinstance(value, list) else value


def _as_kind(raw: Any, kind: Any) -> Any:
    origin = get_origin(kind) or kind
    if isinstance(raw, bool) or origin is bool:
        return raw if isinstance(raw, bool) and origin is bool else UNREADABLE
    if isinstance(raw, int) and origin in (int, float, ByteCount):
        return origin(raw) if _fits(raw, origin) else UNREADABLE
    if isinstance(raw, float) and origin is float:
        return raw
    if isinstance(raw, date) and origin is datetime:
        moment = raw if isinstance(raw, datetime) else datetime(raw.year, raw.month, raw.day, tzinfo=UTC)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if isinstance(raw, timedelta) and origin is timedelta:
        return raw
    if isinstance(raw, int | float) and origin is timedelta:
        found = read_duration(f"{raw:f}" if isinstance(raw, float) else str(raw))
        return UNREADABLE if found is None else found
    if (
        isinstance(raw, list | tuple)
        and isinstance(origin, type)
        and issubclass(origin, Sequence)
        and origin is not str
    ):
        values = tuple(value_of(it, Leaf(get_args(kind)[0])) for it in raw)
        return UNREADABLE if UNREADABLE in values else values
    return UNREADABLE


def _fits(number: int, kind: Any) -> bool:
    """Whether a whole number can be of this kind."""
    try:
        kind(number)
    except OverflowError:
        return False
    return True


def expected(leaf: Leaf) -> str:
    """Return a description of the values of a setting.

    >>> expected(Leaf(int | None)), expected(Leaf(str)), expected(Leaf(Literal["a", "b"]))
    ('an integer, or none', 'a text', "'a' or 'b'")
    """
    forms = [forms_of(leaf.hint)]
    for kind in kinds_of(leaf.hint):
        origin = get_origin(kind) or kind
        if origin is str:
            forms.append("a text")
        elif origin is not Literal and isinstance(origin, type) and issubclass(origin, Sequence):
            forms.append("a list of texts")
    return " or ".join(filter(None, forms)) + (", or none" if leaf.optional else "")


PREFIX: Final = "MALFLOW_"
PROFILE: Final = "MALFLOW_PROFILE"
"""The variable with the name of the profile."""

_NO_SETTINGS: Final = frozenset(
    {PROFILE, KEY_VARIABLE, "MALFLOW_CONTROL", "MALFLOW_TRACEBACK", "MALFLOW_FAILPOINT", "MALFLOW_COMMAND"}
)
"""Variables of malflow that are not settings."""

_OF_ONE_START: Final = frozenset({("run", "renamed"), ("run", "allow_dropped_state")})
_LARGEST = 2**63
"""The first integer beyond 64 bits with a sign: TOML guarantees no larger ones."""

_LONGEST = 200
"""The most characters of a faulty value in a message: some lines of a terminal. Fewer hide the fault, more hide the
message."""

_STEP = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)')


@dataclass(frozen=True, slots=True)
class Override:
    """A value of a command or a program that counts more than all files.

    Attributes:
        value: the value; text is converted.
        origin: the place where it was written, such as ``--parallelism``; by default, ``--set`` and the setting.
    """

    value: Any = field(repr=False)
    origin: str | None = None


class LayerReader:
    """Reads tables to the entries of a layer; a value that it can't read becomes a fault.

    Args:
        origin: the origin of a setting.
        faults: the faults.
        read: converts a text, or a table with the name of a file, before it is read; raises a ValueError with the
            reason.
    """

    def __init__(
        self, origin: Callable[[Path], Origin], faults: Faults, read: Callable[[Path, Any], Any] | None = None
    ) -> None:
        self.entries: dict[Path, Entry] = {}
        self._origin = origin
        self._faults = faults
        self._read = read or (lambda _path, raw: raw)

    def item(self, raw: Any, shape: Shape | None, path: Path = ()) -> None:
        """Read a setting, or a table with all that it has."""
        if path in _OF_ONE_START and self._origin(path).layer != "override":
            self._fault(path, f"{dotted(path)} is for one start: pass it to the command or the runtime")
            return
        try:
            raw = raw if isinstance(shape, TableShape | Entries) else self._read(path, raw)
        except ValueError as error:
            self._fault(path, f"{dotted(path)} {error}")
            return
        if isinstance(raw, Mapping) and not isinstance(shape, Leaf):
            for name, value in raw.items():
                self._member(name, value, shape, path)
        elif isinstance(shape, TableShape | Entries):
            self._fault(path, f"{dotted(path)} needs a table; got {cut(shown(path, raw), _LONGEST)}")
        elif isinstance(raw, int) and not -_LARGEST <= raw < _LARGEST:
            self._fault(path, f"{dotted(path)} needs a number of at most 64 bits")
        elif shape is None:
            self.entries[path] = Entry(raw, self._origin(path))
        else:
            self._leaf(raw, shape, path)

    def _member(self, name: str, value: Any, around: TableShape | Entries | None, path: Path) -> None:
        if not isinstance(around, TableShape):
            self.item(value, around and around.inner, (*path, str(name)))
        elif name in around.members:
            self.item(value, around.members[name], (*path, name))
        else:
            hint = _hint(name, path, around.members)
            self._fault((*path, name), f"{dotted((*path, name))} is not a setting{hint}")

    def _leaf(self, raw: Any, leaf: Leaf, path: Path) -> None:
        if leaf.hint is str and isinstance(raw, int | float):
            raw = str(raw).lower() if isinstance(raw, bool) else str(raw)
        value = value_of(raw, leaf)
        if value is not UNREADABLE:
            self.entries[path] = Entry(value, self._origin(path))
            return
        got = "a table" if isinstance(raw, Mapping) else cut(shown(path, raw), _LONGEST)
        self._fault(path, f"{dotted(path)} needs {expected(leaf)}; got {got}")

    def _fault(self, path: Path, reason: str) -> None:
        self._faults.add(path, self._origin(path), reason)


def _hint(name: str, path: Path, members: Mapping[str, Shape]) -> str:
    """Return a hint for an unknown setting: a near name here, or the same name elsewhere."""
    elsewhere = [dotted(leaf) for leaf, _ in every_leaf(WHOLE) if leaf[-1] == name]
    where = dotted(path) if path else "the file"
    instead = f"did you mean {elsewhere[0]}?" if elsewhere else f"{where} has {', '.join(members)}"
    if len(path) == len(("operators", "shop")) and path[0] == "operators":
        instead += f"; a name with a dot is quoted: {dotted((path[0], f'{path[1]}.{name}'))}"
    return did_you_mean(name, members, else_=instead)


def of_environment(env: Mapping[str, str], faults: Faults, referred: Collection[str] = ()) -> Layer:
    """Return the settings in environment variables; a variable of malflow that is not known is a warning.

    Those that the file refers to, `referred`, are known.

    The levels are separated by two underscores. Names are those of the settings in upper case; the name of an operator
    that is all upper case is taken as lower case.
    """
    layer: dict[Path, Entry] = {}
    for name in sorted(name for name in env if name.startswith(PREFIX)):
        parts = name.removeprefix(PREFIX).split("__")
        if len(parts) > 1 and parts[0].lower() in WHOLE.members:
            steps = [part if step == 1 and not part.isupper() else part.lower() for step, part in enumerate(parts)]
            if parts[0].lower() != "operators":
                steps = [part.lower() for part in parts]
            layer |= _of_text(steps, env[name], Origin("environment", name), faults)
        elif name not in _NO_SETTINGS and name not in referred:
            known = [*sorted(_NO_SETTINGS), *_variables()]
            short = name.removeprefix(PREFIX), [it.removeprefix(PREFIX) for it in known]
            hint = did_you_mean(*short, else_="", write=lambda it: f"{PREFIX}{it}")
            faults.warn(name, f"is not a variable of malflow{hint}")
    return layer


def _variables() -> Iterator[str]:
    for path, _ in every_leaf(WHOLE):
        yield PREFIX + "__".join(path).upper()


def of_overrides(overrides: Mapping[str, Any], faults: Faults) -> Layer:
    """Return the settings that a command or a program passes, by their names with dots between levels."""
    layer: dict[Path, Entry] = {}
    for key, given in overrides.items():
        override = given if isinstance(given, Override) else Override(given)
        origin = Origin("override", override.origin or f"--set {key}")
        steps = _steps(key)
        if steps is None:
            faults.add((key,), origin, "a setting is written table.name, such as run.parallelism")
            continue
        layer |= _of_text(steps, override.value, origin, faults)
    return layer


def _steps(key: str) -> list[str] | None:
    """Return the names of a dotted key, with quoted ones unquoted; None if it is malformed."""
    steps: list[str] = []
    place = 0
    while found := _STEP.match(key, place):
        steps.append(found[2] if found[1] is None else re.sub(r"\\(.)", r"\1", found[1]))
        place = found.end()
        if place == len(key):
            return steps
        if key[place] != ".":
            return None
        place += 1
    return None


def _of_text(steps: list[str], value: Any, origin: Origin, faults: Faults) -> Layer:
    """Return the entries of one value at a path."""
    shape: Shape | None = WHOLE
    path: list[str] = []
    for number, step in enumerate(steps):
        if isinstance(shape, Entries) and isinstance(shape.inner, Leaf):
            path.append(".".join(steps[number:]))  # names of Spark's settings have dots
            break
        path.append(step)
        shape = shape.members.get(step) if isinstance(shape, TableShape) else getattr(shape, "inner", None)
    raw = value
    for name in reversed(path):
        raw = {name: raw}
    reader = LayerReader(lambda _path: origin, faults)
    reader.item(raw, WHOLE)
    return reader.entries
