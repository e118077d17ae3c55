"""Functions of batches in the frames of polars, pandas and narwhals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.parquet import ArrowSource
from malflow.sinks import VecSink
from tests.columns.flows import records_of, values_of
from tests.columns.test_functions_of_batches import ROWS, doubled

pl: Any = pytest.importorskip("polars", reason="needs polars")
pd: Any = pytest.importorskip("pandas", reason="needs pandas")
nw: Any = pytest.importorskip("narwhals", reason="needs narwhals")


def by_polars(frame: Any) -> Any:
    return frame.with_columns(twice=pl.col("n") * 2)


def by_pandas(frame: Any) -> Any:
    return frame.assign(twice=frame["n"].astype("Int64") * 2, n=frame["n"].astype("Int64"))


def by_narwhals(frame: Any) -> Any:
    return frame.with_columns(twice=nw.col("n") * 2)


def _narwhals(batch: Any) -> Any:
    return nw.from_arrow(batch, backend="polars")


def frames() -> list[Any]:
    return [
        (None, doubled),
        (pa.Table, doubled),
        (pa.RecordBatch, doubled),
        (pl.DataFrame, by_polars),
        (pd.DataFrame, by_pandas),
        (nw.from_native, by_narwhals),
        (_narwhals, by_narwhals),
        (None, lambda batch: pa.RecordBatchReader.from_batches(batch.schema, [batch])),
    ]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(("frame", "function"), frames())
def test_frames_of_libraries(frame: Any, function: Any, debug: bool) -> None:
    found = values_of(ROWS, lambda rows: rows.map_batches("twice", function, frame=frame), debug=debug)
    plain: list[dict[str, Any]] = [{"town": "Ulm", "n": 1}, {"town": "Bonn", "n": None}, {"town": "Ulm", "n": 3}]
    if found == plain:
        return
    assert found == [{**row, "twice": row["n"] and row["n"] * 2} for row in plain]
    assert {type(item) for row in found for item in row.values()} == {str, int, type(None)}


FLAGS = [
    (pl.DataFrame, lambda frame: frame["n"] > 1),
    (pl.DataFrame, lambda frame: frame.select(pl.col("n") > 1)),
    (pd.DataFrame, lambda frame: frame["n"] > 1),
    (pd.DataFrame, lambda frame: frame["n"].astype("Int64") > 1),
]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(("frame", "function"), FLAGS)
def test_flags_of_libraries(frame: Any, function: Any, debug: bool) -> None:
    found, _ = records_of(ROWS, lambda rows: rows.filter_batches("large", function, frame=frame), debug=debug)
    assert [(value, at) for _, value, at in found] == [({"town": "Ulm", "n": 3}, 2)]


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_a_column_that_is_misspelt(frame: Any) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'it' failed .*the batch has no column 'twon'; did you mean 'town'"
    ):
        values_of(ROWS, lambda rows: rows.map_batches("it", lambda it: it["twon"], frame=frame))


def test_a_lazy_frame_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"which is not a frame of columns; call .collect\(\)"):
        values_of(ROWS, lambda rows: rows.map_batches("it", lambda frame: frame.lazy(), frame=pl.DataFrame))


def test_a_join_by_polars_keeps_rows_and_their_order() -> None:
    towns = pl.DataFrame({"town": ["Bonn", "Ulm"], "people": [336_000, 130_000]})
    join = lambda frame: frame.join(towns, on="town", how="left", maintain_order="left")  # noqa: E731
    found = values_of(ROWS, lambda rows: rows.map_batches("it", join, frame=pl.DataFrame), debug=True)
    assert [row["people"] for row in found] == [130_000, 336_000, 130_000]


def test_an_index_of_pandas_is_not_a_column() -> None:
    def pick(frame: Any) -> Any:
        return frame.set_index(frame.index + 7)

    schema = {"town": pa.string(), "n": pa.int64()}  # pandas has floats where there are nulls
    found = values_of(ROWS, lambda rows: rows.map_batches("it", pick, frame=pd.DataFrame, schema=schema))
    assert repr(found) == repr(ROWS.to_pylist())


FRAMES: dict[str, tuple[Any, Any]] = {
    "arrow": (None, lambda batch: batch.append_column("upper", pc.utf8_upper(batch["word"]))),
    "polars": (pl.DataFrame, lambda df: df.with_columns(upper=pl.col("word").str.to_uppercase())),
    "a join of polars": (
        pl.DataFrame,
        lambda df: df.join(
            pl.DataFrame({"word": ["a", "b"], "upper": ["A", "B"]}), on="word", how="left", maintain_order="left"
        ),
    ),
    "pandas": (lambda batch: batch.to_pandas(), lambda df: df.assign(upper=df.word.str.upper())),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("debug", [False, True])
def test_texts_are_plain_whatever_their_encoding(name: str, debug: bool) -> None:
    """A Parquet file has a dictionary of few texts, and none of many; a function gets the same types of both."""
    frame, function = FRAMES[name]
    plain = pa.record_batch({"word": ["a", "b", None]})
    table = pa.Table.from_batches([plain]).append_column("n", [[1, 2, 3]])
    encoded = table.set_column(0, "word", table["word"].dictionary_encode())
    batches = [*encoded.to_batches(), *table.to_batches()]

    def build(rows: Any) -> Any:
        return rows.map_batches("it", function, frame=frame).filter_batches("a", are_a)

    def are_a(batch: Any) -> Any:
        assert batch.schema.field("word").type == pa.string()
        return pc.or_kleene(pc.starts_with(batch["word"], "a"), pc.is_null(batch["word"]))

    a, missing = {"word": "a", "n": 1, "upper": "A"}, {"word": None, "n": 3, "upper": None}
    assert values_of(batches, build, debug=debug) == [a, missing, a, missing]


def test_columns_that_a_function_leaves_keep_their_dictionaries() -> None:
    table = pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode(), "n": [1, 2, 3]})
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("rows", ArrowSource(table))
        more = rows.map_batches("it", lambda batch: batch.append_column("same", batch["word"]))
        more.filter_batches("all", lambda batch: pc.greater(batch["n"], 0)).sink("out", sink)

    SingleThreadRuntime(build_dataflow).execute()
    for frame in sink.frames():
        schema: Any = frame.schema
        assert pa.types.is_dictionary(schema.field("word").type)
        assert schema.field("same").type == pa.string()


def test_texts_that_a_function_replaces() -> None:
    table = pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode()})

    def upper(batch: Any) -> Any:
        return pa.record_batch({"word": pc.utf8_upper(batch["word"])})

    replaced = values_of(table, lambda rows: rows.map_batches("it", upper))
    assert [row["word"] for row in replaced] == ["A", "B", "A"]


def test_objects_of_polars_are_refused() -> None:
    def build(rows: Any) -> Any:
        return rows.map_batches("it", lambda df: df.with_columns(o=pl.Series([object()] * len(df))), frame=pl.DataFrame)

    with pytest.raises(OperatorError, match="it answered Python objects in column 'o'; answer a type of polars"):
        values_of(pa.table({"n": [1]}), build)


def test_categories_of_polars() -> None:
    def build(rows: Any) -> Any:
        kinds = {"category": pl.Categorical, "enum": pl.Enum(["1", "2"])}
        casts = {name: pl.col("n").cast(pl.String).cast(kind) for name, kind in kinds.items()}
        return rows.map_batches("it", lambda df: df.with_columns(**casts), frame=pl.DataFrame)

    assert values_of(pa.table({"n": [1, 2]}), build) == [{"n": n, "category": str(n), "enum": str(n)} for n in (1, 2)]
