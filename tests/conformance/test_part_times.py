"""Parts of a source keep their own times up to the epoch generator, or the dataflow is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from malflow import (
    DataMessage,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    StatefulLogic,
    StreamProvider,
    agg,
    limit_out_of_orderness,
)
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource, Timed

LOG = "malflow.runtime"

BACKLOG = {part: [Timed((part, at), start + at) for at in range(400)] for part, start in (("a", 0), ("b", 1000))}
"""Two parts in order, of which one is far ahead of the other."""

Build = Callable[[Any], Any]


class Again(StatefulLogic[Any, Any, Any, Any, int]):
    """Sends each message on with its key, and counts them."""

    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        output.send(DataMessage(msg.key, msg.value, msg.timestamp))
        return (state or 0) + 1


def resend(msg: Any, output: Any) -> None:
    output.send(DataMessage(msg.key, msg.value, msg.timestamp))


def send_by_hundred(msg: Any, output: Any) -> None:
    output.send(DataMessage(msg.timestamp // 100, msg.value, msg.timestamp))


def split_and_merged(stream: Any) -> Any:
    one, other = stream.cloned("clones", 2)
    one = one.filter("a only", lambda value: value[0] == "a")
    return one.union(other.filter("b only", lambda value: value[0] == "b"))


CARRIES: dict[str, Build] = {
    "stateless_op": lambda stream: stream.stateless_op("again", resend),
    "stateful_op": lambda stream: stream.stateful_op("again", Again()),
}

MIXES: dict[str, tuple[Build, str]] = {
    "key_distribute": (lambda it: it.key_distribute("key", lambda msg: msg.value[1]), "operator 'key'"),
    "key_local": (lambda it: it.key_local("key", lambda msg: msg.value[1]), "operator 'key'"),
    "key, map, timestamps": (
        lambda it: it.key_local("key", lambda msg: 1).map("m", lambda v: v).assign_timestamps("t", lambda m: 1),
        "operator 'key'",
    ),
    "a branch with other keys": (
        lambda it: it.union(it.key_local("key", lambda msg: msg.value[1]), name="both"),
        "operator 'key'",
    ),
}


def late_of(runtime: Any, build: Build, **options: Any) -> list[Any]:
    late: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = build(provider.new_stream().source("s", ScriptedSource(BACKLOG)))
        stream.generate_epochs("e", limit_out_of_orderness(0), **options)[1].sink("late", late)

    runtime(build_dataflow).execute()
    return late.values


@pytest.mark.parametrize("how", CARRIES)
def test_parts_keep_their_times(any_parallelism: Any, how: str) -> None:
    assert late_of(any_parallelism, CARRIES[how]) == []


@pytest.mark.parametrize("how", MIXES)
def test_streams_that_mix_parts_need_epochs_before(how: str) -> None:
    build, culprit = MIXES[how]
    with pytest.raises(GraphError, match=rf"operator 'e' would have one time .* of source 's'.*; {culprit} \[.*py:\d+"):
        late_of(SingleThreadRuntime, build)


def rows_everywhere(stream: Any) -> Any:
    rows = stream.key_distribute("row key", lambda msg: msg.value[1])
    return stream.join_broadcast("joined", rows.to_table("rows"), lambda value, _rows: value)


def test_a_join_with_rows_of_all_workers_needs_epochs_before(runtime: Any) -> None:
    with pytest.raises(
        GraphError, match=r"each part of source 's': operator 'joined' \[.*py:\d+\] comes before it, and "
    ):
        late_of(SingleThreadRuntime, rows_everywhere)
    assert late_of(runtime, rows_everywhere, per_part=False) != []


def test_branches_of_one_source_need_epochs_before() -> None:
    with pytest.raises(
        GraphError, match=r"operator 'e' would get the records of source 's' in another order"
    ) as failure:
        late_of(SingleThreadRuntime, split_and_merged)
    assert "merges branches of one stream" in str(failure.value)


@pytest.mark.parametrize("how", MIXES)
def test_one_time_for_all_parts_can_be_accepted(runtime: Any, how: str) -> None:
    assert late_of(runtime, MIXES[how][0], per_part=False) != []


def test_streams_with_epochs_may_have_others_later(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        on_time, _ = stream.generate_epochs("first", limit_out_of_orderness(0))
        return on_time.key_distribute("key", lambda msg: 1).assign_timestamps("t", lambda msg: msg.timestamp - 5000)

    assert all(part == "a" for part, _ in late_of(runtime, build)), "one time for all, which was said by the first"


def test_sources_that_are_merged_need_epochs_before() -> None:
    def build(provider: StreamProvider) -> None:
        one, two = (provider.new_stream().source(name, SingleIteratorSource([1])) for name in ("one", "two"))
        one.union(two, name="both").generate_epochs("e", limit_out_of_orderness(0))

    with pytest.raises(GraphError, match=r"sources 'one' and 'two', .*; operator 'both' \[.*py:\d+\] merges streams; "):
        SingleThreadRuntime(build).execute()


def test_an_iterable_has_one_time_wherever_epochs_are_generated(any_parallelism: Any) -> None:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        keyed = (
            provider.new_stream().source("s", SingleIteratorSource(range(20))).key_distribute("k", lambda m: m.value)
        )
        clones = keyed.cloned("clones", 2)
        merged = clones[0].filter("none", lambda _: False).union(clones[1])
        merged.generate_epochs("e", lambda m, _: None, per_part=False)[0].sink("o", out)

    any_parallelism(build).execute()
    assert sorted(out.values) == list(range(20))


def test_a_message_with_the_key_of_no_part_is_refused(any_parallelism: Any) -> None:
    with pytest.raises(OperatorError, match=r"operator 'e' failed at key \d.* its key is not a part of source 's'"):
        late_of(any_parallelism, lambda stream: stream.stateless_op("other keys", send_by_hundred))


def warnings_of(caplog: pytest.LogCaptureFixture, runtime: Any, times: list[int], is_read: bool = False) -> list[str]:
    """Return the warnings of late records; there are a hundred records in a tick."""
    script = [it for at, time in enumerate(times) for it in [PAUSE] * (at % 100 == 0) + [Timed(at, time)]]

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", ScriptedSource(script))
        on_time, late = stream.generate_epochs("e", limit_out_of_orderness(5))
        on_time.key_distribute("k", lambda msg: 1).aggregate("n", agg.count()).sink("o", VecSink())
        if is_read:
            late.sink("late", VecSink())

    with caplog.at_level(logging.WARNING, LOG):
        runtime(build).execute()
    return [it.getMessage() for it in caplog.records if "are late" in it.getMessage()]


def test_many_late_records_are_told_once_while_the_run_goes_on(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    times = [number - 50 * (number % 40 == 39) for number in range(3000)]
    (warning,) = warnings_of(caplog, runtime, times)
    assert "are late at operator 'e', by up to 44; use a larger bound for its generator" in warning
    assert int(warning.split()[2]) in range(1000, 2900)


def test_few_late_records_are_not_told(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    times = [number - 50 * (number % 200 == 199) for number in range(3000)]
    assert warnings_of(caplog, runtime, times) == []


def test_late_records_that_are_read_may_be_more(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    for every, count in ((40, 0), (5, 1)):
        times = [number - 50 * (number % every == every - 1) for number in range(3000)]
        assert len(warnings_of(caplog, runtime, times, is_read=True)) == count
