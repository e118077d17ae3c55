"""The sections of a configuration: their settings, with types and defaults."""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from malflow.checks import check_number, check_whole_number, checked_duration
from malflow.config.entries import Path
from malflow.config.secrets import shown
from malflow.connectors.option_texts import ByteCount, kinds_of
from malflow.connectors.web_server.addresses import place_of
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "WHOLE",
    "BudgetSettings",
    "Entries",
    "ErrorSettings",
    "Leaf",
    "LogSettings",
    "MetricsSettings",
    "OperatorSettings",
    "PersistenceSettings",
    "ProcessSettings",
    "RestartSettings",
    "RetrySettings",
    "RunSettings",
    "ServeSettings",
    "Shape",
    "SparkSettings",
    "Table",
    "TableShape",
    "Tables",
    "every_leaf",
    "shape_at",
    "shape_of",
]

_KEPT = ByteCount(64 * 2**20)

_SETTING = "the setting"
"""The owner of a value, for errors; the table stands before them."""

Policy = Literal["fail", "skip", "dead_letter", "park"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Table:
    """A table; its repr hides secrets."""

    def __repr__(self) -> str:
        texts = (f"{it.name}={shown((it.name,), getattr(self, it.name))}" for it in fields(self))
        return f"{type(self).__name__}({', '.join(texts)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class RunSettings(Table):
    """Options of every runtime; those that have no line here are documented at `malflow.SingleThreadRuntime`.

    Attributes:
        on: the runtime: ``"single"`` thread, ``"processes"`` or ``"spark"``; without it, that of the code.
        job: the name of the job, which is the folder of its snapshots.
        persistence: the URL or path below which snapshots are stored; a persistence of the code is replaced.
        parallelism: the number of logical workers; without it, that of the runtime.
        renamed: the new names of stateful operators, by their old names; of one start, so not in a file.
        allow_dropped_state: stateful operators whose state may be dropped; of one start, so not in a file.
    """

    on: Literal["single", "processes", "spark"] | None = None
    job: str = "default"
    persistence: str | None = None
    snapshots: timedelta | None = None
    parallelism: int | None = None
    restore: Literal["latest"] | int | datetime | None = "latest"
    recovery: Literal["strict", "previous"] = "strict"
    renamed: Mapping[str, str] | None = None
    allow_dropped_state: Sequence[str] = ()
    debug: bool = False
    sinks: Literal["exactly_once", "accept_duplicates"] = "exactly_once"
    at_end: Literal["finish", "keep"] | None = None
    part_assignment: Literal["auto", "dynamic", "static"] = "auto"
    move_parts: bool = True


@dataclass(frozen=True, kw_only=True, repr=False)
class PersistenceSettings(Table):
    """Options of the store of snapshots, documented at `malflow.snapshot.FsspecBackend`.

    Attributes:
        compression: ``"lz4"``, ``"zstd"``, ``"none"``, or ``"module:name"`` of a `malflow.snapshot.Compression`.
        codec: how states are serialised: ``"pickle"`` or ``"msgpack"``.
    """

    storage_options: Mapping[str, Any] | None = None
    retain: int | timedelta = 10
    compression: str = "lz4"
    codec: str = "pickle"
    signing_key: str | Sequence[str] | None = None
    allow_unsigned_pickle: bool = False
    allow_unsafe_single_writer: bool = False
    growth: float = 1.0
    retry_for: timedelta = timedelta(seconds=30)
    tolerate_failures_for: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, repr=False)
