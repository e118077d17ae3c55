"""JSON objects as columns of Arrow: one parse for all records of a poll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from malflow.columns import Frame
from malflow.columns.arrays import is_readable
from malflow.columns.texts import braced_lines, checked_schema, only_read
from malflow.connectors.codecs.contract import Decoder
from malflow.errors import GraphError
from malflow.words import plural

__all__ = ["JsonColumns"]

_MOST = 65_536
"""The most records of a parse; Arrow takes 100,000 at most."""

_BYTES = 64 << 20
"""The most bytes of a parse, beside the first record: Arrow takes 2 GiB."""

_SPACE = b" \t\r\n"


class JsonColumns(Decoder[dict[str, Any]]):
    r"""Decode JSON objects in UTF-8 as columns with a schema, all records of a poll in one parse.

    A record is a dict of the schema's fields. A field that the JSON lacks is None, others are dropped. A value of
    another type is an error: an integer that is too large, a float in a column of integers, a number in one of strings.
    So is a name that occurs twice. Times are texts in the form of ISO 8601.

    Args:
        schema: the names and types of the fields. A field that is not nullable must not be absent.

    Raises:
        GraphError: if `schema` is not a schema, or has a type that JSON can't be read as.

    >>> decoder = JsonColumns(pa.schema({"town": pa.string(), "people": pa.int64()}))
    >>> decoder.decode(b'{"people": 130000, "town": "Ulm", "river": "Danube"}')
    {'town': 'Ulm', 'people': 130000}
    >>> decoder.decode_column([b'{"town": "Ulm"}', b'{"people": 1}']).column("people")
    [None, 1]
    """

    emits_columns = True

    def __init__(self, schema: pa.Schema) -> None:
        for field in checked_schema("JsonColumns", schema):
            _check_type(field)
        self._set(schema, is_whole=True)

    def _set(self, schema: pa.Schema, *, is_whole: bool) -> None:
        self._schema = schema
        self._is_whole = is_whole
        self._required = [field.name for field in schema if not field.nullable]
        self._times = [field.name for field in schema if pa.types.is_temporal(field.type)]

    def reading(self, fields: frozenset[str]) -> JsonColumns:
        """Return a decoder of only these fields, if the schema has them; what others hold is not looked at."""
        schema = only_read(self._schema, fields)
        if schema is None:
            return self
        decoder = JsonColumns.__new__(JsonColumns)
        decoder._set(schema, is_whole=False)  # noqa: SLF001 - of this class
        return decoder

    def decode(self, raw: bytes) -> dict[str, Any]:
        """Return the fields of one record.

        Raises:
            ValueError: if it is not one JSON object, or does not fit the schema.
        """
        row: dict[str, Any] = self._frame(self._parsed(_cleaned(raw), 1))[0]
        return row

    def decode_column(self, raws: Sequence[bytes]) -> Sequence[dict[str, Any]]:
        """Return the fields of several records, as a `Frame`.

        Raises:
            ValueError: if one is not one JSON object, or does not fit the schema.
        """
        if not raws:
            return []
        if len(raws) <= _MOST:
            data = b"\n".join(raws)
            if len(data) <= _BYTES and _objects(data) == len(raws):
                return self._frame(self._parsed(data, len(raws)))
        parts = [self._parsed(b"\n".join(part), len(part)) for part in _in_parts(list(map(_cleaned, raws)))]
        return self._frame(_joined(parts))

    def decode_lines(self, data: bytes) -> Sequence[dict[str, Any]]:
        """Return the records in lines that are not blank, as a `Frame`; see `decode_column`."""
        body = data.removesuffix(b"\n")
        count = _objects(body) if len(body) <= _BYTES else None
        if count is not None and count <= _MOST:
            return self._frame(self._parsed(body, count))
        return self.decode_column(list(filter(None, (line.strip(_SPACE) for line in body.split(b"\n")))))

    def _frame(self, batch: pa.RecordBatch) -> Frame:
        return Frame(batch, is_whole=self._is_whole)

    def _parsed(self, data: bytes, count: int) -> pa.RecordBatch:
        """Return objects in lines, as many as expected, as columns.

        Raises:
            ValueError: if they do not fit the schema.
        """
        reading = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        parsing = pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(pa.BufferReader(data), reading, parsing)
        except pa.ArrowException as error:
            raise ValueError(f"it does not fit the schema: {error}") from None
        if len(table) != count:
            raise ValueError(f"it has {plural(len(table), 'JSON object')} instead of {count}")
        batch = _joined(table.select(self._schema.names).to_batches())
        for name in self._required:
            if batch.column(name).null_count:
                raise ValueError(f"field '{name}' is null or absent, but the schema says that it is not nullable")
        for name in self._times:
            if not is_readable(batch.column(name)):
                raise ValueError(f"field '{name}' has a time outside the years 1 to 9999")
        return batch


def _check_type(field: pa.Field) -> None:
    """Check that Arrow can read JSON as a type, and Python can hold its items."""
    cure = ""
    if pa.types.is_dictionary(field.type):
        cure = f"; pass {field.type.value_type}, which becomes a dictionary where it is a key"
    else:
        try:
            pj.read_json(
                pa.BufferReader(b"{}"),
                parse_options=pj.ParseOptions(explicit_schema=pa.schema([field.with_nullable(True)])),
            )
        except pa.ArrowNotImplementedError:
            pass
        else:
            return
    raise GraphError(f"JsonColumns can't read JSON as {field.type}, the type of '{field.name}'{cure}")


def _objects(data: bytes) -> int | None:
    """Return the number of lines, if each begins and ends like an object; None if not, or if it is not UTF-8.

    Then no object has parts in two lines: between a closing and an opening brace, JSON has a comma. Arrow itself does
    not look at line ends, and a line ``null`` that is the first crashes it. Other lines can be right too, for example
    with spaces; these are looked at one by one.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return None
    return braced_lines(data)


def _cleaned(raw: bytes) -> bytes:
    """Return a text that begins and ends like an object, without line ends.

    In JSON, a line end is white space or, within quotes, an error. So is a tab.

    Raises:
        ValueError: if it does not, or is not UTF-8.
    """
    text = raw.strip(_SPACE)
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise ValueError("it is not a JSON object")
    if not text.isascii():
        text.decode()
    return text.translate(_TABS) if b"\n" in text or b"\r" in text else text


_TABS = bytes.maketrans(b"\n\r", b"\t\t")


def _in_parts(raws: list[bytes]) -> Iterator[list[bytes]]:
    """Yield records that are parsed together."""
    start = size = 0
    for at, raw in enumerate(raws):
        size += len(raw) + 1
        if at > start and (at - start == _MOST or size > _BYTES):
            yield raws[start:at]
            start, size = at, len(raw) + 1
    yield raws[start:]


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
