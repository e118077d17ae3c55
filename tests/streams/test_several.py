"""Methods that return several streams: unpacked, by name, and with an error if one is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.windows import tumbling
from tests.conformance.dataflow import sis


def matches(on_time: Any, late: Any) -> Any:
    return on_time.match("op", step("one"))


def epochs(on_time: Any, late: Any) -> Any:
    return on_time.generate_epochs("op", limit_out_of_orderness(0))


def stamped(on_time: Any, late: Any) -> Any:
    return on_time.assign_timestamps("at", lambda msg: msg.value).generate_epochs("op", limit_out_of_orderness(0))


def throttled(on_time: Any, late: Any) -> Any:
    return on_time.throttle("op", 1, per=1)


def late_results(on_time: Any, late: Any) -> Any:
    return on_time.window(tumbling(2)).allow_late(late).aggregate("op", agg.count())


def late_groups(on_time: Any, late: Any) -> Any:
    return on_time.window(tumbling(2)).allow_late(late).cogroup("op", on_time)


METHODS: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "match": (matches, ("matches", "timeouts", "late")),
    "generate_epochs": (epochs, ("on_time", "late")),
    "generate_epochs of new times": (stamped, ("on_time", "late")),
    "throttle": (throttled, ("passed", "held_back")),
    "aggregate with late records": (late_results, ("results", "revised", "too_late")),
    "cogroup with late records": (late_groups, ("results", "too_late")),
}


def build(use: Callable[[Any], None], make: Callable[[Any, Any], Any]) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis([1, 2]))
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        use(make(on_time.key_distribute("on time", lambda msg: 1), late.key_distribute("late", lambda msg: 1)))

    SingleThreadRuntime(build_dataflow).execute()


@pytest.mark.parametrize("method", METHODS)
def test_streams_are_unpacked_and_named(method: str) -> None:
    make, names = METHODS[method]
    sink: Any = VecSink()

    def use(streams: Any) -> None:
        assert isinstance(streams, tuple)
        assert tuple(streams) == tuple(getattr(streams, name) for name in names)
        streams[0].sink("sink", sink)

    build(use, make)
    assert sink.values


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("called", ["map", "sink", "map_with_key"])
def test_a_method_of_one_stream_tells_which_there_are(method: str, called: str) -> None:
    make, names = METHODS[method]
    with pytest.raises(AttributeError) as caught:
        build(lambda streams: getattr(streams, called), make)
    shown = ", ".join(names)
    assert f"is not a stream, but has several: {shown}; take one first, such as .{names[0]}.{called}(...)" in str(
        caught.value
    )


def test_a_method_that_no_stream_has_is_told_as_on_a_stream() -> None:
    with pytest.raises(AttributeError, match=r"'KeyedStream' object has no attribute 'key_by'; call .key_distribute"):
        build(lambda streams: streams.key_by, matches)


def test_protocols_of_python_find_nothing_new() -> None:
    def use(streams: Any) -> None:
        assert not hasattr(streams, "__array__")
        assert not hasattr(streams, "_repr_html_")

    build(use, matches)
