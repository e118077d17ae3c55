"""Classes of the script that msgspec knows, by value: cloudpickle loses the fields of a ``Struct``.

A ``Struct`` is defined again from its fields and options. It gets its other members afterwards: these may name the
class. Only ``__post_init__`` must be there when it is defined. A class that comes twice is one class.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

__all__ = ["reduced_struct", "without_cache"]

_OPTIONS = (
    *("frozen", "eq", "order", "array_like", "gc", "weakref", "dict", "cache_hash", "tag", "tag_field"),
    *("repr_omit_defaults", "omit_defaults", "forbid_unknown_fields"),
)
"""The options of a ``Struct`` that its configuration has; ``rename`` is in the fields, ``kw_only`` in their order."""

_MADE = frozenset({"__slots__", "__annotations__", "__module__", "__dict__", "__weakref__", "__match_args__"})
"""The members that the definition makes."""

_FIRST = "__post_init__"
_CACHE = "__msgspec_cache__"
"""The attribute in which msgspec keeps what it knows of a class; it can't be pickled, and is made again."""


_NAMES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_KNOWN: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""A name for each class that this process has sent or received, and the class of each name."""


def reduced_struct(kind: Any) -> tuple[Any, ...]:
    """Return how to make a ``Struct`` again: see `object.__reduce_ex__`."""
    from msgspec import NODEFAULT  # noqa: PLC0415 - an extra; the class is of it
    from msgspec.structs import fields as fields_of  # noqa: PLC0415 - as above

    known = {it.name: it for it in fields_of(kind)}
    own = [known[name] for name in vars(kind).get("__annotations__", {}) if name in known]
    fields = [
        (it.name, it.type, it.encode_name)
        + (() if it.default is NODEFAULT else ("default", it.default))
        + (() if it.default_factory is NODEFAULT else ("default_factory", it.default_factory))
        for it in own
    ]
    config = kind.__struct_config__
    options = {name: getattr(config, name) for name in _OPTIONS if hasattr(config, name)}
    options["kw_only"] = bool(own) and not {it.name for it in own}.intersection(kind.__match_args__)
    members = {
        name: it
        for name, it in vars(kind).items()
        if name not in _MADE and not name.startswith("__struct_") and not isinstance(it, MemberDescriptorType)
    }
    members.pop(_CACHE, None)
    first = {_FIRST: members.pop(_FIRST)} if _FIRST in members else {}
    name = _NAMES.setdefault(kind, uuid4().hex)
    _KNOWN[name] = kind
    made = (name, kind.__name__, kind.__qualname__, kind.__module__, kind.__bases__, fields, options, first)
    return _defined, made, members, None, None, _set_members


def _defined(
    known_as: str,
    name: str,
    qualname: str,
    module: str,
    bases: tuple[type, ...],
    fields: list[tuple[Any, ...]],
    options: Mapping[str, Any],
    first: Mapping[str, Any],
) -> Any:
    if (known := _KNOWN.get(known_as)) is not None:
        return known
    from msgspec import defstruct, field  # noqa: PLC0415 - as above

    own: list[Any] = [
        (it, kind, field(name=encoded, **dict([more] if more else []))) for it, kind, encoded, *more in fields
    ]
    namespace = {**first, "__qualname__": qualname}
    made = defstruct(name, own, bases=bases, module=module, namespace=namespace, **options)
    _NAMES[made], _KNOWN[known_as] = known_as, made
    return made


def _set_members(kind: Any, members: Mapping[str, Any]) -> None:
    if not vars(kind).keys() >= members.keys():
        for name, it in members.items():
            setattr(kind, name, it)


def without_cache(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how cloudpickle makes a class again, without what msgspec keeps in it."""
    attributes = reduced[2][0] if len(reduced) > 2 and isinstance(reduced[2], tuple) else None  # noqa: PLR2004
    if isinstance(attributes, dict):
        attributes.pop(_CACHE, None)
    return reduced
