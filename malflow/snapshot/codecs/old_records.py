"""Records in place of instances of changed classes, for migrations, from the shapes in pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from operator import itemgetter
from typing import Any, SupportsIndex

from malflow.snapshot.codecs.classes import find, place_of
from malflow.snapshot.codecs.shapes import (
    BY_POSITION,
    CLASS,
    ENUM,
    NAMED_TUPLE,
    OWN_TUPLE,
    STRUCT,
    Shape,
    described,
    form_of,
    same_form,
)
from malflow.words import error_line

__all__ = [
    "OldRecord",
    "OldTuple",
    "change_of",
    "old_class",
    "old_kind",
    "reader",
    "shape_of",
]

_PAIR = 2
"""The pickled state of a class with slots has two parts: its attributes and its slots."""

_AT_ONCE = 1_000
"""Values searched together. Fewer: more calls of the pickler; more: more is searched after the first find."""

_METHODS = ("keys", "values", "items", "get")


class OldRecord(Mapping[str, Any]):
    """The fields of a record of a changed class: a read-only mapping, with the values also as attributes.

    It is created by unpickling, as an instance of the class would have been.
    """

    _kind = "record"
    _names: tuple[str, ...] = ()
    _args: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **facts: Any) -> OldRecord:
        """Create a record from the arguments of its class."""
        record = super().__new__(cls)
        vars(record)["_held"] = dict(zip(_argument_names(args, cls._args), args, strict=True)) | facts
        return record

    def __init__(self, *args: Any, **facts: Any) -> None:
        """Do nothing: most pickles only call `__new__`."""

    def __setstate__(self, state: Any) -> None:
        held = self._held
        if isinstance(state, tuple) and len(state) == _PAIR and all(isinstance(p, dict | None) for p in state):
            held.update({**(state[0] or {}), **(state[1] or {})})
        elif isinstance(state, dict):
            held.update(
                {**state["__dict__"], **(state.get("__pydantic_extra__") or {})} if _is_pydantic(state) else state
            )
        elif isinstance(state, list) and len(state) == len(self._names):
            held.update(zip(self._names, state, strict=True))
        else:
            held["state"] = state

    @property
    def _held(self) -> dict[str, Any]:
        held: dict[str, Any] = vars(self)["_held"]
        return held

    def __getitem__(self, name: str) -> Any:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self).get("_held", {}):
            return self._held[name]
        raise AttributeError(f"the old {self._kind} has no field '{name}'; it has {', '.join(self) or 'none'}")

    def __hash__(self) -> int:
        return hash(tuple(self._held.items()))

    def __repr__(self) -> str:
        return f"<old {self._kind}: {', '.join(f'{name}={value!r}' for name, value in self.items())}>"

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        raise _not_a_state(self._kind)


class OldTuple(tuple[Any, ...]):
    """The fields of a named tuple of a changed class, by position, by name and as attributes."""

    _kind = "named tuple"
    _names: tuple[str, ...] = ()

    def __new__(cls, *values: Any) -> OldTuple:
        """Create a tuple from its values."""
        if len(values) == len(cls._names):
            return super().__new__(cls, values)
        return super().__new__(
            type(cls.__name__, (OldTuple,), {"_kind": cls._kind, "_names": _argument_names(values, ())}), values
        )

    def __init__(self, *values: Any) -> None:
        """Do nothing: most pickles only call `__new__`."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(self._place(place) if isinstance(place, str) else place)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            names = ", ".join(self._names)
            raise AttributeError(f"the old {self._kind} has no field '{name}'; it has {names}") from None

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return self._names

    def values(self) -> tuple[Any, ...]:
        """Return the values of the fields."""
        return tuple(self)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Return the fields with their values."""
        return tuple(zip(self._names, self, strict=False))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or the default if there is no such field."""
        return self[name] if name in self._names else default

    def _asdict(self) -> dict[str, Any]:
        return dict(self.items())

    def _place(self, name: str) -> int:
        if name not in self._names:
            raise KeyError(name)
        return self._names.index(name)

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other if isinstance(other, Mapping) else super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"<old {self._kind}: {', '.join(f'{name}={value!r}' for name, value in self.items())}>"

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        raise _not_a_state(self._kind)


