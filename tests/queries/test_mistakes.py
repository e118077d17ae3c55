"""Questions that can't be answered: an error at once where it can be known, and never a hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from malflow import GraphError, OperatorError, RunHandle, SingleThreadRuntime, StreamProvider, agg
from malflow.errors import QueryError
from malflow.sinks import VecSink
from malflow.sources import StatelessSource, StatelessSourceImpl
from malflow.testing import ScriptedSource
from malflow.windows import tumbling
from tests.kit.counting import count
from tests.kit.threads_host import ThreadsRuntime
from tests.queries.asking import SECONDS, in_a_thread

RUNTIMES = pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])


class Fed:
    """A source of the records that a test gives it, until it is told to end."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.ends = False

    def build(self) -> StatelessSource[Any, Any, Any]:
        fed = self

        class Part:
            def poll(self) -> Any:
                return (fed.values.pop(0), 0) if fed.values else None

            def is_finished(self) -> bool:
                return fed.ends and not fed.values

        class Impl(StatelessSourceImpl[Any, Any, Any]):
            def list_parts(self) -> list[str]:
                return ["p"]

            def build_part(self, _part: str) -> Any:
                return Part()

        return StatelessSource(Impl())


def flow(fed: Fed, *, local: bool = False, state: Callable[..., Any] = count) -> Callable[[StreamProvider], None]:
    def build(provider: StreamProvider) -> None:
        values = provider.new_stream().source("values", fed.build()).map("same", lambda value: value)
        by = values.key_local if local else values.key_distribute
        keyed = by("key", lambda msg: msg.value)
        keyed.stateful_map("count", state, default=int).sink("out", VecSink())
        if not local:
            timed, _ = values.generate_epochs("epochs", lambda msg, _: msg.timestamp, per_part=False)
            again = timed.key_distribute("again", lambda msg: msg.value)
            again.window(tumbling(5)).aggregate("sums", agg.count())

    return build


@contextmanager
def running(
    kind: Any = SingleThreadRuntime, fed: Fed | None = None, *, values: Any = ("a",), **flow_options: Any
) -> Iterator[RunHandle]:
    """Start a run that has taken some values; end it afterwards."""
    fed = fed or Fed()
    fed.values += values
    handle = kind(flow(fed, **flow_options), parallelism=2).start()
    try:
        while fed.values or handle.progress.records.get("count", 0) < len(values):
            assert not handle.has_ended
            threading.Event().wait(0.001)
        yield handle
    finally:
        handle.stop()
        handle.await_termination(SECONDS)


@pytest.mark.fault("K8")
@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda it: it.state("cuont"), r"no operator 'cuont'; did you mean 'count'\?"),
        (lambda it: it.state("nothing"), "no operator 'nothing'; those with state are 'count', 'sums'"),
        (lambda it: it.state("same"), "'same' keeps no state; those that do are 'count', 'sums'"),
        (
            lambda it: it.state("sums/epoch"),
            r"'sums/epoch' is epochs \(watermarks\), which can't be asked for; read_state",
        ),
        (lambda it: it.state("epochs"), r"the state of 'epochs' is epochs"),
        (lambda it: it.windows("count"), r"'count' is a stateful_map, which has no windows; use state\(\)"),
        (lambda it: it.windows("smus"), r"no operator 'smus' with windows; did you mean 'sums'\?"),
        (lambda it: it.state("count").get([1]), "'count' can't be read by key: "),
        (lambda it: it.state("count").get(float("nan")), "'count' can't be read by key: "),
        (lambda it: it.state("count").get_many([1, object()]), "'count' can't be read by key: "),
        (lambda it: it.state("sums").get("a"), r"whose keys are \(pane, key\); got key 'a'; windows\(\).get\(\) takes"),
        (lambda it: it.windows("sums").get([1]), "'sums' can't be read by key: "),
        (lambda it: it.windows("sums").get("a", unit="day"), "'sums' is a window; only a rollup has units"),
        (lambda it: it.state("count").items(limit=0), "limit must be a whole number, at least 1; got 0"),
        (lambda it: it.state("count").items(limit=True), "limit must be a whole number, at least 1; got True"),
        (
            lambda it: it.state("count").items(limit=10_001),
            r"limit may be 10,000 at most; got 10,001; for all .* read_state",
        ),
        (lambda it: it.state("count").get_many(range(10_001)), "takes 10,000 keys at most; for all of a large state"),
    ],
)
def test_mistakes_are_named_before_anything_is_asked(ask: Any, said: str) -> None:
    with running() as handle:
        with pytest.raises(GraphError, match=said):
            ask(handle)
        assert not handle._requests.mailbox.has_new


