"""A check for users: does a dataflow come to the same however often it is stopped, broken off and moved?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from malflow.diagnostics import shown
from malflow.errors import GraphError, MalflowError, MissingDependency
from malflow.graph import StatefulNode
from malflow.streams.stream import StreamProvider
from malflow.testing.differences import difference
from malflow.testing.inputs import feed_of
from malflow.testing.schedules import Event, Schedule, schedules, told
from malflow.testing.trial import Outcome, built, try_out

__all__ = ["assert_exactly_once"]

_ALWAYS = (
    "state that is kept outside of malflow: in a global, a closure, or an attribute of a logic",
    "a value that depends on the time, on chance, or on the order of a set",
)
_AFTER_A_RESTART = (
    *_ALWAYS,
    "an object that two keys or two operators share and one of them changes: each gets its own from a snapshot",
)
_OVER_WORKERS = (
    "a result that depends on how many workers there are: on the order between their records, or on what each of them "
    "sees, as with epochs that every worker generates of its own records; give rescale=False if that is meant"
)


def assert_exactly_once(
    build_dataflow: Callable[[StreamProvider], object],
    inputs: Any,
    *,
    parallelism: Sequence[int] = (1, 2, 3),
    max_examples: int = 50,
    rescale: bool = True,
    seed: int | None = None,
) -> None:
    """Check that a dataflow comes to the same whatever happens to its runs.

    It is run under many schedules of snapshots, stops, crashes and changes of the number of workers, with its sources
    replaced by ones that give `inputs` and its sinks by ones that write nothing, so that nothing outside is touched;
    its state goes through real snapshots, pickled in memory. For every start it is built anew. Each run is compared
    with one that nothing happened to:

    - the state of every key of every stateful operator is the same after the last record;
    - every sink got the same messages, in any order, those left aside that were written after the snapshot that a
      crash went back to: that is what a transactional sink shows;
    - nothing was written, not even in a try that a crash undid, that an undisturbed run does not write.

    A schedule under which they differ is made as short as possible, and told with the first difference.

    One record is processed in each tick, those of several sources and parts in turn: so the order is always the
    same. States and values are compared by what they consist of, so they need no equality of their own.

    Args:
        build_dataflow: builds the dataflow, as `SingleThreadRuntime` takes it.
        inputs: the items of the only source; or a mapping from the names of the sources to their items, and where the
            parts of a source are keys, from part to items. Items are values, whose timestamp is their index, or
            `Timed` values. A source gives a copy of each, as if it read it.
        parallelism: the numbers of workers to run with; the undisturbed run has the first one.
        max_examples: how many schedules to try.
        rescale: whether the number of workers may change, and must not count. Without it a run keeps its number, and
            is compared with an undisturbed one of as many; so it is where a dataflow has state under ``key_local``,
            which can't be moved.
        seed: chooses the schedules; by default they are the same every time.

    Raises:
        AssertionError: if a schedule makes a difference.
        GraphError: if the dataflow is malformed, `inputs` does not fit its sources, or an argument is not what it
            must be.
        OperatorError: if user code fails, or a state can't be pickled.
        MissingDependency: if hypothesis is not installed; ``malflow[testing]`` brings it.

    >>> from malflow.sinks import VecSink
    >>> from malflow.sources import SingleIteratorSource
    >>> def build_dataflow(provider):
    ...     numbers = provider.new_stream().source("numbers", SingleIteratorSource([]))
    ...     keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
    ...     keyed.stateful_map("sum", lambda key, value, n: (n + value, n + value), int).sink("sums", VecSink())
    >>> assert_exactly_once(build_dataflow, range(5), max_examples=5)
    """
    __tracebackhide__ = True
    numbers = _numbers(parallelism)
    if isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1:
        raise GraphError(f"max_examples needs a whole number of one or more; got {shown(max_examples)}")
    program = built(build_dataflow)
    nodes = [vertex.node for vertex in program.vertices]
    rescale = rescale and not any(isinstance(node, StatefulNode) and node.placement is None for node in nodes)
    feed = feed_of(inputs, program.sources)
    undisturbed: dict[int, Outcome] = {}
    verdicts: dict[Schedule, list[str] | MalflowError] = {}

    def run(schedule: Schedule) -> Outcome:
        return try_out(build_dataflow, feed, schedule, by_worker=not rescale)

    def judge(schedule: Schedule) -> list[str] | MalflowError:
        workers = numbers[0] if rescale else schedule.workers
        if workers not in undisturbed:
            undisturbed[workers] = run(Schedule(workers))
        if schedule not in verdicts:
            try:
                verdicts[schedule] = difference(program, undisturbed[workers], run(schedule))
            except MalflowError as error:
                verdicts[schedule] = error
        return verdicts[schedule]

    found = _find(judge, numbers, len(feed), max_examples, seed, rescale=rescale)
    if found is None:
        return
    verdict, story = verdicts[found], _numbered(told(found, feed))
    if isinstance(verdict, MalflowError):
        verdict.add_note(f"under this schedule:\n{story}")
        raise verdict
    raise AssertionError(_report(found, numbers[0] if rescale else found.workers, story, verdict))


def _find(
    judge: Callable[[Schedule], object],
    parallelism: Sequence[int],
    records: int,
    max_examples: int,
    seed: int | None,
    *,
    rescale: bool,
) -> Schedule | None:
    """Find a schedule that makes a difference, and no shorter one does; verdicts are remembered, so they are stable."""
    try:
        import hypothesis  # noqa: PLC0415 - an optional dependency
        from hypothesis.errors import NoSuchExample  # noqa: PLC0415
    except ImportError as missing:
        raise MissingDependency("assert_exactly_once needs hypothesis; install malflow[testing]") from missing
    undisturbed = Schedule(parallelism[0])
    if judge(undisturbed):  # a second run with nothing happening is the shortest story there is
        return undisturbed
    settings = hypothesis.settings(
        max_examples=max_examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        verbosity=hypothesis.Verbosity.quiet,
    )
    chance = None if seed is None else random.Random(seed)  # noqa: S311 - it keeps no secret
    strategy = schedules(parallelism, records, rescale=rescale)
    try:
        return hypothesis.find(strategy, lambda schedule: bool(judge(schedule)), settings=settings, random=chance)
    except NoSuchExample:
        return None


def _report(schedule: Schedule, usual: int, story: str, differing: Sequence[str]) -> str:
    undisturbed = not schedule.steps and schedule.workers == usual
    return "\n".join(
        [
            "two undisturbed runs do not come to the same, each of them:"
            if undisturbed
            else "the dataflow does not come to the same as an undisturbed run, under this schedule:",
            story,
            *differing,
            "usual causes:",
            *(f"  - {cause}" for cause in _causes(schedule, usual)),
        ]
    )


def _causes(schedule: Schedule, usual: int) -> Iterator[str]:
    restarts = any(step.event in (Event.STOP, Event.CRASH) for step in schedule.steps)
    changes = schedule.workers != usual or any(step.workers != usual for step in schedule.steps)
    if not changes:
        yield from _AFTER_A_RESTART if restarts else _ALWAYS
        return
    yield _OVER_WORKERS
    yield from _AFTER_A_RESTART


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, 1))


def _numbers(parallelism: object) -> list[int]:
    numbers = [parallelism] if isinstance(parallelism, int) else parallelism
    listed = list(numbers) if isinstance(numbers, Iterable) else []
    if not listed or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in listed):
        raise GraphError(f"parallelism needs one or more whole numbers of one or more; got {shown(parallelism)}")
    return listed
