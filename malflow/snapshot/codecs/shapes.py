"""What a snapshot knows of the classes in its states: their kinds and their fields."""

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
"""How names of classes begin that the script that runs has defined."""

NAMED_TUPLE: Final = "NamedTuple"
OWN_TUPLE: Final = "NamedTuple that is pickled in a way of its own"
STRUCT: Final = "msgspec Struct"
_FROZEN_SLOTS: Final = "frozen slots dataclass"
BY_POSITION: Final = (NAMED_TUPLE, OWN_TUPLE, _FROZEN_SLOTS, STRUCT)
"""The kinds whose pickles have values only: which field a value belongs to follows from its place."""

_PLAIN = (int, str, float, bytes, type(None))
_LONGEST_VALUE = 100
_SHOWN_FIELDS = 30
_LIBRARY = str(Path(os.__file__).parent)


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of one class.

    Attributes:
        name: what the codec calls the class: ``module:qualname`` in pickles, the name registered with msgpack.
        kind: what makes its fields: "NamedTuple", "dataclass", "enum", ..., or "class" where it declares none.
        fields: their names in order; of an enum its members, as ``NAME=value``.
        script: for a class of ``__main__`` the name that its module has where it is imported.
    """

    name: str
    kind: str
    fields: tuple[str, ...]
    script: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The shapes in what one worker wrote of one operator.

    Attributes:
        worker: the worker.
        operator: the operator.
        whole: whether it was all the state there is, so that what was found before counts no more.
        shapes: the shapes.
    """

    worker: int
    operator: str
    whole: bool
    shapes: tuple[Shape, ...]


class Kept:
    """The shapes in a base and the increments over it: they add up, until a state is written whole again.

    Args:
        shapes: those of a snapshot, by operator.
        workers: how many workers wrote it; any of them may have written any of its shapes.
    """

    def __init__(self, shapes: Mapping[str, tuple[Shape, ...]], workers: int) -> None:
        self._known: dict[tuple[int, str], dict[tuple[str, str], Shape]] = {}
        for operator, found in shapes.items():
            if found:
                self.add(Finding(worker, operator, True, found) for worker in range(workers))

    def clear(self) -> None:
        """Forget all: a new base begins."""
        self._known.clear()

    def copy(self) -> Kept:
        """Return a copy that can be added to without a change of this one."""
        copy = Kept({}, 0)
        copy._known = {place: dict(shapes) for place, shapes in self._known.items()}
        return copy

    def add(self, findings: Iterable[Finding]) -> None:
        """Add what was found in an increment, or in a state that was written whole."""
        for finding in findings:
            known = self._known.setdefault((finding.worker, finding.operator), {})
            if finding.whole:
                known.clear()
            known.update({(shape.name, shape.script): shape for shape in finding.shapes})

    def of(self, operator: str) -> tuple[Shape, ...]:
        """Return the shapes in all states of an operator."""
        found: dict[tuple[str, str], Shape] = {}
        for (_, name), known in self._known.items():
            if name == operator:
                found |= known
        return tuple(shape for _, shape in sorted(found.items()))


def form_of(kind: type) -> tuple[str, tuple[str, ...]] | None:
    """Return what kind of record a class is, and its fields; None for classes that are not a program's.

    Classes of Python's library and of malflow say themselves how they are read in later versions.

    >>> from dataclasses import make_dataclass
    >>> form_of(make_dataclass("Acc", ["n", "total"], namespace={"__module__": "job"}))
    ('dataclass', ('n', 'total'))
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
    """Whether what was pickled of the old form is read right by a class of this kind with these fields."""
    if old.kind != kind:
        return False
    if kind == ENUM:
        return set(old.fields) <= set(fields)
    return old.fields == fields if kind in BY_POSITION else set(old.fields) == set(fields)


def described(kind: str, fields: tuple[str, ...], *, with_kind: bool) -> str:
    """Show a form in an error.

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
    """Return the shape of a class that may be one of ``__main__``, with the name of the script that is."""
    return replace(shape, script=script) if shape.name.startswith(MAIN) else shape


def _is_own_tuple(kind: Any) -> bool:
    """Whether a named tuple has changed how it is pickled, so that its fields may not be what is in the pickle."""
    made = getattr(kind.__getnewargs__, "__globals__", {}).get("__name__")
    return made != "collections" or (kind.__reduce__, kind.__reduce_ex__) != (object.__reduce__, object.__reduce_ex__)


def _dataclass_kind(kind: type) -> str:
    """Return which of the three forms a dataclass is pickled in; it may be a copy that was pickled by value itself."""
    if getattr(getattr(kind, "__setstate__", None), "__module__", "") == "dataclasses":
        return _FROZEN_SLOTS
    return "slots dataclass" if "__slots__" in vars(kind) else "dataclass"


def _fields(kind: type, attribute: str) -> tuple[str, ...] | None:
    """Return the fields that a library lists in an attribute of a class; None where it has none, or another thing.

    Of dataclasses they are those of `dataclasses.fields`, which does not know a class that was pickled by value.
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
    """Whether a module is neither of Python's library nor of malflow; a program's may have a name of the library's."""
    if not isinstance(module, str):
        return False
    root = module.partition(".")[0]
    if root == "malflow" or root not in sys.stdlib_module_names:
        return root != "malflow"
    file = getattr(sys.modules.get(root), "__file__", None)
    return file is not None and not file.startswith(_LIBRARY)


def _value(value: Any) -> str:
    """Show the value of an enum's member where it is plain data, so that it is the same in every process."""
    if not isinstance(value, _PLAIN) and not (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)):
        return ""
    text = repr(value)
    return f"={text}" if len(text) <= _LONGEST_VALUE else f"={text[:_SHOWN_FIELDS]}...{crc32(text.encode()):x}"
