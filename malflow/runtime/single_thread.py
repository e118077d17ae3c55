"""The runtime in one thread of this process; it defines the semantics of every operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from malflow.durations import Duration
from malflow.engine.plan import Program
from malflow.engine.sinks import RunSinks
from malflow.runtime.local import LocalRuntime
from malflow.runtime.options import (
    NOTHING,
    RunArguments,
    RunOptions,
    RuntimeBuilder,
    checked_parallelism,
    lists_options,
    options_of,
)
from malflow.runtime.single_thread_host import SingleThreadHost
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider

__all__ = ["SingleThreadRuntime", "SingleThreadRuntimeBuilder"]


class SingleThreadRuntime(LocalRuntime):
    """Run a dataflow in this process, on the calling thread.

    Args:
        build_dataflow: builds the dataflow with the `StreamProvider` that it receives; called once per execution.
        persistence: where snapshots are saved, such as a `malflow.snapshot.FsspecBackend`.
        snapshots: the interval between snapshots. With None, one is taken only at the end of the run and on request.
        parallelism: the number of logical workers. They share the thread in a fixed order.
        restore: the snapshot to restore: by default ``"latest"``; an id, a datetime with a time zone for the one that
            was the latest at that time, or None to start without state.
        recovery: what to do if that snapshot is damaged: ``"strict"``, the default, raises; ``"previous"`` restores the
            newest intact one; later records are then processed and written again.
        renamed: the new names of stateful operators, by their old names.
        allow_dropped_state: stateful operators that may lose their state if the program no longer has them, or if they
            have other windows, aggregators or conditions.
        debug: whether to make checks that are too expensive for production. They detect values that change after they
            were emitted, key functions that are not deterministic, changes of keys that would lose state on several
            workers, and states that differ from the sum of their snapshots. For tests: records are processed one by
            one.
        listeners: notified of ticks, snapshots and the end of the run: see `malflow.events`.
        sinks: what to do if a transactional sink has committed more transactions than the restored snapshot contains:
            ``"exactly_once"``, the default, raises; ``"accept_duplicates"`` continues, and writes their records again.
        at_end: the effect of the end of the input. ``"finish"`` emits the epoch `MAX`: windows close, timers fire,
            patterns and joins emit their results. ``"keep"`` suspends the run, as a stop does: open windows, timers and
            waiting records stay in the state for the next run. With None, a run with a persistence keeps them, and one
            without finishes.
        part_assignment: when several workers get the parts of a source with many that end, such as files.
            ``"dynamic"`` gives a worker a few of them, and the next one when it has read one, the largest first;
            ``"static"`` gives each worker its share at the start. With ``"auto"``, the default, a source is dynamic
            unless time is generated from its records. Unread parts hold the time back: windows close only when the last
            part is being read.
        move_parts: whether a part of a source may move from a busy worker to an idle one, at most one a minute, and
            never back. Workers of one thread take turns, so there none moves.
        pinned: the names of options that no configuration may change: see `malflow.config`.

    Raises:
        GraphError: if an argument is not valid.
    """

    @lists_options(RunOptions)
    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Persistence = NOTHING,
        snapshots: Duration | None = None,
        parallelism: int = 1,
        **options: Unpack[RunArguments],
    ) -> None:
        first = {"persistence": persistence, "snapshots": snapshots, "parallelism": checked_parallelism(parallelism)}
        super().__init__(build_dataflow, options_of(self, RunOptions, **first, **options))

    @classmethod
    def builder(cls) -> SingleThreadRuntimeBuilder:
        """Return a builder, as in Malstrom."""
        return SingleThreadRuntimeBuilder()

    def _host(self, program: Program, sinks: RunSinks, options: RunOptions) -> SingleThreadHost:
        return SingleThreadHost(
            program,
            sinks,
            parallelism=options.parallelism or 1,
            tracked=self._keeps,
            debug=options.debug,
            taps=self._asked.taps,
        )


class SingleThreadRuntimeBuilder(RuntimeBuilder):
    """Configure a `SingleThreadRuntime` step by step."""

    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> SingleThreadRuntime:
        """Return the configured runtime.

        Raises:
            GraphError: if an option is not valid.
        """
        return SingleThreadRuntime(build_dataflow, **self._options)
