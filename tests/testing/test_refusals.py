"""`assert_exactly_once` with targets that refuse records: each is delivered once, or is one dead letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow import GraphError, OnError, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import StatefulSink, VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import assert_exactly_once
from malflow.testing.differences import difference
from malflow.testing.laws import likeness
from malflow.testing.trial import Outcome, Written, built
from malflow.windows import tumbling

pytestmark = pytest.mark.slow

FEW = 8
"""How many schedules are tried."""

REFUSES = {"sums": lambda value: value % 3 == 0}


def sums(provider: StreamProvider, **how: Any) -> None:
    """Write running sums; a target may refuse those that can be divided by three."""
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([]))
    keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
    added = keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), int)
    added.sink("sums", VecSink(), **how)


def lettered(provider: StreamProvider) -> None:
    sums(provider, on_error="dead_letter")


@pytest.mark.fault("N18")
def test_a_refused_record_is_one_letter_whatever_crashes() -> None:
    assert_exactly_once(lettered, range(9), refuses=REFUSES, max_examples=FEW)


def test_letters_that_are_replayed_are_refused_again() -> None:
    assert_exactly_once(lettered, range(7), refuses=REFUSES, replays={5: ["sums"]}, max_examples=FEW // 2)


def test_results_of_the_end_are_refused_too() -> None:
    def counts(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([]))
        on_time, _ = numbers.generate_epochs("epochs", limit_out_of_orderness(0))
        windows = on_time.key_distribute("all", lambda _: "all").window(tumbling(4))
        windows.aggregate("counts", agg.count()).sink("out", VecSink(), on_error="dead_letter")

    assert_exactly_once(counts, range(7), refuses={"out": lambda it: it.value == 3}, max_examples=FEW // 2)


def test_a_sink_with_parts_is_asked_for_values() -> None:
    class Parts:
        """A sink that is never used."""

        def assign_part(self, msg: Any) -> Any:
            return msg.value % 2

        def build_part(self, part: Any, state: Any) -> Any:
            raise AssertionError("it was built")

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([]))
        sink: Any = StatefulSink(Parts())  # type: ignore[arg-type] # it has what it needs
        numbers.key_distribute("key", lambda msg: msg.value).sink("out", sink, on_error="dead_letter")

    assert_exactly_once(build, range(5), refuses={"out": lambda value: value == 3}, max_examples=FEW // 2)


def test_letters_that_depend_on_an_object_of_a_run_are_found() -> None:
    def build(provider: StreamProvider) -> None:
        seen: list[int] = []

        def fate(_: Any) -> Any:
            seen.append(0)
            return "dead_letter" if len(seen) == 1 else "skip"

        sums(provider, on_error=OnError(fate))

    with pytest.raises(AssertionError, match="is not exactly once in its target or among its dead letters"):
        assert_exactly_once(build, range(7), refuses=REFUSES, max_examples=FEW)


# How records are compared


def outcome(target: str, letters: str) -> Outcome:
    """Return an outcome of letters of the alphabet; the sink received a, b and c."""
    accepted, refused, received = (
        [Written(likeness(it), "'k'", it) for it in them] for them in (target, letters, "abc")
    )
    return Outcome({"numbers": {}, "sum": {}}, {"sums": accepted}, {"sums": received}, {"sums": refused})


@pytest.mark.parametrize(
    ("target", "letters"), [("a", "b"), ("ab", "bc"), ("abb", "c"), ("ab", ""), ("ab", "cc"), ("", "abcc")]
)
def test_a_record_that_is_lost_or_there_twice_is_a_difference(target: str, letters: str) -> None:
    assert difference(built(lettered), outcome("ab", "c"), outcome(target, letters))


def test_a_record_that_is_a_letter_in_another_run_is_a_difference() -> None:
    assert difference(built(lettered), outcome("ab", "c"), outcome("abc", ""))
    assert not difference(built(lettered), outcome("ab", "c"), outcome("ba", "c"))


# How it is asked


@pytest.mark.parametrize(
    ("refuses", "message"),
    [
        ({"sum": bool}, r"refuses has 'sum'; the sinks of the dataflow are 'sums'"),
        ({"sums": 3}, "refuses takes a function of a value for sink 'sums'; got 3"),
        (["sums"], r"refuses takes a mapping from sink to a function of a value, as in .*; got \['sums'\]"),
    ],
)
def test_arguments_that_name_no_refusals_are_errors(refuses: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        assert_exactly_once(lettered, [], refuses=refuses)


@pytest.mark.parametrize("how", [{}, {"on_error": "skip"}])
def test_a_sink_that_keeps_no_letters_is_an_error(how: dict[str, Any]) -> None:
    build: Callable[[StreamProvider], None] = lambda provider: sums(provider, **how)  # noqa: E731 - one of several
    with pytest.raises(GraphError, match="refuses has sink 'sums', whose policy keeps no dead letters"):
        assert_exactly_once(build, [], refuses=REFUSES)