@pytest.mark.fault("K8")
@RUNTIMES
def test_a_key_without_a_state_is_no_none(kind: Any) -> None:
    with running(kind) as handle:
        counts = handle.state("count")
        with pytest.raises(QueryError, match="'count' has no state for key 'b'; pass default= if that may be"):
            counts.get("b").result(SECONDS)
        assert counts.get("b", default=None).result(SECONDS) is None
        assert counts.get_many("ab").result(SECONDS) == {"a": 1}
        assert counts.get("a").result(SECONDS) == 1
        assert handle.windows("sums").get("b").result(SECONDS) == []


@pytest.mark.fault("K9")
def test_a_question_from_the_run_itself_is_refused() -> None:
    refused: list[GraphError] = []
    handles: Future[RunHandle] = Future()

    def ask(_key: Any, _value: Any, so_far: int) -> tuple[int, int]:
        handle = handles.result(SECONDS)
        for view in (handle.state("count"), handle.windows("sums")):
            try:
                view.get("a")
            except GraphError as error:
                refused.append(error)
        return so_far, so_far + 1

    fed = Fed()
    handle = SingleThreadRuntime(flow(fed, state=ask)).start()
    handles.set_result(handle)
    fed.values.append("a")
    fed.ends = True
    handle.await_termination(SECONDS)
    assert [str(it) for it in refused] == [
        "a question is answered by the run between two ticks, which can't continue while this code waits for it; ask "
        "from another thread"
    ] * 2


@pytest.mark.fault("K9")
def test_an_answer_can_not_be_waited_for_by_the_run_itself() -> None:
    futures: Future[Future[Any]] = Future()
    refused: list[GraphError] = []

    def wait(_key: Any, _value: Any, so_far: int) -> tuple[int, int]:
        try:
            futures.result(SECONDS).result(SECONDS)
        except GraphError as error:
            refused.append(error)
        return so_far, so_far + 1

    fed = Fed()
    handle = SingleThreadRuntime(flow(fed, state=wait)).start()
    fed.values.append("a")
    threading.Event().wait(0.05)
    futures.set_result(handle.state("count").get("a"))
    fed.ends = True
    handle.await_termination(SECONDS)
    assert "can't continue while this code waits for it" in str(refused[0])


@pytest.mark.fault("K9")
@RUNTIMES
def test_before_and_after_a_run_nothing_can_be_asked(kind: Any) -> None:
    fed = Fed()
    runtime = kind(flow(fed))
    for view in (runtime.state, runtime.windows):
        with pytest.raises(QueryError, match=r"nothing runs that could be asked: call start\(\) first"):
            view("count")
    fed.ends = True
    runtime.execute()
    with pytest.raises(QueryError, match=r"the run has ended; read_state\(\) reads its last snapshot"):
        runtime.state("count").get("a")


def fail(_key: Any, value: Any, so_far: int) -> tuple[int, int]:
    if value == "bad":
        raise ValueError("bad")
    return so_far, so_far + 1


@pytest.mark.fault("K9")
@RUNTIMES
@pytest.mark.parametrize("end", ["stop", "error", "input"])
def test_no_question_is_left_when_a_run_ends(kind: Any, end: str) -> None:
    fed = Fed()
    fed.values.append("a")
    handle = kind(flow(fed, state=fail), parallelism=2).start()
    view, asked, is_answered = handle.state("count"), list[Future[Any]](), threading.Event()

    def ask() -> None:
        with suppress(QueryError):
            while True:
                asked.append(view.get("a", default=0))
                time.sleep(0.001)
                if len(asked) > 1 and asked[0].done():
                    is_answered.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert is_answered.wait(SECONDS)
    {"stop": handle.stop, "error": lambda: fed.values.append("bad"), "input": bool}[end]()
    fed.ends = end == "input"
    with pytest.raises(OperatorError) if end == "error" else nullcontext():
        assert handle.await_termination(SECONDS)
    thread.join(SECONDS)
    cause = OperatorError if end == "error" else type(None)
    errors = [it.exception(0) for it in asked]
    assert {it.result(0) for it in asked if it.exception(0) is None} <= {0, 1}
    for error in filter(None, errors):
        assert isinstance(error, QueryError)
        assert str(error) == "operator 'count' was not asked: the run ended before"
        assert isinstance(error.__cause__, cause)


@RUNTIMES
def test_a_question_that_is_cancelled_is_not_answered(kind: Any) -> None:
    with running(kind) as handle:
        future = handle.state("count").get("a")
        if future.cancel():
            assert future.cancelled()
        assert handle.state("count").get("a").result(SECONDS) == 1


