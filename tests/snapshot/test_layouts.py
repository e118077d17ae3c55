"""Layouts of states: a program finds the parts of a state by their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import MultiProcessRuntime, SingleThreadRuntime, SnapshotError, StateLayout, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import END
from malflow.testing.scripted import ScriptedSource
from malflow.windows import session, sliding, tumbling
from tests.kit.backends import in_memory
from tests.kit.nights import at_night

NAMES = st.lists(st.text(st.sampled_from("ab; \\u003"), min_size=1, max_size=4), min_size=1, max_size=5, unique=True)


@given(NAMES, NAMES, st.text(st.sampled_from("a; \\"), max_size=3), st.data())
def test_parts_come_to_the_places_of_their_names(
    old: list[str], new: list[str], text: str, data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from(new), unique=True), "begin anew")
    before, after = StateLayout(text, [old]), StateLayout(text, [new], {it: lambda: "new" for it in known})
    found = after.arrangement(before.definition)
    assert found is not None
    lacking = [it for it in new if it not in {*old, *known}]
    assert len(after.missing(found)) == len(lacking)
    if not lacking:
        values = {it: at for at, it in enumerate(old)}
        assert found([*range(len(old))]) == [values.get(it, "new") for it in new]


@given(NAMES, NAMES, NAMES)
def test_lists_of_parts_are_told_apart(one: list[str], other: list[str], more: list[str]) -> None:
    layout = StateLayout("join", [["x", *one], ["x", *other]])
    assert layout.arrangement(StateLayout("join", [["x", *one, "x2", *other]]).definition) is None
    assert layout.arrangement(StateLayout("joins", layout.parts).definition) is None
    found = StateLayout("join", [["x"], [*more, "x"]]).arrangement(layout.definition)
    assert found is not None
    assert found.places[1][-1] == 0


PARTS = {"count": agg.count(), "sum": agg.sum("n"), "most": agg.max("n"), "mean": agg.mean("n")}
WINDOWS = {"tumbling": tumbling(4), "sliding": sliding(4, 2), "session": session(2)}
ROWS = [{"n": n, "at": at} for at, n in enumerate([5, 3, 8, 1, 9, 2, 7, 7])]


def run(
    build: Callable[[Any, Any], Any], backend: FsspecBackend, runtime: Any = SingleThreadRuntime, **options: Any
) -> Any:
    """Run a dataflow over keyed rows up to the next end of its source; return what it sends."""
    found: VecSink[Any, Any, Any] = VecSink()

    def all_of(provider: Any) -> None:
        rows = provider.new_stream().source("rows", ScriptedSource([*ROWS[:3], END, *ROWS[3:]]))
        timed = rows.generate_epochs("times", limit_out_of_orderness(0))[0]
        build(timed, lambda it: it.key_distribute("all", _all)).sink("out", found)

    runtime(all_of, backend, **options).execute()
    return sorted(found.values)


def _all(_message: Any) -> str:
    return "all"


def _value(result: Any) -> Any:
    return result.start, result.value


def aggregated(windows: Any, *names: str, timed: Any, keyed: Any) -> Any:
    """Aggregate rows in windows."""
    layout = StateLayout(f"{windows}", [names])
    results = keyed(timed).window(windows).aggregate("w", *[PARTS[it] for it in names], layout=layout)
    return results.map("value", _value)


def in_processes(*given: Any, **options: Any) -> Any:
    """Return a runtime with two processes."""
    return MultiProcessRuntime(*given, parallelism=2, processes=2, **options)


RUNTIMES = {"thread": SingleThreadRuntime, "two workers": partial(SingleThreadRuntime, parallelism=2)}
RUNTIMES |= {"processes": in_processes}  # type: ignore[dict-item]  # all are called alike


@pytest.mark.parametrize("runtime", at_night([*RUNTIMES], but=["thread", "two workers"]))
@pytest.mark.parametrize("windows", [*WINDOWS])
def test_accumulators_keep_the_parts_that_are_left(windows: str, runtime: str) -> None:
    backend, other = in_memory(), in_memory()
    make = partial(aggregated, WINDOWS[windows])
    run(lambda timed, keyed: make("count", "sum", "most", timed=timed, keyed=keyed), backend, at_end="keep")
    run(lambda timed, keyed: make("most", "count", timed=timed, keyed=keyed), other, at_end="keep")
    found = [
        run(
            lambda timed, keyed: make("most", "count", timed=timed, keyed=keyed), it, RUNTIMES[runtime], at_end="finish"
        )
        for it in (backend, other)
    ]
    assert found[0] == found[1] != []


def test_a_part_that_is_missing_is_refused_or_begins_anew() -> None:
    backend = in_memory()
    run(lambda timed, keyed: aggregated(tumbling(4), "count", timed=timed, keyed=keyed), backend, at_end="keep")
    with pytest.raises(
        SnapshotError, match="'w' is windows of 4; count; sum, but in snapshot 2 it is windows of 4; count"
    ):
        run(lambda timed, keyed: aggregated(tumbling(4), "count", "sum", timed=timed, keyed=keyed), backend)

    def begun(timed: Any, keyed: Any) -> Any:
        layout = StateLayout("windows of 4", [["count", "sum"]], {"sum": int})
        windows = keyed(timed).window(tumbling(4))
        return windows.aggregate("w", PARTS["count"], agg.sum("n"), layout=layout).map("value", _value)

    assert run(begun, backend, at_end="finish")[0] == (0, (4, 1))


def test_a_definition_without_a_layout_is_another_one() -> None:
    backend = in_memory()
    run(lambda timed, keyed: aggregated(tumbling(4), "count", timed=timed, keyed=keyed), backend, at_end="keep")
    with pytest.raises(SnapshotError, match="increase version="):
        run(lambda timed, keyed: keyed(timed).window(tumbling(4)).aggregate("w", agg.count()).map("v", _value), backend)
