"""`assert_exactly_once` on tables: frames of drawn sizes, and what it finds with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from malflow import GraphError, OperatorError, StreamProvider, agg
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import ScriptedSource, assert_exactly_once
from malflow.testing.inputs import feed_of
from malflow.windows import tumbling

pytestmark = pytest.mark.slow

ROWS = pa.table({"k": [*"abcab" * 6], "n": [*range(30)]})


def flow(build: Any, source: Any = None) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("rows", source or SingleIteratorSource([]))).sink("out", VecSink())

    return build_dataflow


def sums(rows: Any) -> Any:
    doubled = rows.map_batches("double", lambda batch: batch.append_column("m", pc.multiply(batch["n"], 2)))
    few = doubled.filter_batches("few", lambda batch: pc.not_equal(batch["n"], 7))
    keyed = few.event_time("time", "n", out_of_orderness=3).key_distribute("k", "k")
    return keyed.window(tumbling(10)).aggregate("sums", agg.sum("m"), agg.count())


@pytest.mark.parametrize("runtime", ["single_thread", "processes"])
def test_columns_are_exactly_once(runtime: Any) -> None:
    assert_exactly_once(flow(sums), ROWS, max_examples=8 if runtime == "single_thread" else 2, runtime=runtime)


def test_failed_rows_are_exactly_once() -> None:
    def picky(batch: Any) -> Any:
        if any(it % 5 == 2 for it in batch["n"].to_pylist()):
            raise ValueError("two")
        return batch

    def build(rows: Any) -> Any:
        keyed = rows.key_distribute("k", "k").map_batches("picky", picky, on_error="park")
        return keyed.aggregate("count", agg.count())

    assert_exactly_once(flow(build), ROWS, max_examples=15, replays={3: ["picky"]})


@pytest.mark.parametrize("name", ["share", "running", "before"])
def test_functions_of_neighbours_are_found(name: str) -> None:
    functions: dict[str, Any] = {
        "share": lambda n: (n + 1) / (n + 1).sum(),
        "running": np.cumsum,
        "before": lambda n: np.roll(n, 1),
    }

    def append(batch: Any) -> Any:
        return batch.append_column("x", pa.array(functions[name](batch["n"].to_numpy())))

    with pytest.raises(OperatorError, match=r"another answer when its batch is cut: column 'x'") as caught:
        assert_exactly_once(flow(lambda rows: rows.map_batches("it", append)), ROWS, max_examples=2)
    assert "in a run with debug=True" in "".join(caught.value.__notes__)


def test_state_of_a_function_is_found() -> None:
    seen: list[int] = []

    def number(batch: Any) -> Any:
        seen.extend(batch["n"].to_pylist())
        return batch.append_column("at", pa.array([len(seen)] * batch.num_rows))

    with pytest.raises(AssertionError, match="two undisturbed runs have different results"):
        assert_exactly_once(flow(lambda rows: rows.map_batches("it", number)), ROWS, max_examples=2)


def test_frames_have_drawn_sizes() -> None:
    program_sources: Any = {"rows": _Node()}
    first, again = (feed_of(ROWS, program_sources).records for _ in range(2))
    other = feed_of(ROWS, program_sources, 1).records
    sizes = [len(it.value) for it in first]
    assert sizes == [len(it.value) for it in again] != [len(it.value) for it in other]
    assert sum(sizes) == 30
    assert len({*sizes}) > 1
    assert [at for it in first for at in it.timestamp] == [*range(30)]
    assert str(first[1]) == f"a frame of {sizes[1]} rows"
    assert [row["n"] for it in feed_of(ROWS.to_batches()[0], program_sources).records for row in it.value] == [
        *range(30)
    ]


class _Node:
    name, keyed = "rows", False


def test_parts_of_a_source_have_tables() -> None:
    source = ScriptedSource({"p": [], "q": []})
    build = flow(lambda rows: rows.map_batches("it", lambda batch: batch, with_key="part"), source)
    assert_exactly_once(build, {"rows": {"p": ROWS, "q": ROWS.slice(3)}}, max_examples=5)


def test_columns_that_no_source_can_have() -> None:
    table = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(GraphError, match="source 'rows' can't have these columns: column 't' has times"):
        assert_exactly_once(flow(lambda rows: rows), table, max_examples=1)
