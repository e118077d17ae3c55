"""What fastavro leaves out of Avro's schema resolution: logical types of defaults, and of what others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from malflow.words import short_repr

__all__ = ["has_mutable_defaults", "with_logical_types_of", "with_python_defaults"]

_NAMED = "__named_schemas"
_PLAIN: dict[str, tuple[type[Any], ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int, str),
    "double": (float, int, str),
    "string": (str,),
    "bytes": (str,),
    "fixed": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}
"""The JSON values of the defaults of each type."""


def with_python_defaults(schema: Any, readers: Mapping[str, Any]) -> Any:
    """Return a reader's schema whose defaults are the values that its types have in Python.

    Args:
        schema: the schema, parsed by fastavro.
        readers: fastavro's functions that read logical types.

    Raises:
        ValueError: if a default does not fit its field.
    """
    schema = deepcopy(schema)
    named = schema.get(_NAMED, {}) if isinstance(schema, dict) else {}
    fields = {id(field): field for it in (schema, *named.values()) for field in _fields(it) if "default" in field}
    defaults = {
        at: _python(field["default"], field["type"], named, readers, field["name"]) for at, field in fields.items()
    }
    for at, default in defaults.items():  # after all conversions, since a default may use those of another record
        fields[at]["default"] = default
    return schema


def has_mutable_defaults(schema: Any) -> bool:
    """Whether a default is a list or dict, which records would share."""
    return any(isinstance(it.get("default"), list | dict) for it in _fields(schema))


def _fields(schema: Any) -> list[dict[str, Any]]:
    """Return the fields of all records in a schema."""
    if isinstance(schema, list):
        return [field for branch in schema for field in _fields(branch)]
    if not isinstance(schema, dict):
        return []
    own = list(schema.get("fields", ()))
    inner = [schema[key] for key in ("items", "values", "type") if key in schema]
    inner += [field["type"] for field in own]
    return own + [field for it in inner for field in _fields(it)]


def _python(json: Any, schema: Any, named: Mapping[str, Any], readers: Mapping[str, Any], field: str) -> Any:
    if isinstance(schema, list):
        return _of_union(json, schema, named, readers, field)
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in _PLAIN:
        return _python(json, kind, named, readers, field)
    if not _may_be(kind, json):
        raise _unfit(field, json, schema)
    if kind == "array":
        return [_python(it, schema["items"], named, readers, field) for it in json]
    if kind == "map":
        return {key: _python(it, schema["values"], named, readers, field) for key, it in json.items()}
    if kind in ("record", "error"):
        return {it["name"]: _of_record(json, it, named, readers) for it in schema["fields"]}
    return _of_plain(json, kind, schema, readers)


def _may_be(kind: str, json: Any) -> bool:
    return isinstance(json, _PLAIN[kind]) and (kind == "boolean" or not isinstance(json, bool))


def _of_plain(json: Any, kind: str, schema: dict[str, Any], readers: Mapping[str, Any]) -> Any:
    if kind in ("float", "double"):
        return float(json)
    value = json.encode("latin-1") if kind in ("bytes", "fixed") else json
    logical = readers.get(f"{kind}-{schema.get('logicalType')}")
    return value if logical is None else logical(value, schema, schema)


def _of_union(json: Any, branches: list[Any], named: Mapping[str, Any], readers: Mapping[str, Any], field: str) -> Any:
    for branch in branches:
        try:
            return _python(json, branch, named, readers, field)
        except ValueError:
            continue
    raise _unfit(field, json, branches)


def _of_record(
    json: dict[str, Any], field: dict[str, Any], named: Mapping[str, Any], readers: Mapping[str, Any]
) -> Any:
    if field["name"] not in json and "default" not in field:
        raise _unfit(field["name"], json, field["type"])
    return _python(json.get(field["name"], field.get("default")), field["type"], named, readers, field["name"])


def _unfit(field: str, json: Any, schema: Any) -> ValueError:
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return ValueError(f"field '{field}' has a default that is not of its type {kind}; got {short_repr(json)}")


def with_logical_types_of(reader: Any, writer: Any) -> Any:
    """Return a writer's schema that has a logical type where the reader's has one, and none where it has none.

    fastavro reads the logical types of the writer alone. So records of writers before and after a type became a
    date would be numbers and dates.
    """
    writer = deepcopy(writer)
    _align(writer, reader, _named_types(writer), _named_types(reader), set())
    if isinstance(writer, dict):  # to be parsed again
        writer.pop(_NAMED, None)
        writer.pop("__fastavro_parsed", None)
    return writer


def _named_types(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    stack = [schema]
    while stack:
        it = stack.pop()
        if isinstance(it, list):
            stack += it
        elif isinstance(it, dict):
            if "name" in it and it.get("type") in ("record", "error", "enum", "fixed"):
                found[it["name"]] = it
            stack += [it[key] for key in ("items", "values", "type") if isinstance(it.get(key), list | dict)]
            stack += [field["type"] for field in it.get("fields", ())]
    return found


def _kind(schema: Any, named: Mapping[str, Any]) -> Any:
    while isinstance(schema, str) and schema in named:
        schema = named[schema]
    return schema["type"] if isinstance(schema, dict) else schema


def _align(writer: Any, reader: Any, ours: Mapping[str, Any], theirs: Mapping[str, Any], seen: set[Any]) -> Any:
    """Align a type in place, and return what to write in its stead."""
    if isinstance(writer, list):
        for at, branch in enumerate(writer):
            writer[at] = _align(branch, reader, ours, theirs, seen)
        return writer
    kind = _kind(writer, ours)
    if isinstance(reader, list):
        reader = next((it for it in reader if _kind(it, theirs) == kind), None)
    if reader is None or _kind(reader, theirs) != kind:
        return writer
    wrote, reads = ours.get(writer, writer) if isinstance(writer, str) else writer, reader
    reads = theirs.get(reader, reader) if isinstance(reader, str) else reader
    if kind in ("record", "error"):
        _align_fields(wrote, reads, ours, theirs, seen)
    elif kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        wrote[inner] = _align(wrote[inner], reads[inner], ours, theirs, seen)
    else:
        return _with_logical_type(writer, wrote, reads if isinstance(reads, dict) else {})
    return writer


def _align_fields(
    wrote: dict[str, Any], reads: dict[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any], seen: set[Any]
) -> None:
    if (id(wrote), id(reads)) in seen:
        return
    seen.add((id(wrote), id(reads)))
    by_name = {name: it for it in reads["fields"] for name in (it["name"], *it.get("aliases", ()))}
    for field in wrote["fields"]:
        if field["name"] in by_name:
            field["type"] = _align(field["type"], by_name[field["name"]]["type"], ours, theirs, seen)


def _with_logical_type(writer: Any, wrote: Any, reads: Mapping[str, Any]) -> Any:
    has, wants = isinstance(wrote, dict) and "logicalType" in wrote, "logicalType" in reads
    if has == wants:
        return writer
    if wants:
        logical = {key: reads[key] for key in ("logicalType", "precision", "scale") if key in reads}
        if isinstance(wrote, dict):
            wrote.update(logical)
            return writer
        return {"type": wrote, **logical}
    del wrote["logicalType"]
    return writer
