"""Functions of batches in the frames of polars, pandas and narwhals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from malflow import OperatorError
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
