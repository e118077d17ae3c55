"""Check that stops, crashes and rescales do not change the results of a dataflow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from malflow.checks import check_choice, check_whole_number, is_whole_number
from malflow.engine.plan import Program
from malflow.errors import GraphError, MalflowError, MissingDependency
from malflow.nodes import SinkNode, StatefulNode
from malflow.runtime.requests.queries import checked_replay
from malflow.streams.stream import StreamProvider
from malflow.testing.differences import difference
from malflow.testing.inputs import Feed, feed_of, tick_times
from malflow.testing.schedules import Event, Schedule, description, schedules
from malflow.testing.shared_count import Count, SharedCount
from malflow.testing.trial import Build, LetterPlan, Outcome, RuntimeName, built, look_closely, try_out
from malflow.words import listed, short_repr

__all__ = ["assert_exactly_once"]

_ALWAYS = (
    "state kept outside of malflow: in a global, a closure, or an attribute of a logic",
    "a value that depends on the clock, on random numbers, or on the iteration order of a set",
)
_AFTER_A_RESTART = (
    *_ALWAYS,
    "an object that two keys or operators share, and one of them changes: after a restore each has its own copy",
)
_OVER_WORKERS = (
    "a result that depends on the number of workers: on the order between their records, or on the records that each "
    "of them sees, as with epochs that every worker generates from its own records; pass rescale=False if intended"
)


def assert_exactly_once(
    build_dataflow: Callable[[StreamProvider], object],
    inputs: Any,
    *,
    parallelism: Sequence[int] = (1, 2, 3),
    max_examples: int = 50,
    rescale: bool = True,
    seed: int | None = None,
    ticks: float | Sequence[float] = 1,
    at_end: Literal["finish", "keep"] = "finish",
    runtime: RuntimeName = "single_thread",
    replays: Mapping[int, Sequence[str]] = MappingProxyType({}),
    refuses: Mapping[str, Callable[[Any], object]] = MappingProxyType({}),
) -> None:
    """Check that a dataflow computes the same results whatever interrupts its runs.

    The dataflow runs under many schedules of snapshots, stops, crashes and rescales. Its sources are replaced by
    sources that emit `inputs`, and its sinks by recorders, so no external system is touched. State goes through real
    snapshots, kept in memory. The dataflow is built again for every start. Each run is compared with an undisturbed
    run:

    - every key of every stateful operator has the same state after the last record, and every operator has the same
      dead letters, whatever their tick and worker;
    - every sink received the same messages, in any order. Messages written after the snapshot to which a crash
      returned do not count, as with a transactional sink;
    - no attempt, not even one that a crash discarded, wrote a message that the undisturbed run does not write.

    Recorders accept every record, but for those that `refuses` names. Such a sink is replaced by an exactly-once sink
    in two phases. Its target refuses these records for good, and the schedules crash around its commits too. Each
    record must then be in the target exactly once, or be one dead letter. A real sink is held to this by the laws
    ``refused`` and ``replayed`` of `assert_sink`.

    A schedule that fails is shrunk, and reported with the first difference.

    Each tick processes one record, or a frame of one to some rows of an Arrow table. Several sources and parts take
    turns, so the order is always the same. States
    and values are compared by their contents, so they need no ``__eq__``. A last run, with ``debug=True`` and several
    records in a tick, looks for values that change after they were emitted.

    The tick clock is scripted too, and nothing sleeps: each record's tick begins at the same time in all runs, even
    after a restart, as if there had been no downtime. So timers in tick time and `idle_after` can be tested.

    Args:
        build_dataflow: builds the dataflow, as `SingleThreadRuntime` takes it.
        inputs: the items of the only source, or a mapping from source name to items. For a source with keys as its
            parts, the items are a mapping from part to items. Items may be a table of Arrow or another data frame: its
            rows come as columns, with their index as timestamp. An item is a value (its index is the timestamp), or a
            `Timed` value. A source emits a copy of each item, as if it had read it. `PAUSE` is a tick without a record,
            and ``PAUSE(seconds)`` two of them, with that time between.
        parallelism: the numbers of workers to run with; the undisturbed run has the first of them.
        max_examples: the number of schedules to try.
        rescale: whether to change the number of workers; this must not change the results. If False, a run keeps its
            number of workers and is compared with an undisturbed run of the same number. Always off if the dataflow has
            state under ``key_local`` (it cannot be moved).
        ticks: the seconds from the start of each tick to the start of the next; or a sequence of such numbers, the
            last of which applies to all ticks that follow. A ``PAUSE(seconds)`` has its own time.
        at_end: the effect of the end of the input, as in `SingleThreadRuntime`. By default windows close and timers
            fire, and their results are compared; with ``"keep"`` they do not.
        seed: seeds the choice of schedules, and of the sizes of frames; by default they are the same every time.
        runtime: ``"single_thread"``, or ``"processes"`` to run in two worker processes as `MultiProcessRuntime` does:
            slower, and it also finds what can't be pickled, and state outside of malflow, of which each process has
            its own.
        replays: the operators whose dead letters are replayed before a record, by the record's number from 0. All runs
            replay them, so the failures of a function may depend only on its state and the record.
        refuses: by sink, a function of a value that returns whether the target refuses it for good. The sink needs
            ``on_error="dead_letter"``, or a policy with a function that always returns it for refused records.

    Raises:
        AssertionError: if a schedule changes the results.
        GraphError: if the dataflow is malformed, `inputs` does not fit its sources, or an argument is invalid.
        OperatorError: if user code fails, or a state cannot be pickled.
        MissingDependency: if hypothesis is not installed; run ``pip install 'malflow[testing]'``.

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
    _check(max_examples, at_end, runtime)
    program = built(build_dataflow)
    nodes = [vertex.node for vertex in program.vertices]
    kept = [node for node in nodes if isinstance(node, StatefulNode) and node.kind.is_by_key]
    rescale = rescale and not any(node.placement is None for node in kept)
    feed = feed_of(inputs, program.sources, seed)
    for number, names in replays.items():
        _check_replays(program, number, names, len(feed))
    _check_refuses(program, refuses)
    times = tick_times(feed, ticks)
    letters = LetterPlan(replays, refuses)
    undisturbed: dict[int, Outcome] = {}
    verdicts: dict[Schedule, list[str] | MalflowError] = {}

    def run(schedule: Schedule) -> Outcome:
        finishes = at_end == "finish"
        return try_out(
            build_dataflow,
            feed,
            schedule,
            times,
            by_worker=not rescale,
            finishes=finishes,
            runtime=runtime,
            plan=letters,
        )

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

    with closing(SharedCount() if runtime == "processes" else Count()) as feed.count:
        found = _find(judge, numbers, len(feed), max_examples, seed, rescale=rescale, commits=bool(refuses))
        if found is None:
            _look_closely(build_dataflow, feed, times, numbers[0], finishes=at_end == "finish")
    if found is None:
        return
    verdict, story = verdicts[found], _numbered(description(found, feed))
    if isinstance(verdict, MalflowError):
        verdict.add_note(f"under this schedule:\n{story}")
        raise verdict
    raise AssertionError(_report(found, numbers[0] if rescale else found.workers, story, verdict))