class RestartSettings(Table):
    """Limits of restarts, documented at `malflow.RestartPolicy`."""

    attempts: int = 3
    backoff: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        """Check the limits."""
        check_whole_number(_SETTING, "attempts", self.attempts, least=0)
        checked_duration(_SETTING, "backoff", self.backoff, may_be_zero=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class ProcessSettings(Table):
    """Options of a run in processes, documented at `malflow.MultiProcessRuntime`."""

    processes: int | None = None
    start_method: Literal["spawn", "forkserver"] = "spawn"
    restart: RestartSettings | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class SparkSettings(Table):
    """Options of a run on Spark, documented at `malflow.SparkRuntime`."""

    conf: Mapping[str, str] | None = None
    trigger: timedelta = timedelta(0)
    latency: timedelta | None = None
    max_records_per_tick: int | None = None
    scratch: str | None = None
    scratch_options: Mapping[str, Any] | None = None
    restart: RestartSettings | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class ServeSettings(Table):
    """The page of a run.

    Attributes:
        address: the host and port that it listens on; a host other than loopback needs a token.
        control: whether the page may steer the run.
        token: the token that a reader needs, of 16 characters or more; without one, it is generated.
        metrics_token: whether ``/metrics`` needs the token.
        hosts: other names by which the page is reached, such as that of a proxy or a container.
        samples: whether the page may show records.
        redact: the function that hides parts of a record before it is shown, as ``module:function``.
    """

    address: str = "127.0.0.1:8642"
    control: bool = False
    token: str | None = None
    metrics_token: bool = True
    hosts: Sequence[str] = ()
    samples: bool = False
    redact: str | None = None

    def __post_init__(self) -> None:
        """Check the address."""
        place_of(self.address)


@dataclass(frozen=True, kw_only=True, repr=False)
class MetricsSettings(Table):
    """The export of metrics and spans by OTLP; the page serves metrics to Prometheus.

    Attributes:
        otlp: the base URL of a collector, such as ``http://localhost:4318``; without one, nothing is sent.
        headers: the headers of its requests, such as an authorization.
        every: the time between two exports of the metrics.
        traces: whether spans of snapshots, restores, rescales, restarts and slow ticks are sent too.
    """

    otlp: str | None = None
    headers: Mapping[str, str] | None = None
    every: timedelta = timedelta(seconds=15)
    traces: bool = True

    def __post_init__(self) -> None:
        """Check the URL and the time."""
        if self.otlp is not None and not self.otlp.startswith(("http://", "https://")):
            raise GraphError(f"otlp must be a URL such as http://localhost:4318; got {short_repr(self.otlp)}")
        checked_duration(_SETTING, "every", self.every)


@dataclass(frozen=True, kw_only=True, repr=False)
class LogSettings(Table):
    """The log of a command.

    Attributes:
        format: lines of text, or a JSON object each.
        level: the least level that is written.
    """

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetSettings(Table):
    """How many records of an operator may fail before the run ends.

    Attributes:
        share: the share of the operator's records, from 0 to 1.
        window: the time over which they are counted.
        at_least: the number of records below which nothing is decided.
    """

    share: float = 0.01
    window: timedelta = timedelta(minutes=1)
    at_least: int = 100

    def __post_init__(self) -> None:
        """Check the limits."""
        check_number(_SETTING, "share", self.share, least=0, most=1)
        checked_duration(_SETTING, "window", self.window)
        check_whole_number(_SETTING, "at_least", self.at_least)


@dataclass(frozen=True, kw_only=True, repr=False)
class ErrorSettings(Table):
    """Records with which a function of the user fails.

    Attributes:
        default: the policy of operators without one of their own.
        budget: how many may fail before the run ends.
        keep: the number of letters that an operator keeps on a worker.
        keep_bytes: their size.
        full: what follows when there are more: the run ends, or the oldest are dropped.
    """

    default: Policy = "fail"
    budget: BudgetSettings | None = None
    keep: int = 10_000
    keep_bytes: ByteCount = _KEPT
    full: Literal["fail", "drop_oldest"] = "fail"

    def __post_init__(self) -> None:
        """Check the limits."""
        check_whole_number(_SETTING, "keep", self.keep)
        check_whole_number(_SETTING, "keep_bytes", self.keep_bytes)


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrySettings(Table):
    """How often a function is called again.

    Attributes:
        attempts: the number of calls, with the first.
        first: the wait before the second call.
        factor: the growth of the waits.
        longest: the longest wait.
        on: the names of the built-in exceptions after which it is called again.
    """

    attempts: int = 3
    first: timedelta = timedelta(seconds=0.1)
    factor: float = 2.0
    longest: timedelta = timedelta(seconds=5)
    on: Sequence[str] = ("TimeoutError",)

    def __post_init__(self) -> None:
        """Check the waits and the names."""
        check_whole_number(_SETTING, "attempts", self.attempts)
        checked_duration(_SETTING, "first", self.first)
        checked_duration(_SETTING, "longest", self.longest)
        check_number(_SETTING, "factor", self.factor, least=1)
        for name in self.on:
            kind = getattr(builtins, name, None)
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise GraphError(f"on needs names of built-in exceptions, such as TimeoutError; got {short_repr(name)}")


@dataclass(frozen=True, kw_only=True, repr=False)
class OperatorSettings(Table):
    """One operator, by its name in the program.

    Attributes:
        url: the URL of a source or sink that the code makes by `connect`, in place of the code's.
        options: options of its connector, as in a URL; the code's other arguments remain if the connector is the same.
        on_error: the policy for records with which its function fails.
        retry: how often its function is called again.
    """

    url: str | None = None
    options: Mapping[str, Any] | None = None
    on_error: Policy | None = None
    retry: RetrySettings | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Tables(Table):
    """All tables."""

    run: RunSettings = field(default_factory=RunSettings)
    persistence: PersistenceSettings = field(default_factory=PersistenceSettings)
    processes: ProcessSettings = field(default_factory=ProcessSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log: LogSettings = field(default_factory=LogSettings)
    errors: ErrorSettings = field(default_factory=ErrorSettings)
    operators: Mapping[str, OperatorSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value, by its annotation."""

    hint: Any

    @property
    def optional(self) -> bool:
        """Whether it may be none."""
        return get_origin(self.hint) in (Union, types.UnionType) and type(None) in get_args(self.hint)


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table with known settings."""

    table: type[Table]

    @property
    def members(self) -> dict[str, Shape]:
        """The shape of each setting."""
        table: Any = self.table
        return _members(table)


@dataclass(frozen=True, slots=True)
class Entries:
    """A table with any names, and what each of them has; None for any values and tables."""

    inner: Shape | None


Shape: TypeAlias = Leaf | TableShape | Entries


@cache
def _members(table: Any) -> dict[str, Shape]:
    hints = get_type_hints(table)
    return {it.name: shape_of(hints[it.name]) for it in fields(table)}


def shape_of(hint: Any) -> Shape:
    """Return the shape of the values of an annotation."""
    for kind in kinds_of(hint):
        if is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Table):
            return TableShape(kind)
        if get_origin(kind) is Mapping:
            inner = get_args(kind)[1]
            return Entries(None if inner is Any else shape_of(inner))
    return Leaf(hint)


def shape_at(path: Path) -> Shape | None:
    """Return the shape of a setting or table; None if nothing has this name."""
    shape: Shape | None = TableShape(Tables)
    for name in path:
        match shape:
            case TableShape():
                shape = shape.members.get(name)
            case Entries(inner):
                shape = inner
            case _:
                return None
    return shape


def every_leaf(shape: TableShape, path: Path = ()) -> Iterator[tuple[Path, Leaf | Entries]]:
    """Yield every setting with a fixed name, as it stands in the tables."""
    for name, member in shape.members.items():
        if isinstance(member, TableShape):
            yield from every_leaf(member, (*path, name))
        elif not (isinstance(member, Entries) and isinstance(member.inner, TableShape)):
            yield (*path, name), member


WHOLE = TableShape(Tables)
"""The shape of the whole configuration."""
