"""Requests to a run while it runs, from any thread, and their answers, whatever ends the run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.errors import FencedError, RunFailed, StoreError
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.snapshot.executors import InlineExecutor
from malflow.sources import StatefulSource, StatelessSource
from malflow.testing import ScriptedSource
from tests.kit.backends import in_memory, kept_states
from tests.kit.counting import count, counted, counting, ids, one_a_tick
from tests.kit.jobs import Clock, Failing, StoreBackend
from tests.kit.memory_store import HookedStore

ITEMS = one_a_tick(range(20))


class Asking:
    """A run of numbers, one a tick, in which something is asked at some of them.

    Attributes:
        answers: what was asked for, by the number at which it was.
        workers: which worker had each number.
        seen: the numbers that came.
    """

    def __init__(self, asked: dict[int, Callable[[SingleThreadRuntime], Any]], *, local: bool = False, **options: Any):
        self.asked = asked
        self.local = local
        self.answers: dict[int, Any] = {}
        self.workers: dict[int, int] = {}
        self.seen: list[int] = []
        self.runtime = SingleThreadRuntime(self.build, **options)

    def build(self, provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", ScriptedSource(ITEMS)).inspect("ask", self._ask)
        by = stream.key_local if self.local else stream.key_distribute
        keyed = by("number", lambda msg: msg.value)  # type: ignore[operator]
        keyed.stateful_map("count", count, int).inspect("note", self._note)

    def _ask(self, msg: Any, _ctx: Any) -> None:
        self.seen.append(msg.value)
        if msg.value in self.asked:
            self.answers[msg.value] = self.asked[msg.value](self.runtime)

    def _note(self, msg: Any, ctx: Any) -> None:
        self.workers[msg.key] = ctx.worker_id


def in_a_thread(action: Callable[[], Any]) -> Any:
    """Run an action in another thread, and return its result."""
    done: Future[Any] = Future()

    def act() -> None:
        try:
            done.set_result(action())
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            done.set_exception(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(timeout=60)
    return done.result(timeout=0)


def in_a_signal_handler(action: Callable[[], Any]) -> Any:
    """Run an action in a signal handler, and return its result."""
    answers: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: answers.append(action()))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        while not answers:
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    return answers[0]


def here(action: Callable[[], Any]) -> Any:
    """Do it in user code of the dataflow."""
    return action()


PLACES = pytest.mark.parametrize("place", [here, in_a_thread, in_a_signal_handler])


@PLACES
def test_a_snapshot_is_taken_at_the_end_of_the_tick(place: Callable[[Callable[[], Any]], Any]) -> None:
    backend = in_memory()
    asking = Asking({7: lambda runtime: place(runtime.snapshot)}, persistence=backend)
    asking.runtime.execute()
    first, last = ids(backend)
    assert asking.answers[7].result(timeout=0) == first
    assert kept_states(backend, "count", first) == dict.fromkeys(range(8), 1)
    assert kept_states(backend, "count", last) == dict.fromkeys(range(20), 1)


@PLACES
def test_a_run_is_rescaled_at_the_end_of_the_tick(place: Callable[[Callable[[], Any]], Any]) -> None:
    backend = in_memory()
    scales = {5: 8, 12: 1}
    asked = {at: lambda runtime, n=n: place(lambda: runtime.rescale(n)) for at, n in scales.items()}
    asking = Asking(asked, persistence=backend)
    asking.runtime.execute()
    assert asking.answers[5].result(timeout=0) is None
    assert {asking.workers[number] for number in range(6)} == {0}
    assert len({asking.workers[number] for number in range(6, 13)}) > 1
    assert {asking.workers[number] for number in range(13, 20)} == {0}
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)


@PLACES
def test_a_stop_ends_the_tick_and_takes_a_last_snapshot(place: Callable[[Callable[[], Any]], Any]) -> None:
    backend = in_memory()
    asking = Asking({7: lambda runtime: place(runtime.stop)}, persistence=backend)
    asking.runtime.execute()
    assert asking.seen == list(range(8))
    assert kept_states(backend, "count") == dict.fromkeys(range(8), 1)
    rest = Asking({}, persistence=backend)
    rest.runtime.execute()
    assert rest.seen == list(range(8, 20))
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)


WAITS: dict[str, Callable[[Any], Any]] = {
    "result of a snapshot": lambda run: run.snapshot().result(),
    "error of a snapshot": lambda run: run.snapshot().exception(timeout=60),
    "rescale": lambda run: run.rescale(2).result(timeout=60),
    "explain_time": lambda run: run.explain_time(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_user_code_that_would_wait_for_its_own_tick_is_refused(wait: Callable[[Any], Any]) -> None:
    with pytest.raises(OperatorError, match=r"value 4.*another thread") as refused:
        Asking({4: wait}, persistence=in_memory()).runtime.execute()
    assert isinstance(refused.value.__cause__, GraphError)


@pytest.mark.parametrize(
    "wait", [*WAITS.values(), lambda run: run.await_termination()], ids=[*WAITS, "await_termination"]
)
def test_user_code_that_would_wait_through_the_handle_is_refused(wait: Callable[[Any], Any]) -> None:
    started: Future[Any] = Future()
    asking = Asking({4: lambda _: wait(started.result(timeout=60))}, persistence=in_memory())
    started.set_result(handle := asking.runtime.start())
    with pytest.raises(OperatorError, match=r"value 4.*another thread|value 4.*call it elsewhere"):
        handle.await_termination(timeout=60)


def test_a_function_that_builds_the_dataflow_can_not_wait_for_its_run() -> None:
    def build_dataflow(_: StreamProvider) -> None:
        runtime.snapshot().result()

    runtime = SingleThreadRuntime(build_dataflow, in_memory())
    for run in (runtime.execute, runtime.start):
        with pytest.raises(GraphError, match="answered by the run between two ticks"):
            run()


def test_a_listener_that_would_wait_does_not_hold_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting:
        def on_event(self, _event: Any) -> None:
            asking.runtime.snapshot().result()

    asking = Asking({}, persistence=in_memory(), listeners=[Waiting()])
    asking.runtime.execute()
    assert asking.seen == list(range(20))
    assert "answered by the run between two ticks" in caplog.text


def test_user_code_may_read_an_answer_that_is_there() -> None:
    asking = Asking({4: SingleThreadRuntime.snapshot, 9: lambda _: asking.answers[4].result()}, persistence=in_memory())
    asking.runtime.execute()
    assert asking.answers[9] == asking.answers[4].result()


def test_request_before_the_run_is_served_when_it_runs() -> None:
    backend = in_memory()
    asking = Asking({}, persistence=backend)
    asked = asking.runtime.snapshot()
    scaled = asking.runtime.rescale(3)
    asking.runtime.execute()
    assert asked.result(timeout=0) == ids(backend)[0]
    assert scaled.done()
    assert len(set(asking.workers.values())) > 1


def test_several_requests_of_one_tick_are_done_in_their_order() -> None:
    backend = in_memory()

    def ask(runtime: SingleThreadRuntime) -> list[Future[Any]]:
        return [runtime.snapshot(), runtime.rescale(3), runtime.snapshot(), runtime.snapshot()]

    asking = Asking({4: ask}, persistence=backend)
    asking.runtime.execute()
    first, _, second, third = (answer.result(timeout=0) for answer in asking.answers[4])
    of = {snapshot.id: snapshot.parallelism for snapshot in snapshots(backend)}
    assert (of[first], of[second]) == (1, 3)
    assert third >= second


def test_last_tick_takes_a_requested_snapshot_and_cancels_a_rescale() -> None:
    backend = in_memory()
    asking = Asking({19: lambda runtime: (runtime.snapshot(), runtime.rescale(2))}, persistence=backend)
    asking.runtime.execute()
    asked, scaled = asking.answers[19]
    assert asked.result(timeout=0) in ids(backend)
    assert scaled.cancelled() or scaled.result(timeout=0) is None


def test_request_that_its_caller_cancelled_is_not_served() -> None:
    backend = in_memory()
    asking = Asking({4: lambda runtime: runtime.rescale(3).cancel()}, persistence=backend)
    asking.runtime.execute()
    assert asking.answers[4] is True
    assert set(asking.workers.values()) == {0}


def test_a_snapshot_that_was_cancelled_by_who_asked_breaks_nothing() -> None:
    backend = in_memory()
    asking = Asking({4: lambda runtime: runtime.snapshot().cancel()}, persistence=backend)
    asking.runtime.execute()
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)


@pytest.mark.parametrize("ask", [SingleThreadRuntime.snapshot, lambda runtime: runtime.rescale(2)])
def test_a_run_that_has_ended_takes_no_request(ask: Callable[[SingleThreadRuntime], Any]) -> None:
    asking = Asking({}, persistence=in_memory())
    asking.runtime.execute()
    with pytest.raises(SnapshotError, match="the run has ended"):
        ask(asking.runtime)


def test_request_to_a_run_that_fails_is_cancelled() -> None:
    def fail(runtime: SingleThreadRuntime) -> Any:
        asked.extend([runtime.snapshot(), runtime.rescale(2)])
        raise ValueError("no more")

    asked: list[Future[Any]] = []
    backend = in_memory()
    asking = Asking({4: fail}, persistence=backend)
    with pytest.raises(OperatorError, match="no more"):
        asking.runtime.execute()
    assert all(request.cancelled() for request in asked)
    with pytest.raises(CancelledError):
        asked[0].result(timeout=0)
    assert ids(backend) == []


def test_request_to_a_run_that_could_not_start_is_cancelled() -> None:
    backend = in_memory()
    counted("ab", backend)
    runtime = SingleThreadRuntime(counting("ab", name="other"), backend)
    asked = runtime.snapshot()
    with pytest.raises(SnapshotError, match="states without an operator in the program"):
        runtime.execute()
    assert asked.cancelled()


def test_request_to_a_run_that_could_not_be_built_is_cancelled() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        asked.append(runtime.snapshot())
        provider.new_stream().source("s", None)  # type: ignore[arg-type, call-overload] # the mistake

    asked: list[Future[Any]] = []
    runtime = SingleThreadRuntime(build_dataflow, in_memory())
    with pytest.raises(GraphError):
        runtime.execute()
    assert asked[0].cancelled()


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True, None])
def test_a_number_of_workers_that_can_not_be_is_refused_at_once(workers: Any) -> None:
    with pytest.raises(GraphError, match="parallelism must be a whole number, at least 1"):
        SingleThreadRuntime(counting("")).rescale(workers)


def test_a_dataflow_with_state_under_key_local_is_not_rescaled_and_goes_on() -> None:
    backend = in_memory()
    asking = Asking({4: lambda runtime: runtime.rescale(2)}, local=True, persistence=backend)
    asking.runtime.execute()
    with pytest.raises(SnapshotError, match="key_local"):
        asking.answers[4].result(timeout=0)
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)


def test_a_rescale_that_ends_the_run_is_told_to_who_asked_too() -> None:
    def nowhere(_key: Any, workers: Any) -> Any:
        if len(workers) > 1:
            raise ValueError("too many")
        return workers[0]

    def build_dataflow(provider: StreamProvider) -> None:
        def ask(msg: Any, _ctx: Any) -> None:
            if msg.value == 4:
                asked.append(runtime.rescale(2))

        stream = provider.new_stream().source("numbers", ScriptedSource(ITEMS)).inspect("ask", ask)
        stream.key_distribute("n", lambda msg: msg.value, nowhere).stateful_map("count", count, int)

    asked: list[Future[Any]] = []
    runtime = SingleThreadRuntime(build_dataflow)
    with pytest.raises(OperatorError, match="too many"):
        runtime.execute()
    with pytest.raises(OperatorError, match="too many"):
        asked[0].result(timeout=0)


def test_a_snapshot_that_can_not_be_written_is_told_to_who_asked(tmp_path: Any) -> None:
    backend = FsspecBackend(str(tmp_path), retry_for=timedelta(milliseconds=1))
    backend._executor = InlineExecutor

    def break_and_ask(runtime: SingleThreadRuntime) -> Any:
        (tmp_path / "default" / "d").write_text("no folder")
        return runtime.snapshot()

    def mend(_runtime: SingleThreadRuntime) -> None:
        with pytest.raises(SnapshotError, match="could not be written"):
            asking.answers[4].result(timeout=0)
        (tmp_path / "default" / "d").unlink()
        (tmp_path / "default" / "d").mkdir()

    asking = Asking({4: break_and_ask, 9: mend}, persistence=backend)
    asking.runtime.execute()
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1), "the last one holds what the failed one had"


@pytest.mark.damages_snapshots("its folder is a file at the end")
def test_a_last_snapshot_that_can_not_be_written_fails_the_run(tmp_path: Any) -> None:
    backend = FsspecBackend(str(tmp_path), retry_for=timedelta(milliseconds=1))
    asking = Asking({19: lambda _: (tmp_path / "default" / "d").write_text("no folder")}, persistence=backend)
    with pytest.raises(SnapshotError, match="replace the file or symbolic link by a folder"):
        asking.runtime.execute()
    assert ids(backend) == []


def test_a_snapshot_asked_of_a_run_that_lost_its_job_is_told_so() -> None:
    backend = in_memory()

    def lose(runtime: SingleThreadRuntime) -> Any:
        counted("ab", backend, restore=None, allow_dropped_state=["count", "numbers"])
        return runtime.snapshot()

    asking = Asking({4: lose}, persistence=backend)
    with pytest.raises(FencedError):
        asking.runtime.execute()
    with pytest.raises(FencedError):
        asking.answers[4].result(timeout=0)
    assert asking.seen == list(range(5)), "the run ended at once"


def test_an_idle_run_answers_too() -> None:
    backend, collected = in_memory(), VecSink[Any, Any, Any]()

    class Waiting:
        """A source that emits one record, and then nothing until it is told to end."""

        given, ended = False, False

        def list_parts(self) -> list[str]:
            return ["only"]

        def build_part(self, _part: str) -> Any:
            return self

        def poll(self) -> Any:
            before, self.given = self.given, True
            return None if before else ("record", 0)

        def is_finished(self) -> bool:
            return self.ended

    source: Any = Waiting()
    wrapped: Any = StatelessSource(source)
    runtime = SingleThreadRuntime(
        lambda provider: (
            provider.new_stream()
            .source("s", wrapped)
            .key_distribute("k", lambda msg: msg.value)
            .stateful_map("count", count, int)
            .sink("out", collected)
        ),
        backend,
    )
    thread = threading.Thread(target=runtime.execute)
    thread.start()
    try:
        first = runtime.snapshot().result(timeout=60)
        runtime.rescale(3).result(timeout=60)
        assert runtime.snapshot().result(timeout=60) > first
    finally:
        source.ended = True
        thread.join(timeout=60)
    assert not thread.is_alive()
    assert len(collected) == 1


def test_a_runtime_may_run_again_and_answers_again() -> None:
    backend = in_memory()
    asking = Asking({7: lambda runtime: runtime.stop()}, persistence=backend)
    asking.runtime.execute()
    assert asking.seen == list(range(8))
    asking.asked = {10: lambda runtime: runtime.snapshot()}
    asking.runtime.execute()
    assert asking.seen == list(range(20))
    assert asking.answers[10].result(timeout=0) in ids(backend)
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)


class Ending:
    """A state, or a position, of which nothing can be written: that ends the run."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error("the end")