@pytest.mark.fault("K8")
@RUNTIMES
def test_a_key_that_several_workers_have_is_not_chosen_among_them(kind: Any) -> None:
    """Under key_local each worker may have it; here two parts are on two workers."""
    runtime: Any = None
    handles: list[RunHandle] = []

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource({f"part {at}": ["x"] for at in range(8)})
        local = provider.new_stream().source("values", source).key_local("key", lambda msg: msg.value)
        local.stateful_map("count", count, default=int)
        provider.new_stream().source("open", Fed().build())

    runtime = kind(build, parallelism=2)
    handles.append(runtime.start())
    view = handles[0].state("count")
    try:
        while len(view.items().result(SECONDS)) < 2:
            pass
        with pytest.raises(
            QueryError, match=r"'count' has states for key 'x' on several workers.*key_local\(\); use items"
        ):
            view.get("x").result(SECONDS)
        with pytest.raises(QueryError, match="on several workers"):
            view.get_many(["x"]).result(SECONDS)
        assert sum(state for _, state in view.items().result(SECONDS)) <= 8
    finally:
        handles[0].stop()
        handles[0].await_termination(SECONDS)


class Uncopied:
    """A state that can be neither copied nor pickled."""

    def __deepcopy__(self, _memo: Any) -> Any:
        raise OSError("no copies of this")

    def __reduce__(self) -> Any:
        raise OSError("no copies of this")


@pytest.mark.fault("K8")
@RUNTIMES
def test_a_state_that_can_not_be_copied_is_named_and_the_run_continues(kind: Any) -> None:
    held = Uncopied()
    with running(kind, state=lambda _key, value, _so_far: (value, held)) as handle:
        view = handle.state("count")
        for future in (view.get("a"), view.items()):
            with pytest.raises(QueryError, match=r"operator 'count': .*OSError: no copies of this"):
                future.result(SECONDS)
        assert handle.windows("sums").get("a").result(SECONDS)[0].value == 1


@dataclass(frozen=True)
class OfElsewhere:
    """A key or state whose class is not where it is read."""

    name: str = "a"

    def __reduce__(self) -> Any:
        return import_module, ("a_module_of_elsewhere",)


@pytest.mark.fault("K10")
def test_a_state_of_an_unknown_class_is_named_and_the_run_continues() -> None:
    with running(ThreadsRuntime, state=lambda _key, value, _so_far: (value, OfElsewhere())) as handle:
        view = handle.state("count")
        with pytest.raises(
            QueryError, match=r"'count': the answer can't be read here: ModuleNotFoundError: .*--py-files"
        ):
            view.get("a").result(SECONDS)
        assert view.get("b", default=0).result(SECONDS) == 0


@pytest.mark.fault("K10")
def test_a_key_of_an_unknown_class_is_named_and_the_run_continues() -> None:
    with running(ThreadsRuntime) as handle:
        view = handle.state("count")
        with pytest.raises(QueryError, match="'count': a key can't be read by the workers: ModuleNotFoundError: "):
            view.get(OfElsewhere()).result(SECONDS)
        assert view.get("a").result(SECONDS) == 1


@pytest.mark.fault("K8")
def test_an_answer_that_is_too_large_to_send_is_refused() -> None:
    large = bytes(5 << 20)
    with (
        running(ThreadsRuntime, state=lambda _key, value, _so_far: (value, large)) as handle,
        pytest.raises(QueryError, match=r"the answer of worker \d has 5,\d+,\d+ bytes, more than 4,194,304; ask for"),
    ):
        handle.state("count").get("a").result(SECONDS)


@RUNTIMES
def test_answers_are_copies(kind: Any) -> None:
    def collect(_key: Any, value: Any, so_far: Any) -> Any:
        return len(so_far or []), [*(so_far or []), [value]]

    with running(kind, state=collect) as handle:
        view = handle.state("count")
        view.get("a").result(SECONDS)[0].append("changed")
        view.items().result(SECONDS)[0][1].clear()
        assert view.get("a").result(SECONDS) == [["a"]]


def test_more_keys_than_a_tick_answers_wait_for_the_next_one() -> None:
    with running(values=range(50)) as handle:
        view = handle.state("count")
        answers = in_a_thread(lambda: [view.get_many(range(9_000)) for _ in range(4)])
        assert all(len(it.result(SECONDS)) == 50 for it in answers)
        assert len({it.tick for it in answers}) == 4


@pytest.mark.slow
def test_too_many_waiting_questions_are_refused() -> None:
    class Slow(int):
        def __deepcopy__(self, _memo: Any) -> Any:
            is_asked.set()
            goes_on.wait(SECONDS)
            return self

    is_asked, goes_on = threading.Event(), threading.Event()
    with running(state=lambda _key, value, _so_far: (value, Slow(1))) as handle:
        view = handle.state("count")
        first = view.get("a")
        is_asked.wait(SECONDS)
        others = [view.get("b", default=0) for _ in range(10_000)]
        with pytest.raises(QueryError, match="10,000 questions wait for an answer; wait for some"):
            view.get("b")
        goes_on.set()
        assert first.result(SECONDS) == 1
        assert {it.result(SECONDS) for it in others} == {0}
