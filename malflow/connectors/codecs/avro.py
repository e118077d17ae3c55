"""Avro: records with a given schema, or framed by the wire format of schema registries."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from uuid import UUID

from malflow.checks import check_flag
from malflow.connectors.codecs.avro_fidelity import ambiguous_unions, check_unambiguous, difference
from malflow.connectors.codecs.avro_resolution import (
    has_mutable_defaults,
    with_logical_types_of,
    with_python_defaults,
)
from malflow.connectors.codecs.contract import Decoder, Encoder
from malflow.connectors.codecs.registry import (
    FRAME_SIZE,
    SchemaRegistry,
    check_registry,
    check_subject,
    frame,
    schema_id,
)
from malflow.errors import GraphError, MissingDependency
from malflow.words import error_line, short_repr

__all__ = ["AvroDecoder", "AvroEncoder"]

_SHOWN = 3
"""The most faults of a value in a message, to keep it readable: the first ones mostly explain the others."""

_CURE = "convert it before the sink, or widen the schema"
_OF_FASTAVRO = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError)
"""What fastavro raises for some values without naming them."""

_PLAIN = frozenset({int, float, bool, str, bytes, type(None), Decimal, date, time, datetime, UUID})
"""Types whose values are compared exactly by ``==``; that of numpy compares integers with floats as floats."""

AvroSchema: TypeAlias = str | dict[str, Any] | list[Any] | Path
"""A schema: parsed JSON, its text, or the path of an ``.avsc`` file."""


class AvroDecoder(Decoder[Any]):
    """Decode Avro records.

    Args:
        schema: the reader's schema: fields are renamed, dropped and filled in by Avro's rules of schema resolution.
            Without a registry, it is also the writer's schema. With a registry, it may be None: each record is then
            read with its writer's schema.
        registry: the schema registry with the writer's schemas of framed records. If None, records have no frame.

    Raises:
        GraphError: if the schema is invalid, or there is neither a schema nor a registry.
        MissingDependency: if fastavro is not installed.

    >>> schema = {"type": "record", "name": "Sale", "fields": [{"name": "shop", "type": "string"}]}
    >>> AvroDecoder(schema).decode(AvroEncoder(schema).encode({"shop": "Ulm"}))
    {'shop': 'Ulm'}
    """

    def __init__(self, schema: AvroSchema | None = None, *, registry: SchemaRegistry | None = None) -> None:
        check_registry("AvroDecoder", registry)
        self._fastavro = _Fastavro()
        if schema is None and registry is None:
            raise GraphError("AvroDecoder needs a schema, or registry=SchemaRegistry(...)")
        self._plain = None if schema is None else _parsed(self._fastavro, schema, "AvroDecoder")[0]
        self._reader = None if self._plain is None else self._with_defaults(self._plain)
        self._copies = self._reader is not None and has_mutable_defaults(self._reader)
        self._registry = registry
        self._writers: dict[int, Any] = {}

    def decode(self, raw: bytes) -> Any:
        """Return the value of a record.

        Raises:
            ValueError: if the frame is damaged, or the registry does not know the schema.
            RegistryUnavailable: if the registry does not answer.
        """
        stream, writer, reader = BytesIO(raw), self._plain, None
        if self._registry is not None:
            number = schema_id(raw)
            writer, reader = self._writers.get(number) or self._writer(self._registry, number), self._reader
            stream.seek(FRAME_SIZE)
        value = self._fastavro.read(stream, writer, reader)
        if stream.tell() != len(raw):
            raise ValueError(f"{len(raw) - stream.tell()} bytes are left after the value; its schema differs")
        return deepcopy(value) if self._copies and reader is not None else value

    def _with_defaults(self, schema: Any) -> Any:
        try:
            return with_python_defaults(schema, self._fastavro.logical_readers)
        except ValueError as error:
            raise _unreadable("AvroDecoder", "cannot use the schema", schema, error) from error

    def _writer(self, registry: SchemaRegistry, number: int) -> Any:
        answer = registry.schema(number)
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise ValueError(f"schema {number} of {registry!r} is {answer['schemaType']}, not Avro")
        named: dict[str, Any] = {}
        self._parse_references(registry, answer, named, frozenset())
        writer = self._fastavro.parse(json.loads(answer["schema"]), named)
        if self._reader is not None:
            writer = self._fastavro.parse(with_logical_types_of(self._reader, writer), {})
        self._writers[number] = writer
        return writer

    def _parse_references(
        self, registry: SchemaRegistry, answer: dict[str, Any], named: dict[str, Any], above: frozenset[str]
    ) -> None:
        for reference in answer.get("references") or ():
            name = reference["name"]
            if name in named:
                continue
            if name in above:
                raise ValueError(f"schemas of {registry!r} refer to each other: {', '.join(sorted(above))}")
            referred = registry.version(reference["subject"], reference["version"])
            self._parse_references(registry, referred, named, above | {name})
            self._fastavro.parse(json.loads(referred["schema"]), named)


class AvroEncoder(Encoder[Any]):
    """Encode Avro records. A value that a reader would get as another one is refused.

    Such are a value of another type than its field, such as 1.5 for an int; a field that the schema lacks; digits of a
    time or number beyond those of its type; a time without a zone for a timestamp, and one with a zone for a local
    timestamp; and a dict that fits several records of a union, unless its item ``"-type"`` names one.

    Args:
        schema: the schema of the records.
        registry: the schema registry whose frame precedes each record; if None, records have no frame.
        subject: the registry's name for the schema, such as ``"orders-value"``.
        register: whether to add a new schema to the subject. If False, the subject must have it.

    Raises:
        GraphError: if the schema is invalid, or there is a registry without a subject.
        MissingDependency: if fastavro is not installed.
    """

    def __init__(
        self,
        schema: AvroSchema,
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        register: bool = True,
    ) -> None:
        check_subject("AvroEncoder", registry, subject)
        check_flag("AvroEncoder", "register", register)
        self._fastavro = _Fastavro()
        self._schema, self._text = _parsed(self._fastavro, schema, "AvroEncoder")
        self._named = self._schema.get("__named_schemas", {}) if isinstance(self._schema, dict) else {}
        self._is_ambiguous = ambiguous_unions(self._schema, self._named)
        self._registry, self._subject, self._register = registry, subject, register
        self._frame: bytes | None = b"" if registry is None else None

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            RegistryUnavailable: if the registry does not answer.
            ValueError: if the value does not fit the schema, or the registry lacks the schema and `register` is False.
        """
        self._fastavro.check(value, self._schema)
        if self._is_ambiguous:
            check_unambiguous(value, self._schema, self._named, self._fastavro.fits)
        stream = BytesIO()
        stream.write(self._first() if self._frame is None else self._frame)
        start = stream.tell()
        try:
            self._fastavro.write(stream, self._schema, value)
            stream.seek(start)
            read = self._fastavro.read(stream, self._schema, None)
        except _OF_FASTAVRO as error:
            raise _unfit(value, error) from error
        if read is not value and not _is_plainly(value, read) and (fault := difference(value, read)) is not None:
            raise ValueError(f"{fault}; {_CURE}")
        return stream.getvalue()

    def _first(self) -> bytes:
        assert self._registry is not None  # noqa: S101 - narrows the type
        assert self._subject is not None  # noqa: S101 - narrows the type
        ask = self._registry.register if self._register else self._registry.look_up
        self._frame = frame(ask(self._subject, self._text))
        return self._frame


