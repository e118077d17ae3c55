"""The runtime on Spark."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Unpack, cast

from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.errors import GraphError
from malflow.runtime.base import Runtime
from malflow.runtime.options import NOTHING, RuntimeBuilder, lists_options, options_of
from malflow.runtime.process_state import BROKEN_PIPE, signals_stop
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import RestartPolicy
from malflow.runtime.spark.changelog.changelog import ScratchFolder
from malflow.runtime.spark.changelog.leftovers import OF_SCRATCH, run_name, temporary_folder
from malflow.runtime.spark.handle import SparkHandle
from malflow.runtime.spark.session.session import (
    check_session,
    check_spark,
    is_local,
    java_loss_named,
    leave_session,
    make_session,
    share_interpreter,
    task_attempts,
)
from malflow.runtime.spark.settings import Settings, SparkArguments, SparkOptions
from malflow.runtime.spark.streaming_query import check_name
from malflow.runtime.transport.program_pickle import ON_SPARK, check_sources
from malflow.runtime.transport.script_classes import pickled_classes
from malflow.runtime.transport.sink_proxies import check_sinks
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkHandle", "SparkRuntime", "SparkRuntimeBuilder"]


class SparkRuntime(Runtime):
    """Run a dataflow in Spark: one Structured Streaming query, the workers in its Python processes.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it receives; called once per execution, in
            this process.
        persistence: where snapshots are saved, such as a `malflow.snapshot.FsspecBackend` that all processes can reach.
        snapshots: the interval between snapshots. With None, one is taken only at the end of the run and on request.
        parallelism: the number of logical workers, each a Spark partition; None for one per core.
        spark: the session. None uses the one of this process, from any thread. If there is none, it creates one for
            this machine; runs that start meanwhile use it too, and the last of them stops it.
        conf: settings of the session that is created, such as ``{"spark.executor.memory": "4g"}``; an error if there is
            a session with others.
        trigger: the minimum time from one tick to the next, except for the first few ticks (they measure how many
            records fit). Half of a longer trigger is used for polling, for higher throughput at a higher latency.
            Spark's processes stay alive during any pause.
        latency: how long a tick should take at most, and so how long a record waits: ticks have fewer records. Spark
            itself needs some 0.1 seconds for a tick with two stages; a shorter latency has no effect. With None, ticks
            take about 1.5 seconds while there are records, for throughput.
        max_records_per_tick: the maximum number of records that a tick polls. With None, a tick polls for half a
            second, or half of the trigger if that is longer, while there are records; fewer if slow functions or sinks
            make the whole tick longer than about twice that.
        scratch: a folder for the changelog that all processes can reach; on one machine, by default, a temporary one.
            A run removes its own files at the end, and the leftovers of killed runs: at once if their process is known
            to have ended (this requires Linux and the same machine), otherwise once a run of the same job has seen no
            change in them for an hour.
        scratch_options: fsspec's options to open that folder, such as credentials.
        restart: the limits of restarts after a failure of Spark.
        name: the name of the query; by default the job's, with a suffix if a query already has it.
        restore, recovery, renamed, allow_dropped_state: as in `malflow.SingleThreadRuntime`.
        debug: as in `malflow.SingleThreadRuntime`; the changelog is checked in each tick, since processes rebuild
            workers from it. A value that changes after it was sent to another process is not an error: the other
            process does not see the change.
        listeners: as in `malflow.SingleThreadRuntime`; they are called in this process.
        sinks, at_end, move_parts, part_assignment, pinned: as in `malflow.SingleThreadRuntime`.

    Raises:
        GraphError: if an argument is not valid.
    """

    _options: SparkOptions

    _kind = "spark"

    @lists_options(SparkOptions)
    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = NOTHING,
        snapshots: Duration | None = None,
        parallelism: int | None = None,
        **options: Unpack[SparkArguments],
    ) -> None:
        first = {"persistence": persistence, "snapshots": snapshots, "parallelism": parallelism}
        super().__init__(build_dataflow, options_of(self, SparkOptions, **first, **options))

    @classmethod
    def builder(cls) -> SparkRuntimeBuilder:
        """Return a builder, as in Malstrom."""
        return SparkRuntimeBuilder()

    def start(self) -> SparkHandle:
        """Build the dataflow and start it in its own thread, as on one thread; see `SparkHandle`.

        Raises:
            MalflowError: any error that `execute` raises before anything has run.
        """
        return cast("SparkHandle", super().start())

    def _execute(self) -> None:
        with ExitStack() as stack:
            requests = self._held(stack)
            program, session, ours = self._prepared()  # before the signal handlers: PySpark sets its own for SIGINT
            with signals_stop(requests.stop, lambda: requests.stopping):
                handle = self._started(program, session, requests, stack, ours=ours)
                handle.await_termination()
        if handle.reader_is_gone:
            raise SystemExit(BROKEN_PIPE)

    def _start(self) -> SparkHandle:
        with ExitStack() as stack:
            requests = self._held(stack)
            program, session, ours = self._prepared()
            return self._started(program, session, requests, stack, ours=ours)

    def _prepared(self) -> tuple[Program, SparkSession, bool]:
        """Build the dataflow; return it with a session, and whether to stop the session at the end."""
        check_spark()
        program = self._built()
        check_sources(program, ON_SPARK)
        check_sinks(program)
        self._options.check_places()
        session = self._options.spark
        return program, *((session, False) if session is not None else make_session(self._options.conf))

    def _started(
        self, program: Program, session: SparkSession, requests: RunRequests, held: ExitStack, *, ours: bool
    ) -> SparkHandle:
        try:
            with java_loss_named(session, ours=ours):
                check_session(session)
                if self._options.name is not None:
                    check_name(session, self._options.name)
                share_interpreter(session)
                parallelism = self._options.parallelism or session.sparkContext.defaultParallelism
                settings = self._settings(session)
            self._slot.last = handle = SparkHandle(session, program, parallelism, settings, requests, ours=ours)
            handle.begin(held)
        except BaseException:
            if ours:
                leave_session()
            raise
        return handle

    def _settings(self, session: SparkSession) -> Settings:
        options = self._options
        if options.scratch is None and not is_local(session):
            raise GraphError(
                f"on a cluster ({session.sparkContext.master}) scratch= must be a folder that all machines can reach, "
                "such as s3://bucket/scratch"
            )
        run, key, classes = run_name(), secrets.token_bytes(32), pickled_classes()
        folder = options.scratch or temporary_folder(OF_SCRATCH)
        place = ScratchFolder(folder, options.scratch_options or {}, run, key, classes)
        return Settings(options, task_attempts(session), place)


class SparkRuntimeBuilder(RuntimeBuilder):
    """Configure a `SparkRuntime` step by step."""

    def spark(self, session: SparkSession) -> SparkRuntimeBuilder:
        """Set the Spark session."""
        return self._with("spark", session)

    def conf(self, conf: Mapping[str, str]) -> SparkRuntimeBuilder:
        """Set settings of the session that is created."""
        return self._with("conf", conf)

    def trigger(self, interval: Duration) -> SparkRuntimeBuilder:
        """Set the minimum time from one tick to the next."""
        return self._with("trigger", interval)

    def latency(self, most: Duration) -> SparkRuntimeBuilder:
        """Set how long a tick should take at most."""
        return self._with("latency", most)

    def max_records_per_tick(self, records: int) -> SparkRuntimeBuilder:
        """Set the maximum number of records that a tick polls."""
        return self._with("max_records_per_tick", records)

    def scratch(self, url: str) -> SparkRuntimeBuilder:
        """Set the folder for the changelog."""
        return self._with("scratch", url)

    def scratch_options(self, options: Mapping[str, Any]) -> SparkRuntimeBuilder:
        """Set fsspec's options to open that folder."""
        return self._with("scratch_options", options)

    def restart(self, policy: RestartPolicy) -> SparkRuntimeBuilder:
        """Set the limits of restarts after a failure of Spark."""
        return self._with("restart", policy)

    def name(self, name: str) -> SparkRuntimeBuilder:
        """Set the name of the query."""
        return self._with("name", name)

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SparkRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return SparkRuntime(build_dataflow, **self._options)
