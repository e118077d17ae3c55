"""Values that fastavro would write as others: found by reading the bytes again, and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from malflow.words import short_repr

__all__ = ["ambiguous_unions", "check_unambiguous", "difference"]

_RECORDS = ("record", "error")
_HINT_SIZE = 2
"""The length of a tuple in fastavro with the name of a union's branch and a value."""


def difference(value: Any, read: Any, place: str = "the value") -> str | None:
    """Return why a value is not the one that a reader gets, with its place; None if it is the same.

    A field that the value lacks may have its default, and a number may stand for the date or time that it encodes.
    """
    if isinstance(value, tuple) and len(value) == _HINT_SIZE and isinstance(value[0], str) and not _is_list(read):
        value = value[1]  # the name of the branch of a union, and the value
    if isinstance(value, Mapping) and isinstance(read, Mapping):
        return _in_record(value, read, place)
    if _is_list(value) and _is_list(read) and len(value) == len(read):
        pairs = enumerate(zip(value, read, strict=True))
        return next((it for at, (one, other) in pairs if (it := difference(one, other, f"{place}[{at}]"))), None)
    if _is_same(value, read):
        return None
    return f"{place} would be read as {short_repr(read)}; got {short_repr(value)}"


def _in_record(value: Mapping[Any, Any], read: Mapping[Any, Any], place: str) -> str | None:
    for key, one in value.items():
        at = key if place == "the value" else f"{place}.{key}"
        if key not in read:
            return f"field '{at}' is not in the schema; got {short_repr(one)}"
        found = difference(one, read[key], f"{at}")
        if found is not None:
            return found if found.startswith("field ") else f"field {found}"
    return None


def _is_same(value: Any, read: Any) -> bool:
    if getattr(value, "shape", None) == () and value.dtype.kind not in "mM":
        value = value.item()  # a scalar of numpy
    if isinstance(value, int) and not isinstance(read, int | float):
        return not isinstance(value, bool)  # a number of days or microseconds
    if isinstance(read, UUID) and isinstance(value, str):
        return read == UUID(value)
    if isinstance(value, bytearray | memoryview):
        return bool(bytes(value) == read)
    if isinstance(value, float) and isinstance(read, float) and not math.isnan(value):
        return math.isinf(value) == math.isinf(read)  # a float of four bytes rounds, as its type says
    try:
        return bool(value == read) or (math.isnan(value) and math.isnan(read))
    except (TypeError, ValueError):
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def ambiguous_unions(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a schema has a union of several types whose values are dicts, so that one may pass for another."""
    return any(len(list(_of_dicts(it, named))) > 1 for it in _parts(schema, named, set()) if isinstance(it, list))


def _parts(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Iterator[Any]:
    yield schema
    if isinstance(schema, str) and schema in named and schema not in seen:
        seen.add(schema)
        yield from _parts(named[schema], named, seen)
    if isinstance(schema, list):
        for it in schema:
            yield from _parts(it, named, seen)
    if isinstance(schema, dict):
        inner = [schema[key] for key in ("items", "values", "type") if key in schema]
        for it in (*inner, *(field["type"] for field in schema.get("fields", ()))):
            yield from _parts(it, named, seen)


def _of_dicts(union: Sequence[Any], named: Mapping[str, Any]) -> Iterator[Any]:
    for branch in union:
        whole = named.get(branch, branch) if isinstance(branch, str) else branch
        if isinstance(whole, dict) and whole["type"] in (*_RECORDS, "map"):
            yield whole


def check_unambiguous(value: Any, schema: Any, named: Mapping[str, Any], fits: Callable[[Any, Any], bool]) -> None:
    """Raise an error if a dict fits several types of a union.

    Args:
        value: the value.
        schema: its schema.
        named: the named types.
        fits: whether a value fits a type exactly: all its fields are in it, and those it lacks have defaults.

    Raises:
        ValueError: naming the types.
    """
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        _check_in_union(value, schema, named, fits)
    elif isinstance(schema, dict) and isinstance(value, Mapping) and schema["type"] in _RECORDS:
        for field in schema["fields"]:
            if field["name"] in value:
                check_unambiguous(value[field["name"]], field["type"], named, fits)
    elif isinstance(schema, dict) and isinstance(value, Mapping) and schema["type"] == "map":
        for it in value.values():
            check_unambiguous(it, schema["values"], named, fits)
    elif isinstance(schema, dict) and schema["type"] == "array" and _is_list(value):
        for it in value:
            check_unambiguous(it, schema["items"], named, fits)


def _check_in_union(
    value: Any, union: Sequence[Any], named: Mapping[str, Any], fits: Callable[[Any, Any], bool]
) -> None:
    if not isinstance(value, Mapping):
        return
    branches = list(_of_dicts(union, named))
    fitting = [it for it in branches if fits(value, it)]
    if len(fitting) > 1:
        names = [it.get("name", it["type"]) for it in fitting]
        raise ValueError(
            f"{short_repr(value)} fits {' and '.join(map(repr, names))} of a union; pass ({names[0]!r}, value) to "
            "choose one"
        )
    if len(fitting) == 1:
        check_unambiguous(value, fitting[0], named, fits)