def _look_closely(
    build_dataflow: Build, feed: Feed, times: Sequence[datetime], workers: int, *, finishes: bool
) -> None:
    """Run the dataflow with ``debug=True``: ticks of one record hide values that change after they were emitted.

    Raises:
        MalflowError: any error that the run raises.
    """
    try:
        look_closely(build_dataflow, feed, times, workers, finishes=finishes)
    except MalflowError as error:
        error.add_note("in a run with debug=True, whose ticks process several records")
        raise


def _find(
    judge: Callable[[Schedule], object],
    parallelism: Sequence[int],
    records: int,
    max_examples: int,
    seed: int | None,
    *,
    rescale: bool,
    commits: bool,
) -> Schedule | None:
    """Return a minimal schedule that changes the results, or None; verdicts are cached, so they are stable."""
    try:
        import hypothesis  # noqa: PLC0415 - an optional dependency
        from hypothesis.errors import NoSuchExample  # noqa: PLC0415
    except ImportError as missing:
        raise MissingDependency("assert_exactly_once needs hypothesis; pip install 'malflow[testing]'") from missing
    undisturbed = Schedule(parallelism[0])
    if judge(undisturbed):  # no schedule is shorter than a second undisturbed run
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
    strategy = schedules(parallelism, records, rescale=rescale, commits=commits)
    try:
        return hypothesis.find(strategy, lambda schedule: bool(judge(schedule)), settings=settings, random=chance)
    except NoSuchExample:
        return None


