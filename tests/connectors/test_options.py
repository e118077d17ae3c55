"""Every wrong option of every connector is a `GraphError` at its constructor, which names the option and its value."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from google.protobuf.wrappers_pb2 import StringValue

import malflow.connectors
import malflow.sinks
import malflow.sources
from malflow.connectors.codecs import (
    AvroDecoder,
    AvroEncoder,
    BytesDecoder,
    BytesEncoder,
    Decoder,
    Encoder,
    JsonColumns,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
    SchemaRegistry,
    TextDecoder,
    TextEncoder,
)
from malflow.connectors.delta import DeltaSink
from malflow.connectors.files.csv_sink import CsvSink
from malflow.connectors.files.csv_source import CsvSource
from malflow.connectors.files.json_source import JsonLinesSource, TextFileSource
from malflow.connectors.files.sinks import JsonLinesSink, TextFileSink
from malflow.connectors.http import HttpLookup, HttpSink, WebhookSource
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.parquet import ArrowSource, ParquetSink, ParquetSource
from malflow.connectors.postgres import PostgresChanges, PostgresLookup, PostgresSink, PostgresSource
from malflow.connectors.redis import RedisLookup, RedisSink, RedisStreamSource
from malflow.connectors.sql import SqlLookup, SqlSink
from malflow.errors import GraphError
from malflow.lookups import LookupTable
from malflow.sinks import StatefulSinkImpl, StatelessSinkImpl, StdOutSink, VecSink
from malflow.sources import (
    CronSource,
    PeriodicSource,
    SingleIteratorSource,
    StartSource,
    StatefulSourceImpl,
    StatelessSourceImpl,
)
from malflow.words import short_repr

_NAN, _INFINITE = float("nan"), float("inf")
_NAIVE = datetime(2026, 1, 1)


class Kind(NamedTuple):
    """A kind of options: what none of them takes; None is added where it isn't allowed.

    Attributes:
        wrong: the values.
        is_secret: whether a message must say the type of the value alone.
    """

    wrong: tuple[Any, ...]
    is_secret: bool = False

    def required(self) -> Kind:
        return self._replace(wrong=(*self.wrong, None))


async def _deferred(it: Any) -> Any:
    return it


DURATION_OR_NONE = Kind((-5, "5 parsecs", "1:30", "-1s", True, _NAN, _INFINITE, 10**400, [1], timedelta(seconds=-1)))
DURATION = DURATION_OR_NONE.required()
PERIOD_OR_NONE = Kind((*DURATION_OR_NONE.wrong, timedelta(0), 0, "0s"))
PERIOD = PERIOD_OR_NONE.required()
SECONDS = Kind((*PERIOD_OR_NONE.wrong, "10000d")).required()
RETRIES = Kind((-1, 1.5, _NAN, "5", True, [1])).required()
COUNT = Kind((*RETRIES.wrong, 0))
PORT = Kind((*RETRIES.wrong, 65536))
FLAG_OR_NONE = Kind((0, 1, "yes", [True], _NAN))
FLAG = FLAG_OR_NONE.required()
CHOICE_OR_NONE = Kind(("unknown", 5, True, _NAN, ["fail"], {}))
CHOICE = CHOICE_OR_NONE.required()
CHOICE_OR_FUNCTION = Kind(("unknown", 5, True, ["json"])).required()
CODEC = Kind(("unknown", 5, True, ["json"])).required()
CODEC_OR_NONE = Kind(CODEC.wrong[:-1])
FUNCTION_OR_NONE = Kind((5, "unknown", True, [len]))
FUNCTION = FUNCTION_OR_NONE.required()
FIELD_OR_FUNCTION_OR_NONE = Kind((5, True, ["a"], _NAN))
FIELD_OR_FUNCTION = FIELD_OR_FUNCTION_OR_NONE.required()
TEXT_OR_NONE = Kind((5, True, b"a", ["a"], _NAN))
NAME_OR_NONE = Kind(("", *TEXT_OR_NONE.wrong))
NAME = NAME_OR_NONE.required()
NAMES_OR_NONE = Kind(("id", 5, True, _NAN, [5], [""], ["a", "a"], {"a": 1}))
NAMES = NAMES_OR_NONE.required()
NAME_OR_NAMES = Kind((5, True, [5], [""], ["a", "a"], [])).required()
NAME_OR_FUNCTION = Kind(("", 5, True, ["a"])).required()
PATH = Kind((5, True, "", [5])).required()
START = Kind(("unknown", 5, True, ["latest"], _NAIVE)).required()
TIME_OR_NONE = Kind(("2026", 5, True, _NAIVE))
SECRETS_OR_NONE = Kind((5, True, "hush", ["hush"], {5: "hush"}), is_secret=True)
SECRET_URL = Kind((5, True, ["hush"]), is_secret=True).required()
SECRET_TEXT_OR_NONE = Kind((5, True, ["hush"]), is_secret=True)
ENCODING = Kind((5, "unknown", "hex", ["utf-8"])).required()
AVRO_SCHEMA = Kind((5, "unknown", True, ["unknown"], {"type": "unknown"}))
REGISTRY_OR_NONE = Kind((5, True, "http://anna:hush@localhost:8081"), is_secret=True)
MESSAGE = Kind((5, "StringValue", True, int)).required()
SCHEMA_OR_NONE = Kind((5, "n: int", {"n": int}))
TYPES_OR_NONE = Kind((5, "int", [int]))
PARTITIONS_OR_NONE = Kind((5, "day", ["day"], {}, {"": str}, {5: str}))

_FILE_SOURCE = {
    "path": PATH,
    "encoding": Kind((5, "unknown", ["utf-8"])).required(),
    "on_error": CHOICE_OR_FUNCTION,
    "on_replaced": CHOICE,
    "on_renamed": CHOICE,
    "storage_options": SECRETS_OR_NONE,
    "in_order": FLAG,
    "discover_every": PERIOD_OR_NONE,
    "partitions": PARTITIONS_OR_NONE,
}
_LINE_SINK = {
    "path": PATH,
    "append": FLAG,
    "formatter": FUNCTION_OR_NONE,
    "suffix": Kind((5, "gz", ".", ".a/b", True, [".gz"])),
    "delivery": CHOICE_OR_NONE,
    "storage_options": SECRETS_OR_NONE,
    "retry_for": DURATION_OR_NONE,
    "on_data_loss": CHOICE_OR_NONE,
    "on_workers": FLAG_OR_NONE,
}
_ROWS = {
    "columns": NAMES_OR_NONE,
    "timestamp": FIELD_OR_FUNCTION_OR_NONE,
    "row": FIELD_OR_FUNCTION,
    "nanoseconds": CHOICE,
}
_TABLE_SINK = {
    "table": NAME,
    "formatter": FUNCTION_OR_NONE,
    "key": NAMES_OR_NONE,
    "columns": NAMES_OR_NONE,
    "delivery": CHOICE,
    "ledger": NAME,
    "retry_for": DURATION,
    "on_data_loss": CHOICE,
    "on_workers": FLAG,
}
_LOOKUP = {"table": NAME, "key": NAMES_OR_NONE, "columns": NAMES_OR_NONE, "row": FUNCTION, "retry_for": DURATION}
_DSN = {"dsn": "host=localhost"}
_REDIS = {"url": "redis://localhost:6379/0"}
_SUBJECT = {"registry": SchemaRegistry("http://localhost:8081"), "subject": "orders-value"}
_KAFKA = {"topic": "orders", "servers": "localhost:9092"}

OPTIONS: dict[type, tuple[dict[str, Any], dict[str, Kind]]] = {
    ArrowSource: (
        {"data": pa.table({"n": [1]})},
        {**_ROWS, "data": Kind((5, True)).required(), "filter": Kind((5, "n > 3", True, ["n"]))},
    ),
    AvroDecoder: ({"schema": "int"}, {"schema": AVRO_SCHEMA, "registry": REGISTRY_OR_NONE}),
    AvroEncoder: (
        {"schema": "int", **_SUBJECT},
        {"schema": AVRO_SCHEMA, "registry": REGISTRY_OR_NONE, "subject": NAME, "register": FLAG},
    ),
    BytesDecoder: ({}, {}),
    BytesEncoder: ({}, {}),
    CronSource: (
        {"expression": "* * * * *"},
        {
            "expression": Kind(("", 5, "unknown", ["*"])).required(),
            "zone": Kind((5, "unknown", ["UTC"])).required(),
            "until": TIME_OR_NONE,
            "missed": CHOICE,
        },
    ),
    CsvSink: (
        {"path": "out/"},
        {
            **_LINE_SINK,
            "fields": NAMES_OR_NONE,
            "header": FLAG,
            "delimiter": Kind(("", 5, "ab", "\n", [","])).required(),
            "quotechar": Kind((5, "ab", ["'"])),
        },
    ),
    CsvSource: (
        {"path": "towns.csv"},
        {
            **_FILE_SOURCE,
            "header": FLAG_OR_NONE,
            "fields": NAMES_OR_NONE,
            "types": TYPES_OR_NONE,
            "schema": SCHEMA_OR_NONE,
            "delimiter": Kind(("", 5, "ab", "\n", [","])).required(),
            "quotechar": Kind((5, "ab", ["'"])),
        },
    ),
    DeltaSink: (
        {"table": "orders"},
        {
            "table": Kind(("", 5, ["a"])).required(),
            "schema": SCHEMA_OR_NONE,
            "delivery": CHOICE,
            "formatter": FUNCTION_OR_NONE,
            "settings": SECRETS_OR_NONE,
            "storage_options": SECRETS_OR_NONE,
            "retry_for": DURATION,
            "on_data_loss": CHOICE,
            "on_workers": FLAG,
        },
    ),
    HttpLookup: (
        {"url": "https://example.org/orders"},
        {
            "url": SECRET_URL,
            "decode": CODEC,
            "encode": FUNCTION_OR_NONE,
            "headers": SECRETS_OR_NONE,
            "batch": COUNT,
            "at_once": COUNT,
            "retries": RETRIES,
            "timeout": SECONDS,
            "largest": COUNT,
            "settings": SECRETS_OR_NONE,
        },
    ),
    HttpSink: (
        {"url": "https://example.org/orders"},
        {
            "url": SECRET_URL,
            "batch": COUNT,
            "encode": CHOICE_OR_FUNCTION,
            "headers": SECRETS_OR_NONE,
            "delivery": CHOICE,
            "formatter": FUNCTION_OR_NONE,
            "method": NAME,
            "retries": RETRIES,
            "timeout": SECONDS,
            "settings": SECRETS_OR_NONE,
        },
    ),
    JsonLinesSink: ({"path": "out/"}, _LINE_SINK),
    JsonColumns: ({"schema": pa.schema({"n": pa.int64()})}, {"schema": SCHEMA_OR_NONE.required()}),
    JsonLinesSource: ({"path": "log.jsonl"}, {**_FILE_SOURCE, "types": TYPES_OR_NONE, "schema": SCHEMA_OR_NONE}),
    JsonDecoder: ({}, {}),
    JsonEncoder: ({}, {"default": FUNCTION_OR_NONE}),
    KafkaSink: (
        _KAFKA,
        {
            "topic": NAME_OR_FUNCTION,
            "servers": Kind(("", 5, [])).required(),
            "delivery": CHOICE,
            "encode": CODEC,
            "formatter": FUNCTION_OR_NONE,
            "key": FIELD_OR_FUNCTION_OR_NONE,
            "headers": FUNCTION_OR_NONE,
            "on_workers": FLAG,
            "timestamp": FIELD_OR_FUNCTION_OR_NONE,
            "marker_topic": NAME_OR_NONE,
            "on_lost_marker": CHOICE,
            "timeout": PERIOD,
            "settings": SECRETS_OR_NONE,
        },
    ),
    KafkaSource: (
        _KAFKA,
        {
            "topic": NAME_OR_NAMES,
            "servers": Kind(("", 5, [])).required(),
            "start": START,
            "stop": CHOICE_OR_NONE,
            "decode": CODEC,
            "decode_key": CODEC,
            "emit": CHOICE,
            "timestamps": CHOICE,
            "on_error": CHOICE_OR_FUNCTION,
            "on_data_loss": CHOICE,
            "discover_every": PERIOD_OR_NONE,
            "group": NAME_OR_NONE,
            "settings": SECRETS_OR_NONE,
        },
    ),
    ParquetSink: (
        {"folder": "orders"},
        {
            "folder": Kind(("", 5, ["a"])).required(),
            "schema": SCHEMA_OR_NONE,
            "delivery": CHOICE,
            "formatter": FUNCTION_OR_NONE,
            "row_group_rows": COUNT,
            "settings": SECRETS_OR_NONE,
            "storage_options": SECRETS_OR_NONE,
            "retry_for": DURATION,
            "on_data_loss": CHOICE,
            "on_workers": FLAG,
        },
    ),
    ParquetSource: (
        {"path": "orders/*.parquet"},
        {
            **_ROWS,
            "path": PATH,
            "filter": Kind((5, "n > 3")),
            "on_replaced": CHOICE,
            "on_renamed": CHOICE,
            "storage_options": SECRETS_OR_NONE,
            "in_order": FLAG,
            "discover_every": PERIOD_OR_NONE,
            "partitions": PARTITIONS_OR_NONE,
        },
    ),
    PeriodicSource: (
        {"every": timedelta(seconds=1)},
        {
            "every": PERIOD,
            "offset": Kind((-5, "soon", _NAN)).required(),
            "until": TIME_OR_NONE,
            "missed": CHOICE,
        },
    ),
    PostgresChanges: (
        {**_DSN, "tables": ["orders"], "slot": "s"},
        {
            "dsn": SECRET_URL,
            "tables": NAMES_OR_NONE,
            "slot": Kind((*NAME.wrong, "With Space")),
            "publication": NAME_OR_NONE,
            "copy": FLAG,
            "text": NAMES,
            "until": CHOICE_OR_NONE,
            "replace_slot": FLAG,
            "page_rows": COUNT,
            "require_old": FLAG_OR_NONE,
            "retry_for": DURATION,
        },
    ),
    PostgresLookup: ({**_DSN, "table": "orders"}, {**_LOOKUP, "dsn": SECRET_URL, "text": NAMES}),
    PostgresSink: (
        {**_DSN, "table": "orders"},
        {**_TABLE_SINK, "dsn": SECRET_URL, "text": NAMES, "round": FLAG},
    ),
    PostgresSource: (
        {**_DSN, "table": "orders"},
        {
            "dsn": SECRET_URL,
            "table": NAME_OR_NONE,
            "query": NAME_OR_NONE,
            "key": NAMES_OR_NONE,
            "columns": NAMES_OR_NONE,
            "row": FUNCTION,
            "timestamp": NAME_OR_NONE,
            "text": NAMES,
            "page_rows": COUNT,
            "poll_every": PERIOD_OR_NONE,
            "retry_for": DURATION,
        },
    ),
    ProtobufDecoder: ({"message": StringValue}, {"message": MESSAGE, "framed": FLAG}),
    ProtobufEncoder: (
        {"message": StringValue, **_SUBJECT},
        {"message": MESSAGE, "registry": REGISTRY_OR_NONE, "subject": NAME},
    ),
    RedisLookup: (
        {**_REDIS, "table": "totals"},
        {
            "url": SECRET_URL,
            "table": NAME_OR_NONE,
            "prefix": TEXT_OR_NONE,
            "decode": CODEC,
            "encode_key": CODEC_OR_NONE,
            "retry_for": DURATION,
            "settings": SECRETS_OR_NONE,
        },
    ),
    RedisSink: (
        {**_REDIS, "table": "totals"},
        {
            "url": SECRET_URL,
            "table": NAME_OR_NONE,
            "prefix": TEXT_OR_NONE,
            "formatter": FUNCTION_OR_NONE,
            "encode": CODEC_OR_NONE,
            "encode_key": CODEC_OR_NONE,
            "delete": FUNCTION_OR_NONE,
            "delivery": CHOICE,
            "on_data_loss": CHOICE,
            "retry_for": DURATION,
            "on_workers": FLAG,
            "rows_per_call": Kind((*COUNT.wrong, 10**9)),
            "settings": SECRETS_OR_NONE,
        },
    ),
    RedisStreamSource: (
        {**_REDIS, "streams": "orders"},
        {
            "url": SECRET_URL,
            "streams": Kind(("", *NAME_OR_NAMES.wrong)),
            "field": TEXT_OR_NONE,
            "decode": CODEC,
            "start": START,
            "stop": CHOICE_OR_NONE,
            "timestamps": CHOICE,
            "on_error": CHOICE_OR_FUNCTION,
            "on_data_loss": CHOICE,
            "retry_for": DURATION,
            "settings": SECRETS_OR_NONE,
        },
    ),
    SchemaRegistry: (
        {"url": "http://localhost:8081"},
        {
            "url": SECRET_URL,
            "username": SECRET_TEXT_OR_NONE,
            "password": SECRET_TEXT_OR_NONE,
            "timeout": PERIOD,
            "retry_for": DURATION,
            "headers": SECRETS_OR_NONE,
        },
    ),
    SingleIteratorSource: ({"iterable": []}, {"iterable": Kind((5, True)).required()}),
    SqlLookup: (
        {"url": "sqlite://", "table": "orders"},
        {**_LOOKUP, "url": SECRET_URL, "settings": SECRETS_OR_NONE},
    ),
    SqlSink: (
        {"url": "sqlite://", "table": "orders"},
        {**_TABLE_SINK, "url": SECRET_URL, "settings": SECRETS_OR_NONE, "round": FLAG},
    ),
    StartSource: ({}, {}),
    StdOutSink: ({}, {"formatter": FUNCTION_OR_NONE}),
    TextDecoder: ({}, {"encoding": ENCODING}),
    TextEncoder: ({}, {"encoding": ENCODING}),
    TextFileSink: ({"path": "out/"}, {**_LINE_SINK, "encoding": Kind((5, "unknown", ["utf-8"])).required()}),
    TextFileSource: ({"path": "poem.txt"}, _FILE_SOURCE),
    VecSink: ({}, {}),
    WebhookSource: (
        {},
        {
            "host": NAME,
            "port": PORT,
            "path": Kind(("", "orders", 5, ["/"])).required(),
            "token": Kind((5, True, ["hush"], ""), is_secret=True),
            "decode": CHOICE_OR_FUNCTION,
            "max_queue": COUNT,
            "max_queue_bytes": COUNT,
            "max_body": COUNT,
            "on_full": CHOICE,
            "acknowledge": CHOICE,
            "timeout": SECONDS,
            "max_connections": COUNT,
        },
    ),
}
"""Each connector with arguments that it takes, and the kind of each of its options."""

_FUNCTIONS = (FUNCTION, FUNCTION_OR_NONE, CHOICE_OR_FUNCTION, CODEC, CODEC_OR_NONE, NAME_OR_FUNCTION, FIELD_OR_FUNCTION)
_CONTRACTS_ROOMS = (
    "malflow.sources.contract",
    *("malflow.sinks.contract", "malflow.sinks.distributed", "malflow.sinks.transactional"),
    "malflow.connectors.segments",
    *("malflow.connectors.files.staged_lines", "malflow.connectors.staging.sink"),
)
_MADE_BY_CONNECTORS = frozenset(
    {"Attention", "Database", "PlainKeyEncoder", "PostgresServer", "RedisServer", "StagedLines"}
)
_CONTRACTS = (
    Decoder,
    Encoder,
    LookupTable,
    StatefulSourceImpl,
    StatelessSourceImpl,
    StatefulSinkImpl,
    StatelessSinkImpl,
)


def _public_classes() -> Iterator[type]:
    for room in (malflow.connectors, malflow.sources, malflow.sinks):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            here = importlib.import_module(module.name)
            for name in getattr(here, "__all__", ()):
                it = getattr(here, name)
                if inspect.isclass(it) and not inspect.isabstract(it) and it.__module__ not in _CONTRACTS_ROOMS:
                    yield it


def _connectors() -> set[type]:
    """Return the classes that users make with options: sources, sinks, codecs, and all that are told how to retry."""
    found = {it for it in _public_classes() if it.__name__ not in _MADE_BY_CONNECTORS}
    return {it for it in found if issubclass(it, _CONTRACTS) or _is_told_how_to_retry(it)}


def _is_told_how_to_retry(it: type) -> bool:
    return "retry_for" in getattr(it.__init__, "__annotations__", ())  # type: ignore[misc] # only read


def _options(connector: type) -> dict[str, inspect.Parameter]:
    return {name: it for name, it in inspect.signature(connector).parameters.items() if name != "self"}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_table_has_every_connector_and_every_option() -> None:
    assert set(OPTIONS) == _connectors()
    for connector, (_, kinds) in OPTIONS.items():
        assert set(kinds) == set(_options(connector)), connector.__name__


@pytest.mark.parametrize("connector", OPTIONS, ids=lambda it: it.__name__)
def test_the_defaults_of_a_connector_are_accepted(connector: Callable[..., Any]) -> None:
    given, _ = OPTIONS[connector]  # type: ignore[index] # a class
    defaults = {name: it.default for name, it in _options(connector).items() if it.default is not it.empty}  # type: ignore[arg-type] # a class
    assert connector(**{**defaults, **given}) is not None


@pytest.mark.slow
@pytest.mark.parametrize("connector", OPTIONS, ids=lambda it: it.__name__)
def test_wrong_options_are_refused_by_name_and_value(connector: type) -> None:
    given, kinds = OPTIONS[connector]
    wrong = [(option, kind, value) for option, kind in kinds.items() for value in kind.wrong]
    missed = [
        f"{option}={value!r:.60}: {fault}"
        for option, kind, value in wrong
        if (fault := _fault_of_refusal(connector, {**given, option: value}, option, kind.is_secret))
    ]
    assert not missed, "\n".join(missed)


def _fault_of_refusal(connector: type, given: dict[str, Any], option: str, is_secret: bool) -> str | None:
    """Return the fault of the error that a wrong option raises, if there is one."""
    try:
        connector(**given)
    except GraphError as error:
        said, value = str(error), given[option]
    except Exception as error:  # noqa: BLE001 - each is a miss
        return f"raises {error!r}"
    else:
        return "is accepted"
    if option not in said or connector.__name__ not in said:
        return f"does not name option and connector: {said}"
    parts = value if isinstance(value, list) else ()
    if is_secret:
        is_told = "hush" not in said and (type(value).__name__ in said or not value or isinstance(value, dict))
    else:
        is_told = any(shown in said for it in (value, *parts) for shown in (repr(it), short_repr(it)))
    return None if is_told else f"does not say the value as it should: {said}"
