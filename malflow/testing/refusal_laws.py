"""The laws of sinks whose external system refuses records for good: the rest is written, the others become letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from fsspec.implementations.memory import MemoryFileSystem

from malflow.errors import OperatorError
from malflow.events import Event, Run, RunStarted
from malflow.failures import Budget, ErrorPolicy, OnError
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sinks.contract import StatelessSink
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.history import snapshots
from malflow.snapshot.reading import dead_letters
from malflow.streams.stream import StreamProvider
from malflow.testing.faults import Crash
from malflow.testing.laws import Laws
from malflow.testing.scripted import PAUSE, ScriptedSource

__all__ = ["REFUSAL_LAWS", "check_refusals"]

REFUSAL_LAWS: Final = ("refused", "fails", "replayed")

_OUT = "out"
_EACH_TICK = timedelta(microseconds=1)
_FAIL = "fail-"
_SIZE = 20
"""Records of a job, so that one is a twentieth and two are a tenth."""

_MOST_ATTEMPTS = 10
"""Restarts until a job counts as stuck. A plan crashes once, so two would do; more take longer to fail."""

_ANY = OnError("dead_letter", budget=Budget(1.0))
_SHARES: Final = {"one of 20 records": {3}, "a tenth of them": {0, 13}, "all of them": set(range(_SIZE))}
_POINTS: Final = (
    ("divide", "before", 1),
    ("divide", "after", 1),
    ("divide", "after", 2),
    ("commit", "before", 2),
    ("commit", "after", 2),
    ("commit", "after", 3),
)
"""The calls at which a job crashes; with one refused record, they are on both sides of each step."""


def check_refusals(
    laws: Laws,
    run: str,
    make_sink: Callable[[], Any],
    see: Callable[[str, str, Sequence[Any], int], None],
    values: Callable[[Sequence[int]], tuple[list[Any], list[Any]]],
    mend: Callable[[], object] | None,
) -> None:
    """Check the laws.

    Args:
        laws: the laws.
        run: a text that other runs of the suite do not have.
        make_sink: returns a new sink.
        see: checks that values are visible so many times, for a law, at a point of time.
        values: returns the values of some records, and those that are refused, by the numbers of the latter.
        mend: makes the external system accept all values.
    """
    __tracebackhide__ = True
    jobs = _Jobs(laws, run, make_sink)
    if laws.has("fails"):
        everything, _ = values([3])
        jobs.fail("fail", everything, "one")
        everything, _ = values(range(_SIZE))
        jobs.fail(OnError("dead_letter", budget=Budget(0.5, least=10)), everything, "many")
    left = []
    for what, at in _SHARES.items() if laws.has("refused") else ():
        for point in [None, *_POINTS] if len(at) == 1 else [None]:
            everything, bad = values(sorted(at))
            good = [it for place, it in enumerate(everything) if place not in at]
            name = f"{len(at)}-{'-'.join(map(str, point or ()))}"
            jobs.run(name, everything, point)
            when = f"after {what} were refused" + (
                f", and a crash {point[1]} call {point[2]} of {point[0]}()" if point else ""
            )
            see("refused", when, good, 1)
            see("refused", when, bad, 0)
            kept = jobs.letters(name)
            if len(kept) != len(bad):
                laws.broken("refused", f"{when}, there are {len(kept)} dead letters, instead of {len(bad)}")
            left.append((name, everything, good, bad))
    if mend is None or not laws.has("replayed"):
        return
    mend()
    for name, everything, good, bad in left:
        jobs.run(name, everything, ("commit", "before", 1) if len(bad) == 1 else None, replays=True)
        see("replayed", "after the dead letters were replayed", [*good, *bad], 1)
        if jobs.letters(name):
            laws.broken("replayed", "dead letters stay after they were replayed")


class _Jobs:
    def __init__(self, laws: Laws, run: str, make_sink: Callable[[], Any]) -> None:
        self._laws = laws
        self._run = run
        self._make = make_sink
        self._files = MemoryFileSystem(skip_instance_cache=True)
        self._files.store, self._files.pseudo_dirs = {}, [""]

    def run(
        self, name: str, values: Sequence[Any], point: tuple[str, str, int] | None, *, replays: bool = False
    ) -> None:
        """Run a job to its end, with a crash at a point."""
        __tracebackhide__ = True
        plan = _Plan(point)
        for _ in range(_MOST_ATTEMPTS):
            try:
                with self._laws.of("replayed" if replays else "refused"):
                    self._execute(name, values, plan, _ANY, replays=replays)
            except Crash:
                continue
            return
        self._laws.broken("refused", "the job crashes again and again")

    def fail(self, policy: ErrorPolicy, values: Sequence[Any], name: str) -> None:
        """Check that a job ends by an error of its sink, twice, and that it makes no letters."""
        __tracebackhide__ = True
        for _ in range(2):
            try:
                self._execute(f"{_FAIL}{name}", values, _Plan(None), policy)
            except OperatorError as error:
                if error.operator == _OUT:
                    continue
                raise
            self._laws.broken("fails", "a job whose policy is to fail ends without an error")
        if self.letters(f"{_FAIL}{name}"):
            self._laws.broken("fails", "there are dead letters of a job whose policy is to fail")

    def letters(self, name: str) -> list[Any]:
        """Return the dead letters of a job; none if it has no snapshot, since its sink has refused before the first."""
        backend = self._backend(name)
        return [*dead_letters(backend, _OUT)] if any(snapshots(backend)) else []

    def _backend(self, name: str) -> FsspecBackend:
        return FsspecBackend("/sink", filesystem=self._files, job=f"refused-{self._run}-{name}")

    def _execute(
        self, name: str, values: Sequence[Any], plan: _Plan, policy: ErrorPolicy, *, replays: bool = False
    ) -> None:
        sink = StatelessSink(_Crashing(self._make(), plan))  # type: ignore[arg-type] # it has what it needs
        half = len(values) // 2
        script = [*values[:half], PAUSE, *values[half:]]

        def build(provider: StreamProvider) -> None:
            source = provider.new_stream().source("values", ScriptedSource(script))
            source.sink(_OUT, sink, on_error=policy)

        listeners = [_Replaying()] if replays else []
        interval = None if name.startswith(_FAIL) else _EACH_TICK  # a budget is about one transaction
        SingleThreadRuntime(build, self._backend(name), interval, listeners=listeners).execute()


class _Replaying:
    """Replays all dead letters of the sink in the first tick of a run."""

    _run: Run | None = None

    def on_start(self, run: Run, /) -> None:
        self._run = run

    def on_event(self, event: Event, /) -> None:
        if isinstance(event, RunStarted) and self._run is not None:
            self._run.replay(_OUT)


class _Plan:
    """Where to crash, once."""

    def __init__(self, point: tuple[str, str, int] | None) -> None:
        self._point = None if point is None else point[:2]
        self._left = 0 if point is None else point[2]

    def pass_by(self, call: str, when: str) -> None:
        if self._point == (call, when):
            self._left -= 1
            if self._left == 0:
                raise Crash(f"{when} {call}")


class _Crashing:
    """A sink that crashes according to a plan, and is never closed, as if the process were killed."""

    def __init__(self, sink: Any, plan: _Plan) -> None:
        vars(self).update(_sink=sink, _plan=plan)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._sink, name)
        if name not in ("divide", "commit"):
            return attribute

        def call(*arguments: Any) -> Any:
            self._plan.pass_by(name, "before")
            result = attribute(*arguments)
            self._plan.pass_by(name, "after")
            return result

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._sink, name, value)

    def close(self) -> None:
        """Do nothing."""
