"""Rows that stay columns until they are read, compared with the equal dicts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import MalflowError, SingleThreadRuntime, SparkRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.connectors.parquet import ArrowSource
from malflow.patterns import step
from malflow.records.rows import Rows
from malflow.sinks import StatelessSinkImpl, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource
from malflow.windows import counting, session, tumbling

SCHEMA = pa.schema([("town", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("flag", pa.bool_())])

towns = st.sampled_from(["Ulm", "Bonn", "Köln", "Kiel"])
numbers = st.integers(-5, 5)
floats = st.sampled_from([0.0, -0.0, 0.1, 0.2, 1e16, -1e16, 3.5])
maybe = st.integers(0, 40).map(lambda number: number == 0)


@st.composite
def rows(draw: Any) -> list[dict[str, Any]]:
    """Draw rows; one in many has a null."""

    def nullable(strategy: Any) -> Any:
        return None if draw(maybe) else draw(strategy)

    return [
        {"town": nullable(towns), "n": nullable(numbers), "x": nullable(floats), "flag": nullable(st.booleans())}
        for _ in range(draw(st.integers(0, 25)))
    ]


AGGREGATORS: dict[str, Callable[[], Any]] = {
    "count": agg.count,
    "sum": lambda: agg.sum("n"),
    "sum of floats": lambda: agg.sum("x"),
    "mean": lambda: agg.mean("x"),
    "max": lambda: agg.max("n"),
    "max_by": lambda: agg.max_by("n"),
    "last": lambda: agg.last("flag"),
    "sum of a function": lambda: agg.sum(lambda row: row["n"] * 2),
    "collect": lambda: agg.collect("town"),
    "missing": lambda: agg.sum("rivers"),
}

OF_FIELDS = ["count", "sum", "sum of floats", "mean", "max", "last"]
"""Those that read columns."""

STEPS: dict[str, Callable[[Any], Any]] = {
    "keep all": lambda stream: stream,
    "filter": lambda stream: stream.filter("positive", lambda row: (row["n"] or 0) >= 0),
    "change in place": lambda stream: stream.inspect("change", lambda msg, _: msg.value.update(n=1)),
    "copy": lambda stream: stream.map("copy", dict),
    "split": lambda stream: stream.split("two", 2, lambda msg, flags: flags.__setitem__(msg.timestamp % 2, True))[0],
    "union": lambda stream: stream.union(*stream.cloned("two", 2)[1:]),
}

KEYS = {"field": "town", "function": lambda msg: msg.value["town"], "missing": "river", "flag": "flag"}


def of_town(row: dict[str, Any]) -> bool:
    return row["town"] is not None


def timed(keyed: Any, bound: int) -> Any:
    """Generate epochs (watermarks), behind the keys."""
    return keyed.generate_epochs("epochs", limit_out_of_orderness(bound), per_part=False).on_time


ENDS: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "running": lambda keyed, them: keyed.aggregate("total", *them),
    "windows": lambda keyed, them: timed(keyed, 1000).window(tumbling(7)).aggregate("total", *them),
    "windows with epochs": lambda keyed, them: timed(keyed, 2).window(tumbling(7)).aggregate("total", *them),
    "numbered windows": lambda keyed, them: keyed.window(counting(4, 2)).aggregate("total", *them),
    "sessions": lambda keyed, them: timed(keyed, 1000).window(session(3)).aggregate("total", *them),
    "pattern": lambda keyed, _: (
        keyed.match("two", step("a", of_town).next(step("b", of_town)), order="arrival").matches
    ),
}


def key_of(record: tuple[str, str, Any]) -> str:
    return record[0]


def outcome(source: Any, build: Callable[[Any], Any], runtime: Any) -> Any:
    """Run a dataflow; return the records that came out, or the error's text."""
    sink = VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("towns", source)).sink("out", sink)

    try:
        runtime(build_dataflow).execute()
    except MalflowError as error:
        return str(error), getattr(error, "__notes__", None)
    return [(repr(msg.key), repr(msg.value), msg.timestamp) for msg in sink]


