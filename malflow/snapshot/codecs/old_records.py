"""The records that migrations receive in place of instances of changed classes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any, SupportsIndex

from malflow.snapshot.codecs.shapes import CLASS, ENUM, NAMED_TUPLE, OWN_TUPLE, STRUCT, Shape

__all__ = ["OldRecord", "OldTuple", "old_class", "old_kind"]

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