ENDS: dict[type[BaseException], type[BaseException]] = {
    ValueError: OperatorError,
    SystemExit: SystemExit,
    KeyboardInterrupt: KeyboardInterrupt,
    GeneratorExit: GeneratorExit,
}


def _outcome(answer: Future[Any]) -> type[BaseException | None] | None:
    """Return how a future ended."""
    assert answer.done()
    return CancelledError if answer.cancelled() else type(answer.exception(timeout=0))


@pytest.mark.fault("H3")
@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("asked_with", [[], ["rescale"], ["snapshot", "rescale"]])
def test_requests_are_answered_whatever_a_state_raises(error: type[BaseException], asked_with: list[str]) -> None:
    asked: list[Future[Any]] = []

    def build_dataflow(provider: StreamProvider) -> None:
        def ask(msg: Any, _ctx: Any) -> None:
            if msg.value == 4:
                asked.append(runtime.snapshot())
                asked.extend(runtime.snapshot() if what == "snapshot" else runtime.rescale(2) for what in asked_with)

        stream = provider.new_stream().source("n", ScriptedSource(ITEMS)).inspect("ask", ask)
        stream.key_local("k", lambda _: 0).stateful_map("last", lambda _k, v, _s: (v, Ending(error)))

    runtime = SingleThreadRuntime(build_dataflow, in_memory())
    with pytest.raises(ENDS[error]):
        runtime.execute()
    outcomes = [_outcome(answer) for answer in asked]
    first = OperatorError if error is ValueError else CancelledError
    assert outcomes[: outcomes.count(first)] == [first] * outcomes.count(first)
    assert outcomes[0] is first
    assert set(outcomes) <= {first, CancelledError}