@given(
    rows(),
    st.just([]) | st.lists(st.sampled_from(sorted(STEPS)), max_size=2),
    st.just("field") | st.sampled_from(sorted(KEYS)),
    st.sampled_from(["keep all", "union"]) | st.sampled_from(sorted(STEPS)),
    st.sampled_from(sorted(ENDS)),
    st.lists(st.sampled_from(OF_FIELDS), min_size=1, max_size=3)
    | st.lists(st.sampled_from(sorted(AGGREGATORS)), min_size=1, max_size=3),
    st.sampled_from([1, 3]),
)
@pytest.mark.slow
def test_columns_give_what_dicts_give(
    given_rows: list[dict[str, Any]],
    before: list[str],
    key: str,
    after: str,
    end: str,
    aggregators: list[str],
    workers: int,
) -> None:
    def build(stream: Any) -> Any:
        for name in before:
            stream = STEPS[name](stream)
        keyed = STEPS[after](stream.key_distribute("key", KEYS[key]))
        return ENDS[end](keyed, [AGGREGATORS[name]() for name in aggregators])

    def runtime(build_dataflow: Any) -> Any:
        return SingleThreadRuntime(build_dataflow, parallelism=workers)

    table = pa.Table.from_pylist(given_rows, SCHEMA)
    dicts = [dict(row) for row in given_rows]
    sources = [ArrowSource(table), StatelessSource(SingleIteratorSource(dicts))]
    found, expected = (outcome(source, build, runtime) for source in sources)
    if workers > 1:  # the order of keys, and which of two errors comes first, depends on where ticks end
        found, expected = (sorted(it, key=key_of) if isinstance(it, list) else "an error" for it in (found, expected))
    assert found == expected


@given(rows().filter(bool), st.data())
@pytest.mark.slow
def test_rows_are_a_list_of_dicts(dicts: list[dict[str, Any]], data: Any) -> None:
    """Cut, choose and read rows in any order."""
    them: Any = Rows({name: [row[name] for row in dicts] for name in SCHEMA.names})
    for act in data.draw(
        st.lists(st.sampled_from(["slice", "select", "take", "pickle", "read", "iterate"]), max_size=5)
    ):
        if act == "slice":
            part = data.draw(st.slices(len(dicts)))
            them, dicts = them[part], dicts[part]
        elif act == "select" and isinstance(them, Rows):
            mask = data.draw(st.lists(st.booleans(), min_size=len(dicts), max_size=len(dicts)))
            them, dicts = them.select(mask), list(compress(dicts, mask))
        elif act == "take" and isinstance(them, Rows) and len(dicts) > 1:
            them, dicts = them.take([0, len(dicts) - 1]), [dicts[0], dicts[-1]]
        elif act == "pickle":
            them = pickle.loads(pickle.dumps(them, 5))
        elif act == "read" and isinstance(them, Rows):
            column = them.column("n")
            assert column is None or list(column) == [row["n"] for row in dicts]
        elif act == "iterate" and dicts:
            assert them[-1] == next(iter(them[len(dicts) - 1 :]))
        assert len(them) == len(dicts)
    assert list(them) == dicts
    assert isinstance(them, (tuple, list)) or (them == dicts and repr(them) == repr(dicts))


def test_changed_rows_are_what_is_read_later() -> None:
    them = Rows({"n": [1, 2]})
    them[1]["n"] = 5
    assert them.column("n") is None
    assert list(them[1:]) == [{"n": 5}]
    assert pickle.loads(pickle.dumps(them)) == [{"n": 1}, {"n": 5}]


@pytest.mark.spark
@pytest.mark.nightly
def test_columns_between_processes(spark: Any) -> None:
    table = pa.table({"town": ["Ulm", "Bonn", "Kiel"] * 40, "n": list(range(120))})

    def build(stream: Any) -> Any:
        return stream.key_distribute("key", "town").aggregate("total", agg.sum("n"), agg.count())

    found = sorted(outcome(ArrowSource(table), build, lambda build: SparkRuntime(build, parallelism=2, spark=spark)))
    assert found == sorted(
        outcome(StatelessSource(SingleIteratorSource(table.to_pylist())), build, SingleThreadRuntime)
    )
    assert len(found) == 120


class Batches(StatelessSinkImpl[Any, Any, Any]):
    """A sink that keeps the types of what it is given."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()

    def sink(self, msg: Any) -> None:
        raise AssertionError(msg)

    def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
        self.kinds.add(type(values))


def test_a_sink_of_batches_gets_lists() -> None:
    sink = Batches()
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("n", ArrowSource(pa.table({"n": [1]}))).sink("out", sink)
    ).execute()
    assert sink.kinds == {list}
