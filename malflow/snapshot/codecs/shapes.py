"""Shapes: the kinds and fields of the classes in states, as recorded in snapshots."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final
from zlib import crc32

__all__ = [
    "CLASS",
    "ENUM",
    "MAIN",
    "NAMED_TUPLE",
    "Finding",
    "Kept",
    "Shape",
    "described",
    "form_of",
    "in_script",
    "same_form",
]

CLASS: Final = "class"
ENUM: Final = "enum"
MAIN: Final = "__main__:"
"""The prefix of the names of classes defined in the running script."""

NAMED_TUPLE: Final = "NamedTuple"
OWN_TUPLE: Final = "NamedTuple that is pickled in a way of its own"
STRUCT: Final = "msgspec Struct"
_FROZEN_SLOTS: Final = "frozen slots dataclass"
BY_POSITION: Final = (NAMED_TUPLE, OWN_TUPLE, _FROZEN_SLOTS, STRUCT)
"""The kinds that are pickled without field names: values belong to fields by position."""

_PLAIN = (int, str, float, bytes, type(None))
_LONGEST_VALUE = 100
"""Characters of a value in a shape; longer ones are cut and get a checksum. The value is part of the shapes on disk."""

_SHOWN_FIELDS = 30
"""Fields in a message. More: longer messages; fewer: the differing field may be hidden."""

_LIBRARY = str(Path(os.__file__).parent)


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one class.

    Attributes:
        name: the codec's name of the class: ``module:qualname`` in pickles, the registered name in msgpack.
        kind: "NamedTuple", "dataclass", "enum", ..., or "class" if it declares no fields.
        fields: the field names in order; for an enum its members, as ``NAME=value``.
        script: for a class of ``__main__``, the name under which that module can be imported.
    """

    name: str
    kind: str
    fields: tuple[str, ...]
    script: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The shapes in one worker's delta of one state.

    Attributes:
        worker: the worker.
        state: the name of the state.
        whole: whether the delta holds the full state, which makes earlier findings obsolete.
        shapes: the shapes.
        largest: the key, as a text, and the bytes of a state that is large; None if none was seen.
    """

    worker: int
    state: str
    whole: bool
    shapes: tuple[Shape, ...]
    largest: tuple[str, int] | None = None


class Kept:
    """The shapes in a base and its increments, accumulated until a state is written in full again.

    Args:
        shapes: the shapes in a snapshot, by state.
        workers: the number of workers that wrote it, each of which may have written any of the shapes.
    """

    def __init__(self, shapes: Mapping[str, tuple[Shape, ...]], workers: int) -> None:
        self._known: dict[tuple[int, str], dict[tuple[str, str], Shape]] = {}
        for state, found in shapes.items():
            if found:
                self.add(Finding(worker, state, True, found) for worker in range(workers))

    def clear(self) -> None:
        """Remove all shapes, before a new base."""
        self._known.clear()

    def copy(self) -> Kept:
        """Return an independent copy."""
        copy = Kept({}, 0)
        copy._known = {place: dict(shapes) for place, shapes in self._known.items()}
        return copy

    def add(self, findings: Iterable[Finding]) -> None:
        """Add the findings of an increment or a base."""
        for finding in findings:
            known = self._known.setdefault((finding.worker, finding.state), {})
            if finding.whole:
                known.clear()
            known.update({(shape.name, shape.script): shape for shape in finding.shapes})

    def of(self, state: str) -> tuple[Shape, ...]:
        """Return the shapes in a state, over all workers."""
        found: dict[tuple[str, str], Shape] = {}
        for (_, name), known in self._known.items():
            if name == state:
                found |= known
        return tuple(shape for _, shape in sorted(found.items()))


def form_of(kind: type) -> tuple[str, tuple[str, ...]] | None:
    """Return the kind of a class and its fields; None if it does not belong to the program.

    Classes of the standard library and of malflow handle their own compatibility.

    >>> from collections import namedtuple
    >>> form_of(namedtuple("Acc", ["n", "total"], module="job"))
    ('NamedTuple', ('n', 'total'))
    >>> form_of(int) is None
    True
    """
    if not _is_programs(getattr(kind, "__module__", None)):
        return None
    if issubclass(kind, Enum):
        return ENUM, tuple(f"{name}{_value(member.value)}" for name, member in kind.__members__.items())
    if issubclass(kind, tuple) and (named := _fields(kind, "_fields")) is not None:
        return OWN_TUPLE if _is_own_tuple(kind) else NAMED_TUPLE, named
    if (declared := _fields(kind, "__dataclass_fields__")) is not None:
        return _dataclass_kind(kind), declared
    if (declared := _fields(kind, "__attrs_attrs__")) is not None:
        return "attrs class", declared
    if (declared := _fields(kind, "__struct_fields__")) is not None:
        return STRUCT, declared
    if (declared := _fields(kind, "__pydantic_fields__")) is not None:
        return "pydantic model", (*declared, *(_fields(kind, "__private_attributes__") or ()))
    return CLASS, ()


def same_form(old: Shape, kind: str, fields: tuple[str, ...]) -> bool:
    """Whether pickles of the old shape are read correctly by a class of this kind with these fields."""
    if old.kind != kind:
        return False
    if kind == ENUM:
        return set(old.fields) <= set(fields)
    return old.fields == fields if kind in BY_POSITION else set(old.fields) == set(fields)


def described(kind: str, fields: tuple[str, ...], *, with_kind: bool) -> str:
    """Return a shape as text, for an error message.

    >>> described("dataclass", ("n", "total"), with_kind=True)
    'a dataclass (n, total)'
    """
    article = "an" if kind.startswith(("a", "e")) else "a"
    if kind == CLASS:
        return "a class that declares no fields"
    more = ", ..." if len(fields) > _SHOWN_FIELDS else ""
    names = f"({', '.join(fields[:_SHOWN_FIELDS])}{more})"
    return f"{article} {kind} {names}" if with_kind else names


def in_script(shape: Shape, script: str) -> Shape:
    """Return a shape with the name of the script, if the class belongs to ``__main__``."""
    return replace(shape, script=script) if shape.name.startswith(MAIN) else shape


def _is_own_tuple(kind: Any) -> bool:
    """Whether a named tuple customises its pickling; the pickle may then not hold its fields."""
    made = getattr(kind.__getnewargs__, "__globals__", {}).get("__name__")
    return made != "collections" or (kind.__reduce__, kind.__reduce_ex__) != (object.__reduce__, object.__reduce_ex__)


def _dataclass_kind(kind: type) -> str:
    """Return the kind of a dataclass, by how it is pickled; the class may itself be pickled by value."""
    if getattr(getattr(kind, "__setstate__", None), "__module__", "") == "dataclasses":
        return _FROZEN_SLOTS
    return "slots dataclass" if "__slots__" in vars(kind) else "dataclass"


def _fields(kind: type, attribute: str) -> tuple[str, ...] | None:
    """Return the fields that a library lists in an attribute of a class; None if it has no such list.

    For dataclasses the result is as from `dataclasses.fields`. That function fails for a class pickled by value.
    """
    listed = getattr(kind, attribute, None)
    if isinstance(listed, dict):
        names = (name for name, field in listed.items() if getattr(_kind_of(field), "name", "_FIELD") == "_FIELD")
    elif isinstance(listed, tuple):
        names = (field if isinstance(field, str) else getattr(field, "name", None) for field in listed)
    else:
        return None
    found = tuple(names)
    return found if all(isinstance(name, str) for name in found) else None


def _kind_of(field: Any) -> Any:
    return getattr(field, "_field_type", None)


def _is_programs(module: object) -> bool:
    """Whether a module belongs to the program, even if it shadows one of the standard library."""
    if not isinstance(module, str):
        return False
    root = module.partition(".")[0]
    if root == "malflow" or root not in sys.stdlib_module_names:
        return root != "malflow"
    file = getattr(sys.modules.get(root), "__file__", None)
    return file is not None and not file.startswith(_LIBRARY)


def _value(value: Any) -> str:
    """Return the value of an enum member as text if it is plain data. It then looks the same in every process."""
    if not isinstance(value, _PLAIN) and not (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)):
        return ""
    text = repr(value)
    return f"={text}" if len(text) <= _LONGEST_VALUE else f"={text[:_SHOWN_FIELDS]}...{crc32(text.encode()):x}"