class _OldObject(OldRecord):
    """The remains of an object without its class: its attributes, list items and dict items."""

    def append(self, item: Any) -> None:
        """Add an item, as to a list."""
        self._held.setdefault("items", []).append(item)

    def extend(self, items: Any) -> None:
        """Add items, as to a list."""
        self._held.setdefault("items", []).extend(items)

    def add(self, item: Any) -> None:
        """Add an item, as to a set."""
        self.append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._held.setdefault("items", {})[key] = value


def old_class(shape: Shape) -> type[OldRecord] | type[OldTuple]:
    """Return a class that stands in for one that has changed or is missing."""
    kind = shape.name.rpartition(":")[2]
    if shape.kind == OWN_TUPLE:
        return type(kind, (OldTuple,), {"_kind": kind})
    if shape.kind == NAMED_TUPLE:
        fields = {name: property(itemgetter(name)) for name in shape.fields if name not in _METHODS}
        return type(kind, (OldTuple,), {**fields, "_kind": kind, "_names": shape.fields})
    args = {ENUM: ("value",), STRUCT: shape.fields}.get(shape.kind, ())
    base = _OldObject if shape.kind == CLASS else OldRecord
    return type(kind, (base,), {"_kind": kind, "_names": shape.fields, "_args": args})


def _argument_names(args: Sequence[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the arguments of a class."""
    return names if len(args) == len(names) else tuple(f"args[{place}]" for place in range(len(args)))


def old_kind(values: Iterable[Any]) -> str | None:
    """Return the class name of an old record contained in the values, at any depth; None if there is none.

    The search is a pickling. It visits everything; other pickling errors are reported later.
    """
    rest = iter(values)
    while some := list(islice(rest, _AT_ONCE)):
        found = _Found(_Nowhere(), protocol=5)
        with suppress(Exception):
            found.dump(some)
        if found.kind is not None:
            return found.kind
    return None


class _Nowhere:
    """A file that discards its data."""

    def write(self, data: Any) -> int:
        """Discard the data."""
        return len(data)


class _Found(pickle.Pickler):
    """Stops at the first old record."""

    kind: str | None = None

    def reducer_override(self, value: Any) -> Any:
        """Raise an error at an old record."""
        if isinstance(value, OldRecord | OldTuple):
            self.kind = type(value).__name__
            raise _not_a_state(self.kind)
        return NotImplemented


def _pydantic(state: dict[Any, Any]) -> dict[Any, Any]:
    parts = (state["__dict__"], state.get("__pydantic_extra__"), state.get("__pydantic_private__"))
    return {name: value for part in parts for name, value in (part or {}).items()}


def _is_pydantic(state: dict[Any, Any]) -> bool:
    return "__pydantic_fields_set__" in state and isinstance(state.get("__dict__"), dict)


def _not_a_state(kind: str) -> TypeError:
    return TypeError(f"the old {kind} passed to migrate= can't be kept; return a new object instead")


_MAKERS = frozenset({"dataclasses", "attr", "attrs", "pydantic", "msgspec"})


def shape_of(kind: type) -> Shape | None:
    """Return the shape of a class; None if it does not belong to the program."""
    form = form_of(kind)
    return None if form is None else Shape(f"{kind.__module__}:{kind.__qualname__}", *form)


def change_of(shape: Shape, since: str) -> str | None:
    """Describe how a class has changed; None if its old pickles are still read correctly.

    A missing class without declared fields is not reported: its pickles may not need it.
    """
    module, _, qualname = shape.name.partition(":")
    try:
        kind = find(module, qualname, shape.script)
    except Exception as error:  # noqa: BLE001 - importing user modules may raise anything
        if shape.kind == CLASS:
            return None
        was = described(shape.kind, shape.fields, with_kind=True)
        script = f" (the script '{shape.script}')" if shape.script else ""
        reason = error_line(error)
        hint = f"; import {shape.script} so that it can be found" if shape.script else ""
        return f"class {qualname} of module {module}{script}, {was} in {since}, can't be found: {reason}{hint}"
    if _is_as_it_was(shape, kind):
        return None
    form = form_of(kind) if isinstance(kind, type) else None
    kind_of_it, fields = form or (f"{type(kind).__name__} of another kind", ())
    with_kind = kind_of_it != shape.kind
    what = "members" if shape.kind == ENUM else "fields"
    return (
        f"the {what} of {qualname}{place_of(kind)} changed since {since}: snapshot has "
        f"{described(shape.kind, shape.fields, with_kind=with_kind)}, program has "
        f"{described(kind_of_it, fields, with_kind=with_kind)}"
    )


def reader(shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
    """Return a function that loads pickles with classes of these shapes.

    Args:
        shapes: the shapes.
        migrating: whether instances of a class that has changed or is missing are read as their fields.
    """
    scripts = {shape.name: shape.script for shape in shapes if shape.script}
    replaced = {shape.name: old_class(shape) for shape in shapes if migrating and _has_changed(shape)}

    def loads(data: bytes) -> Any:
        try:
            return _Unpickler(data, replaced, scripts, migrating=migrating).load()
        except TypeError:
            if shapes or not migrating:
                raise
        return _FormlessUnpickler(data, {}, scripts, migrating=True).load()

    return loads


class _Unpickler(pickle.Unpickler):
    """Finds classes of scripts in their present modules, and replaces classes that have changed."""

    def __init__(self, data: bytes, replaced: dict[str, Any], scripts: dict[str, str], *, migrating: bool) -> None:
        super().__init__(io.BytesIO(data))
        self._replaced = replaced
        self._scripts = scripts
        self._any_script = next(iter(scripts.values()), "")
        self._migrating = migrating

    def find_class(self, module: str, qualname: str) -> Any:
        """Return the object that a pickle names, or its replacement."""
        name = f"{module}:{qualname}"
        if name in self._replaced:
            return self._replaced[name]
        try:
            return find(module, qualname, self._scripts.get(name, self._any_script))
        except (ImportError, AttributeError):
            if not self._migrating:
                raise
        self._replaced[name] = old_class(Shape(name, CLASS, ()))
        return self._replaced[name]


class _FormlessUnpickler(_Unpickler):
    """Loads pickles written before snapshots recorded shapes: records stored by position become tuples."""

    def find_class(self, module: str, qualname: str) -> Any:
        """Return the object that a pickle names, but replace classes pickled without field names."""
        found = super().find_class(module, qualname)
        form = form_of(found) if isinstance(found, type) else None
        if form is None or form[0] not in BY_POSITION:
            return found
        name = f"{module}:{qualname}"
        self._replaced[name] = old_class(Shape(name, OWN_TUPLE, ()))
        return self._replaced[name]


def _has_changed(shape: Shape) -> bool:
    """Whether pickled instances of a class can no longer be restored correctly."""
    module, _, qualname = shape.name.partition(":")
    try:
        return not _is_as_it_was(shape, find(module, qualname, shape.script))
    except Exception:  # noqa: BLE001 - importing user modules may raise anything
        return True


def _is_as_it_was(shape: Shape, kind: Any) -> bool:
    form = form_of(kind) if isinstance(kind, type) else None
    if form is None:
        return shape.kind == CLASS  # moved into the standard library, or replaced by a factory function
    return same_form(shape, *form) or _reads_itself(kind)


def _reads_itself(kind: type) -> bool:
    """Whether a class defines its own unpickling. That may handle its former fields."""
    if issubclass(kind, tuple | Enum):
        return False
    return any(_is_users(getattr(kind, method, None)) for method in ("__setstate__", "__reduce__", "__reduce_ex__"))


def _is_users(method: Any) -> bool:
    """Whether a method is user-written, neither generated by a library nor inherited from `object`."""
    module = str(getattr(method, "__globals__", {}).get("__name__", ""))
    return bool(module) and module.partition(".")[0] not in _MAKERS
