"""The shapes of classes in pickles: detecting changes, and reading states of changed classes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from malflow.snapshot.codecs.classes import find, place_of
from malflow.snapshot.codecs.old_records import old_class
from malflow.snapshot.codecs.shapes import BY_POSITION, CLASS, ENUM, OWN_TUPLE, Shape, described, form_of, same_form
from malflow.words import error_line

__all__ = ["change_of", "reader", "shape_of"]

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