class Numbers:
    """A source whose parts move when the number of workers does; one of them ends the run then."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def list_parts(self) -> list[str]:
        return [f"part {number}" for number in range(20)]

    def build_part(self, _part: str, state: int | None) -> Any:
        return _Part(self.error, state or 0)


class _Part:
    def __init__(self, error: type[BaseException], at: int) -> None:
        self.error = error
        self.at = at

    def poll(self) -> tuple[int, int]:
        self.at += 1
        return self.at, self.at

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        raise self.error("the end")


@pytest.mark.parametrize("error", ENDS)
def test_rescale_is_answered_whatever_a_source_raises(error: type[BaseException]) -> None:
    asked: list[Future[Any]] = []

    def build_dataflow(provider: StreamProvider) -> None:
        def ask(msg: Any, _ctx: Any) -> None:
            if not asked:
                asked.extend([runtime.rescale(3), runtime.rescale(4)])

        source: Any = StatefulSource(Numbers(error))  # type: ignore[arg-type, var-annotated] # by its methods
        provider.new_stream().source("n", source).inspect("ask", ask)

    runtime = SingleThreadRuntime(build_dataflow)
    with pytest.raises(ENDS[error]):
        runtime.execute()
    assert [_outcome(answer) for answer in asked] == [
        OperatorError if error is ValueError else RunFailed,
        CancelledError,
    ]


@pytest.mark.fault("H3")
def test_a_second_signal_leaves_nobody_waiting() -> None:
    asked: list[Future[Any]] = []

    def interrupt(runtime: SingleThreadRuntime) -> None:
        asked.extend([runtime.snapshot(), runtime.rescale(2)])
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Asking({4: interrupt}, persistence=in_memory()).runtime.execute()
    assert [_outcome(answer) for answer in asked] == [CancelledError, CancelledError]


class Slow(FsspecBackend):
    """A backend whose store writes no data file before a gate is open, and counts those who wait."""

    gate: threading.Event
    waiting: threading.Event

    def _store(self, *, exclusive: bool) -> Any:
        store, real = super()._store(exclusive=exclusive), self

        class Gated:
            def put_new(self, key: str, data: bytes) -> None:
                if key.startswith("d/"):
                    real.waiting.set()
                    assert real.gate.wait(60)
                store.put_new(key, data)

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

        return Gated()


def test_requests_that_wait_share_one_snapshot(tmp_path: Any) -> None:
    backend = Slow(str(tmp_path))
    backend.gate, backend.waiting = threading.Event(), threading.Event()
    asked: list[Future[Any]] = []

    def build_dataflow(provider: StreamProvider) -> None:
        def ask(msg: Any, _ctx: Any) -> None:
            if msg.value == 1:
                assert backend.waiting.wait(60)
            asked.append(runtime.snapshot())
            if msg.value == 99:
                backend.gate.set()

        stream = provider.new_stream().source("n", ScriptedSource(one_a_tick(range(100)))).inspect("ask", ask)
        stream.key_distribute("k", lambda msg: msg.value).stateful_map("count", count, int)

    runtime = SingleThreadRuntime(build_dataflow, backend)
    runtime.execute()
    first, *others = [answer.result(timeout=60) for answer in asked]
    assert len(others) == 99
    assert len({first, *others}) <= 3, "the first, those that waited, and those of the last tick"
    assert first < min(others)
    assert len(kept_states(backend, "count", first)) == 1


@pytest.mark.fault("C6")
@pytest.mark.parametrize("interval", [None, timedelta(hours=1)])
def test_one_failed_snapshot_does_not_end_a_run_whose_store_is_well(interval: timedelta | None) -> None:
    clock, store = Clock(), HookedStore()
    backend = StoreBackend(store, clock, tolerate_failures_for=timedelta(seconds=2))
    failing = Failing("put", "d/", StoreError("full for a moment"))

    def fail_once(runtime: SingleThreadRuntime) -> Future[int]:
        store.before.append(failing)
        return runtime.snapshot()

    def look(runtime: SingleThreadRuntime) -> None:
        clock.time += 1

    asked = {4: fail_once} | dict.fromkeys(range(5, 20), look)
    asking = Asking(asked, persistence=backend, snapshots=interval)
    asking.runtime.execute()
    assert failing.fired == 1
    assert type(asking.answers[4].exception(timeout=0)) is StoreError
    assert asking.seen == list(range(20))
    assert len(ids(backend)) == 2, "the one that was tried again, and the last one"
    assert len(kept_states(backend, "count", ids(backend)[0])) < 20


def test_a_run_whose_store_stays_away_ends_after_the_time_that_was_given() -> None:
    clock, store = Clock(), HookedStore()
    backend = StoreBackend(store, clock, tolerate_failures_for=timedelta(seconds=20))
    failing = Failing("put", "d/", StoreError("full"), times=10_000)

    def fail(runtime: SingleThreadRuntime) -> Future[int]:
        store.before.append(failing)
        return runtime.snapshot()

    def look(runtime: SingleThreadRuntime) -> None:
        clock.time += 5

    asking = Asking({4: fail} | dict.fromkeys(range(5, 20), look), persistence=backend)
    with pytest.raises(SnapshotError, match=r"have been failing for \d+ seconds: full"):
        asking.runtime.execute()
    assert failing.fired == 5, "after 5, 10, 15 and 25 seconds: a pause is over at the end of a tick"


def test_a_stop_before_the_run_ends_it_before_its_first_tick() -> None:
    backend = in_memory()
    asking = Asking({}, persistence=backend)
    asking.runtime.stop()
    asking.runtime.execute()
    assert asking.seen == []
    asking.runtime.execute()
    assert asking.seen == list(range(20)), "a stop counts once"


@pytest.mark.fault("H8")
@pytest.mark.parametrize("place", [here, in_a_thread])
def test_a_runtime_that_is_executing_refuses_to_execute(place: Callable[[Callable[[], Any]], Any]) -> None:
    asking = Asking({4: lambda runtime: place(runtime.execute)})
    with pytest.raises(
        (GraphError, OperatorError), match="this runtime is already running a dataflow; create another one"
    ):
        asking.runtime.execute()
    assert asking.seen == list(range(5))
    asking.asked = {}
    asking.runtime.execute()
    assert asking.seen[5:] == list(range(20))


def test_an_interval_without_a_place_is_refused() -> None:
    with pytest.raises(GraphError, match=r"needs a persistence; pass persistence=FsspecBackend"):
        SingleThreadRuntime(counting(""), snapshots=timedelta(seconds=1))
