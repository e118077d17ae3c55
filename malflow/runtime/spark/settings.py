"""The options of a run on Spark, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from malflow.checks import check_mapping, check_whole_number, checked_duration, checked_seconds
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.runtime.options import RunArguments, RunOptions
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.spark.changelog.changelog import ScratchFolder
from malflow.runtime.spark.pacing import PaceOptions
from malflow.runtime.transport.program_pickle import check_store
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import RestoreOptions, job_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Settings", "SparkArguments", "SparkOptions"]

_POLL_SECONDS = 0.5
"""How long a worker may poll. Less: smaller ticks with the same overhead; more: records wait longer."""


@dataclass(frozen=True, kw_only=True)
class SparkOptions(RunOptions):
    """The options of a run on Spark, documented at `malflow.SparkRuntime`.

    Raises:
        GraphError: if an option is not valid.
    """

    spark: SparkSession | None = None
    conf: Mapping[str, str] | None = field(default=None, repr=False)
    trigger: Duration = timedelta(0)
    latency: Duration | None = None
    max_records_per_tick: int | None = None
    scratch: str | None = None
    scratch_options: Mapping[str, Any] | None = field(default=None, repr=False)
    restart: RestartPolicy | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the options, and copy those that the caller might mutate later."""
        super().__post_init__()
        self._check_conf(self.conf)
        object.__setattr__(self, "trigger", checked_duration("SparkRuntime", "trigger", self.trigger, may_be_zero=True))
        if self.latency is not None:
            object.__setattr__(self, "latency", self._checked_latency(self.latency))
        if self.max_records_per_tick is not None:
            check_whole_number("SparkRuntime", "max_records_per_tick", self.max_records_per_tick)
        object.__setattr__(self, "conf", dict(self.conf or {}))
        object.__setattr__(self, "scratch_options", dict(self.scratch_options or {}))

    def _check_conf(self, conf: Any) -> None:
        """Check the settings of a new session. The error shows no values: they may be secrets."""
        if conf is None:
            return
        check_mapping("SparkRuntime", "conf", conf, "Spark's settings")
        for name, value in conf.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise GraphError(f"conf must have texts as names and values; got {type(value).__name__} for {name!r}")
        if conf and self.spark is not None:
            raise GraphError("conf and spark are mutually exclusive: set them where the session is made")

    def _checked_latency(self, latency: Duration) -> timedelta:
        """Return the latency, at least the trigger."""
        most = checked_duration("SparkRuntime", "latency", latency, or_else="None")
        if most.total_seconds() < self.pause:
            raise GraphError(
                f"latency={most!r} is shorter than trigger={self.trigger!r}: records would wait for the next tick "
                "for longer; omit trigger, or make it as short"
            )
        return most

    def check_places(self) -> None:
        """Check that the processes of Spark can reach the folders of the options."""
        persistence, scratch = self.persistence, self.scratch
        if isinstance(persistence, FsspecBackend) and persistence.is_in_memory:
            raise GraphError(f"{persistence!r} is in the memory of one process, but Spark has several; use a folder")
        if isinstance(persistence, FsspecBackend) and persistence.own_store is not None:
            check_store(persistence.own_store)
        if str(scratch).startswith("memory:"):
            raise GraphError(
                f"scratch={scratch!r} is in the memory of one process, but Spark has several; use a folder"
            )

    @property
    def restore_options(self) -> RestoreOptions:
        """The options for restoring state. The state stays in the store."""
        return replace(super().restore_options, in_store=True)

    @property
    def first_workers(self) -> int | None:
        """The number of workers that a run begins with; None if it depends on the session that a start creates."""
        if self.parallelism is None and self.spark is not None:
            return int(self.spark.sparkContext.defaultParallelism)
        return self.parallelism

    @property
    def query_name(self) -> str:
        """The name of the query; unless the user chose it, it has a suffix if another query has the same name."""
        return self.name or job_of(self.persistence, "malflow")

    @property
    def pause(self) -> float:
        """The minimum number of seconds from the start of one tick to the next."""
        return checked_seconds("SparkRuntime", "trigger", self.trigger, may_be_zero=True)

    @property
    def poll_seconds(self) -> float:
        """The number of seconds that a worker may poll in a tick."""
        if self.latency is not None:
            return min(_POLL_SECONDS, checked_seconds("SparkRuntime", "latency", self.latency) / 2)
        return max(_POLL_SECONDS, self.pause / 2)

    @property
    def pace(self) -> PaceOptions:
        """How long ticks may take."""
        latency = None if self.latency is None else checked_seconds("SparkRuntime", "latency", self.latency)
        return PaceOptions(self.pause, latency)


class SparkArguments(RunArguments, total=False):
    """The `SparkOptions` that a runtime takes by keyword only."""

    spark: SparkSession | None
    conf: Mapping[str, str] | None
    trigger: Duration
    latency: Duration | None
    max_records_per_tick: int | None
    scratch: str | None
    scratch_options: Mapping[str, Any] | None
    restart: RestartPolicy | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run on Spark: its options, and facts found or chosen when it starts.

    Attributes:
        options: the options.
        attempts: the number of times that Spark tries a task.
        scratch: the place of the changelog.
    """

    options: SparkOptions
    attempts: int
    scratch: ScratchFolder
