"""Texts that are parsed as columns: the schemas of their fields, and lines of JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["braced_lines", "checked_schema", "only_read"]


def checked_schema(asked_by: str, schema: Any) -> pa.Schema:
    """Check the schema of fields that are read from text, and return it.

    Raises:
        GraphError: if it is not a schema, or has no fields, two of one name, or times that Python can't hold.
    """
    if not isinstance(schema, pa.Schema):
        raise GraphError(f"{asked_by} schema must be a pyarrow.Schema; got {short_repr(schema)}")
    if not schema.names or len(set(schema.names)) < len(schema.names):
        raise GraphError(f"{asked_by} schema must have fields, each with a name of its own; got {schema.names}")
    for field in schema:
        if getattr(field.type, "unit", None) == "ns":
            raise GraphError(f"{asked_by} schema can't have '{field.name}' as {field.type}; pass the unit 'us'")
    return schema


def only_read(schema: pa.Schema, fields: frozenset[str]) -> pa.Schema | None:
    """Return a schema with the fields that a dataflow reads; None if these are all, or it lacks one."""
    if not fields < set(schema.names):
        return None
    return pa.schema([field for field in schema if field.name in fields])


def braced_lines(data: bytes) -> int | None:
    r"""Return the number of lines of a text, if each begins with an opening brace and ends with a closing one.

    >>> braced_lines(b'{"n": 1}\n{}'), braced_lines(b'{"n": 1}\n[]')
    (2, None)
    """
    if not (data.startswith(b"{") and data.endswith(b"}")):
        return None
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if not ((text[ends - 1] == ord("}")).all() and (text[ends + 1] == ord("{")).all()):
        return None
    return len(ends) + 1