class _Fastavro:
    """The functions of fastavro that the codecs use; picklable."""

    def __init__(self) -> None:
        module = _fastavro()
        self.read, self.write = module.schemaless_reader, module.schemaless_writer
        self._module, self._validate = module, module.validation.validate
        self.logical_readers = module.read.LOGICAL_READERS

    def check(self, value: Any, schema: Any) -> None:
        """Raise an error if a value does not fit the schema; fastavro would write some such values as others."""
        try:
            self._validate(value, schema)
        except self._module.validation.ValidationError as error:
            raise ValueError("; ".join(str(it) for it in error.errors[:_SHOWN])) from None
        except _OF_FASTAVRO as error:
            raise _unfit(value, error) from error

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether a value has no field that the schema lacks, and lacks none without a default."""
        try:
            self.write(BytesIO(), schema, value, strict_allow_default=True)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return False
        return bool(self._validate(value, schema, raise_errors=False))

    def parse(self, schema: Any, named: dict[str, Any]) -> Any:
        return self._module.parse_schema(schema, named_schemas=named)

    def __reduce__(self) -> tuple[type[_Fastavro], tuple[()]]:
        return _Fastavro, ()


def _unfit(value: object, error: Exception) -> ValueError:
    return ValueError(f"{short_repr(value)} does not fit the schema ({error}); {_CURE}")


def _is_plainly(value: Any, read: Any) -> bool:
    """Whether a value is read as it is; False if it must be compared in detail."""
    kinds = set(map(type, value.values())) if type(value) is dict else {type(value)}
    return kinds <= _PLAIN and bool(value == read)


def _fastavro() -> ModuleType:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise MissingDependency("Avro needs fastavro; pip install 'malflow[avro]'") from missing
    return fastavro


def _parsed(fastavro: _Fastavro, schema: AvroSchema, asked_by: str) -> tuple[Any, str]:
    """Return a schema in fastavro's form, and its text."""
    try:
        plain = schema
        if isinstance(plain, Path):
            plain = plain.read_text(encoding="utf-8")
        if isinstance(plain, str):
            plain = json.loads(plain) if plain.lstrip()[:1] in ("{", "[", '"') else plain
        return fastavro.parse(plain, {}), json.dumps(plain)
    except (OSError, ValueError, TypeError, KeyError, LookupError) as error:
        raise _unreadable(asked_by, "cannot read the schema", schema, error) from error
    except Exception as error:
        raise _unreadable(asked_by, "needs a valid schema", schema, error) from error


def _unreadable(asked_by: str, problem: str, schema: object, error: Exception) -> GraphError:
    cure = "pass the parsed JSON of an Avro schema, its text, or the Path of an .avsc file"
    return GraphError(f"{asked_by} {problem}; got {short_repr(schema)}: {error_line(error)}; {cure}")
