"""A host and a runtime for tests: each worker lives in its own thread, and everything that leaves it is pickled.

That it passes the conformance suite shows that a runtime is a host, and that everything else is the coordinator's. It
tells neither times nor open results between ticks, as Spark does not.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar

from malflow.engine.part_moves import move_parts
from malflow.engine.parts.discovery import Change, Confirmations
from malflow.engine.parts.places import PartMove, with_given
from malflow.engine.plan import Program, check_not_input
from malflow.engine.reports import CLOCK, Facts, Report
from malflow.engine.sinks import RunSinks
from malflow.engine.state_queries import Outcome, Question
from malflow.engine.state_specs import OldStates, states_of
from malflow.engine.states.loading import load_into
from malflow.engine.worker import Worker
from malflow.engine.workers import Workers
from malflow.errors import QueryError, release_all
from malflow.event_time.tick import Tick
from malflow.nodes import SinkNode
from malflow.runtime.host import SinkPositions
from malflow.runtime.local import LocalRuntime
from malflow.runtime.options import RunOptions, RuntimeBuilder
from malflow.runtime.transport.sink_proxies import SinkProxy
from malflow.runtime.transport.states import PackedQuestion, answered, outcome, packed_or_error
from malflow.sinks.contract import StatelessSink
from malflow.snapshot.persistence import RestoredState, Session
from malflow.streams.stream import StreamProvider

__all__ = ["ThreadsHost", "ThreadsRuntime"]

T = TypeVar("T")


class ThreadsHost:
    """Workers in threads, a thread for each; a tick ends when all of them have finished its last stage."""

    def __init__(self, program: Program, sinks: RunSinks, options: RunOptions) -> None:
        self._sinks = sinks
        self._states = states_of(program)
        self._whole = program
        self._program = replace(program, vertices=tuple(map(_collecting, program.vertices)))
        self._threads: list[ThreadPoolExecutor] = []
        self._asked: list[PackedQuestion | QueryError] = []
        self._answered: list[Outcome] = []
        self._confirmations = Confirmations(lambda: self._workers.sources)
        workers, keeps = options.parallelism or 1, options.persistence.is_enabled
        self._take(Workers(self._program, parallelism=workers, tracked=keeps, debug=options.debug))

    def _take(self, workers: Workers) -> None:
        """Start a thread for each worker."""
        self._end_threads()
        self._workers = workers
        self.parallelism, self.parts, self.listed = workers.parallelism, workers.parts, workers.listed
        check_not_input(self._whole, self.listed)
        self._threads = [ThreadPoolExecutor(1, f"worker-{at}") for at in range(self.parallelism)]

    def _end_threads(self) -> None:
        for thread in self._threads:
            thread.shutdown()

    def _everywhere(self, act: Callable[[int], T]) -> list[T]:
        """Do something on all threads, and wait until all of them have done it; raise the first error."""
        made = [thread.submit(copy_context().run, act, at) for at, thread in enumerate(self._threads)]
        for it in made:
            it.exception()
        return [it.result() for it in made]

    def load(self, restored: RestoredState) -> OldStates:
        states, positions = self._sinks.split(restored.states)
        load_into(self._workers, self._program, replace(restored, states=states))
        self.parts = self._workers.parts
        return positions

    def open(self, tick: int) -> None:
        self._workers.open()
        self._confirmations.note(tick)

    def _of(self, at: int) -> list[Worker]:
        return [stage[at] for stage in self._workers.stages]

    def pause(self) -> float:
        return 0.0

    def live(self) -> None:
        return None  # the first tick tells

    times = held = running = live

    def ask(self, questions: Sequence[Question]) -> None:
        self._asked = [packed_or_error(it) for it in questions]  # the next tick answers

    def answers(self) -> list[Outcome]:
        found, self._answered = self._answered, []
        return found

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        self._answered = [self._outcome(it) if isinstance(it, PackedQuestion) else it for it in asked]

    def _outcome(self, asked: PackedQuestion) -> Outcome:
        workers = [it for it in self._workers.stages[asked.stage] if asked.asks(asked.stage, it.worker_id)]
        return outcome(asked, [answered(self._program, it, asked) for it in workers])

    def run(self, tick: Tick) -> list[Report]:
        """Take a tick: each thread runs a stage of its worker, and then passes on pickles."""
        self._answer()
        self.parts = self._workers.parts = with_given(self.parts, tick.given)
        told = self._everywhere(lambda at: _told(self._of(at), tick))
        sent: dict[int, list[Any]] = {}
        for number, stage in enumerate(self._program.stages):

            def step(at: int, number: int = number) -> dict[int, Any]:
                worker = self._workers.stages[number][at]
                taken = {it.number: [by[at] for by in sent[it.number]] for it in worker.stage.inputs}
                outputs = worker.run(taken, tick)
                return {channel: _sent(by_target) for channel, by_target in outputs.items()}

            stages = self._everywhere(step)
            for channel in stage.outputs:
                sent[channel.number] = [outputs[channel.number] for outputs in stages]
        sinks = self._deliver()
        found = self._everywhere(lambda at: [worker.reports.take(tick) for worker in self._of(at)])
        for reports, (time, held) in zip(found, told, strict=True):
            if reports:
                reports[-1].times, reports[-1].held = time, held
        return [*(report for reports in found for report in reports), sinks]

    def _deliver(self) -> Report:
        """Pass what the workers have collected to the sinks, which are not made for several threads."""
        began = CLOCK()
        writers = {it.context.operator_name: it for it in self._sinks.writers}
        for sink in [sink for at in range(self.parallelism) for worker in self._of(at) for sink in worker.sinks]:
            for batch in sink.resource.take() if isinstance(sink.resource, SinkProxy) else ():
                writers[sink.context.operator_name].process(_sent(batch))
        for it in (*writers.values(), *(sink for stage in self._workers.stages for w in stage for sink in w.sinks)):
            it.flush()
        return Report(0, facts={name: Facts((CLOCK() - began) // len(writers)) for name in writers})

    def capture(
        self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool
    ) -> Future[int] | None:
        del alone
        made = session.commit(tick, self.parallelism, self._states, [*self._workers.deltas(full), *sinks(full)])
        self._confirmations.note(tick)
        return made

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        return self._confirmations.settle(tick, snapshot)

    def check_moves(self) -> None:
        pass

    def rescale(self, parallelism: int) -> None:
        self._workers.rescale(parallelism)
        self._take(self._workers)

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        for name, change in changes.items():
            self._workers.check_gone(name, change.gone)
        self._workers.add_parts({name: it.new for name, it in changes.items() if it.new})
        self._take(self._workers)

    @property
    def lanes(self) -> Sequence[int]:
        return range(self.parallelism)

    def move_parts(self, move: PartMove, limit: int) -> None:
        del limit
        move_parts(self._workers, self._program, move)
        self._take(self._workers)

    def close(self, error: BaseException | None) -> None:
        closes = [writer.close for writer in self._sinks.writers]
        release_all((lambda: self._workers.close(error), *closes, self._end_threads), error)


class ThreadsRuntime(LocalRuntime):
    """Runs a dataflow on a `ThreadsHost`."""

    def __init__(
        self,
        build_dataflow: Callable[[StreamProvider], object],
        persistence: Any = None,
        snapshots: Any = None,
        parallelism: int = 1,
        **options: Any,
    ) -> None:
        if persistence is not None:
            options["persistence"] = persistence
        super().__init__(build_dataflow, RunOptions(snapshots=snapshots, parallelism=parallelism, **options))

    @classmethod
    def builder(cls) -> Builder:
        return Builder()

    def _host(self, program: Program, sinks: RunSinks, options: RunOptions) -> ThreadsHost:
        return ThreadsHost(program, sinks, options)


class Builder(RuntimeBuilder):
    def build(self, build_dataflow: Callable[[StreamProvider], object]) -> ThreadsRuntime:
        return ThreadsRuntime(build_dataflow, **self._options)


def _collecting(vertex: Any) -> Any:
    node = vertex.node
    if isinstance(node, SinkNode) and isinstance(node.sink, StatelessSink):
        return replace(vertex, node=replace(node, sink=StatelessSink(SinkProxy(0))))
    return vertex


def _sent(batches: Any) -> Any:
    """Return what another process would receive."""
    return pickle.loads(pickle.dumps(batches, 5))


def _told(workers: Sequence[Worker], tick: Tick) -> tuple[dict[int, Any], dict[str, Any]]:
    """Return what a tick is asked to tell of a worker, before it is taken."""
    times = {vertex: time for it in workers for vertex, time in it.time.explain().items()} if tick.explains else {}
    held = {name: open_ for it in workers for name, open_ in it.held().items()} if tick.asks_held else {}
    return times, held