def _report(schedule: Schedule, usual: int, story: str, differing: Sequence[str]) -> str:
    undisturbed = not schedule.steps and schedule.workers == usual
    return "\n".join(
        [
            "two undisturbed runs have different results; the schedule of both:"
            if undisturbed
            else "the results differ from those of an undisturbed run, under this schedule:",
            story,
            *differing,
            "usual causes:",
            *(f"  - {cause}" for cause in _causes(schedule, usual)),
        ]
    )


def _causes(schedule: Schedule, usual: int) -> Iterator[str]:
    restarts = any(step.event not in (Event.SNAPSHOT, Event.RESCALE) for step in schedule.steps)
    changes = schedule.workers != usual or any(step.workers != usual for step in schedule.steps)
    if not changes:
        yield from _AFTER_A_RESTART if restarts else _ALWAYS
        return
    yield _OVER_WORKERS
    yield from _AFTER_A_RESTART


def _check(max_examples: object, at_end: object, runtime: object) -> None:
    """Check arguments.

    Raises:
        GraphError: if one is invalid.
    """
    check_whole_number("assert_exactly_once", "max_examples", max_examples)
    check_choice("assert_exactly_once", "at_end", at_end, ("finish", "keep"))
    check_choice("assert_exactly_once", "runtime", runtime, ("single_thread", "processes"))


def _check_replays(program: Program, number: object, names: object, records: int) -> None:
    """Check that letters can be replayed before a record."""
    if not is_whole_number(number, least=0, most=records - 1):
        raise GraphError(f"replays takes numbers of records, from 0 to {records - 1}; got {short_repr(number)}")
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GraphError(f"replays takes lists of operators; got {short_repr(names)}")
    for name in names:
        checked_replay(program, name, None, discards=False)


def _check_refuses(program: Program, refuses: object) -> None:
    """Check that targets of sinks can refuse records."""
    if not isinstance(refuses, Mapping):
        raise GraphError(
            "refuses takes a mapping from sink to a function of a value, as in {'out': lambda value: value < 0}; "
            f"got {short_repr(refuses)}"
        )
    sinks = {vertex.node.name: vertex.node for vertex in program.vertices if isinstance(vertex.node, SinkNode)}
    for name, function in refuses.items():
        if name not in sinks:
            raise GraphError(f"refuses has {short_repr(name)}; the sinks of the dataflow are {listed(sinks)}")
        if not callable(function):
            raise GraphError(f"refuses takes a function of a value for sink '{name}'; got {short_repr(function)}")
        policy = program.policy(sinks[name])
        if policy is None or not policy.may_keep:
            raise GraphError(
                f"refuses has sink '{name}', whose policy keeps no dead letters; got on_error="
                f"{'fail' if policy is None else policy.fate!r}; pass on_error='dead_letter' to its .sink()"
            )


def _numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, 1))


def _numbers(parallelism: object) -> list[int]:
    numbers = [parallelism] if isinstance(parallelism, int) else parallelism
    listed = list(numbers) if isinstance(numbers, Iterable) else []
    if not listed or not all(map(is_whole_number, listed)):
        raise GraphError(f"parallelism must be one or more whole numbers above 0; got {short_repr(parallelism)}")
    return listed
