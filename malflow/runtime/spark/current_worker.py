"""The worker of a stage with its state after the previous tick: cached, caught up, or rebuilt from the changelog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from malflow.engine.ticks import PollPacing, first_limit
from malflow.engine.worker import Worker
from malflow.errors import release_all
from malflow.runtime.spark.changelog_entry import NEVER, ChangelogEntry
from malflow.runtime.spark.protocol import RunSpec, TickCommand
from malflow.runtime.spark.worker_cache import LIVE_WORKERS, SHARED, LiveWorker, LoadedProgram, name_of
from malflow.runtime.transport.pickling import dumps_by_value

__all__ = ["CurrentWorker"]


class CurrentWorker:
    """Finds the worker that a tick runs on.

    Args:
        spec: the run.
        loaded: its program, as this process has it.
        stage: the stage of the worker.
        number: the number of the worker.
        command: the tick.
    """

    def __init__(self, spec: RunSpec, loaded: LoadedProgram, stage: int, number: int, command: TickCommand) -> None:
        self._spec = spec
        self._loaded = loaded
        self._stage = stage
        self._number = number
        self._command = command
        self._last = command.last[stage][number]

    def take(self) -> LiveWorker:
        """Take the worker out of the cache, and bring it up to date; make it if need be.

        Raises:
            RunFailed: if entries of the changelog can't be read.
            OperatorError: if user code fails.
        """
        name = name_of(self._spec, self._stage, self._number)
        held = LIVE_WORKERS.pop(name, None)  # so that no later attempt finds it in a partial state
        if held is not None and held.tick < self._command.tick and held.last == self._last:
            return held
        if held is not None and (missed := self._missed_entries(held)):
            self._catch_up(held, missed)
        else:
            pacing = PollPacing(first_limit(debug=self._spec.debug), self._loaded.program.least_batch)
            held = LiveWorker(self._made(), NEVER, NEVER, pacing=pacing)
            self._catch_up(held, self._loaded.changelog.since(self._stage, self._number, self._last, NEVER))
        if self._spec.debug:
            held.begin_recount()
        return held

    def _missed_entries(self, held: LiveWorker) -> Sequence[ChangelogEntry]:
        """Return the entries that a cached worker has missed; if it can't catch up, close it and return no entries."""
        try:
            if held.tick < self._command.tick and held.last < self._last:
                held.worker.park()
                changes = self._loaded.changelog.since(self._stage, self._number, self._last, held.last)
                if changes[0].follows(held.last):  # otherwise its state was discarded
                    return changes
        except BaseException as error:
            release_all((held.worker.close,), error)
            raise
        held.worker.close()
        return ()

    def _made(self) -> Worker:
        program, parts, discovered, _ = self._loaded
        worker = Worker(
            program,
            self._stage,
            self._number,
            parallelism=self._spec.parallelism,
            parts=parts,
            tracked=True,
            debug=self._spec.debug,
            pickle_reader=dumps_by_value,
        )
        if discovered:
            worker.set_parts(parts, discovered)
        key = self._spec.scratch.run, self._spec.generation
        SHARED.setdefault(key, {}).update((id(it.resource), it) for it in worker.shared)
        return worker

    def _catch_up(self, live: LiveWorker, changes: Iterable[ChangelogEntry]) -> None:
        """Apply the entries that a worker has missed, and open its readers at the positions in them."""
        worker = live.worker
        try:
            for change in changes:
                if worker.sources and change.before == live.last > NEVER:
                    live.memory.note(worker.sources, live.last, change.tick, self._command.snapshots)
                worker.apply(change.deltas)
                worker.finish(change.finished)
                live.last = change.tick
            worker.open()
        except BaseException as error:
            release_all((worker.close,), error)
            raise
