"""Functions of whole batches: what they get, what they may answer, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from malflow import GraphError, OperatorError, agg
from malflow.records.columnar import rows_made
from malflow.windows import tumbling
from tests.columns.flows import cut, records_of, values_of

ROWS = pa.table({"town": ["Ulm", "Bonn", "Ulm"], "n": [1, None, 3]})


def doubled(batch: Any) -> Any:
    return batch.append_column("twice", pc.multiply(batch["n"], 2))


FLAGS = [
    lambda batch: pc.greater(batch["n"], 1),
    lambda batch: pa.chunked_array([pc.greater(batch["n"], 1)]),
    lambda batch: pa.record_batch({"flag": pc.greater(batch["n"], 1)}),
    lambda batch: np.nan_to_num(batch["n"].to_numpy(zero_copy_only=False)) > 1,
]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("function", FLAGS)
def test_flags(function: Any, debug: bool) -> None:
    found, _ = records_of(ROWS, lambda rows: rows.filter_batches("large", function), debug=debug)
    assert [(value, at) for _, value, at in found] == [({"town": "Ulm", "n": 3}, 2)]


def test_flags_that_are_all_null_keep_nothing() -> None:
    assert not values_of(ROWS, lambda rows: rows.filter_batches("none", lambda batch: pa.nulls(batch.num_rows)))


@pytest.mark.parametrize("debug", [False, True])
def test_keys_and_times_as_columns(debug: bool) -> None:
    seen = []

    def look(batch: Any) -> Any:
        seen.append(batch.to_pylist())
        return batch.drop_columns(["key"])

    def build(rows: Any) -> Any:
        keyed = rows.key_distribute("town", "town")
        return keyed.map_batches("look", look, with_key="key", with_time="time")

    found, _ = records_of(ROWS, build, debug=debug)
    expected = [("Ulm", 1, 0), ("Bonn", None, 1), ("Ulm", 3, 2)]
    assert found == [(town, {"town": town, "n": n, "time": at}, at) for town, n, at in expected]
    assert {"town": "Bonn", "n": None, "key": "Bonn", "time": 1} in [row for batch in seen for row in batch]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (lambda msg: msg.value["n"] or "none", r"column 'key' has 'none', of type str, after 1, of type int"),
        (lambda msg: (msg.value["town"], 1), r"column 'key' can't have \('Ulm', 1\), of type tuple"),
    ],
)
def test_keys_that_can_not_be_a_column(key: Any, words: str) -> None:
    def build(rows: Any) -> Any:
        return rows.key_local("key", key).to_columns("flat").map_batches("it", lambda it: it, with_key="key")

    with pytest.raises(OperatorError, match=rf"operator 'it' failed at key .*{words}"):
        values_of(ROWS, build, debug=True)


def test_a_column_with_the_name_of_the_keys() -> None:
    def build(rows: Any) -> Any:
        return rows.key_local("key", "town").filter_batches("it", lambda it: it, with_key="town", on_error="skip")

    with pytest.raises(OperatorError, match=r"'it' failed at .*with_key='town' is the name of a column that there is"):
        values_of(ROWS, build)


WITHOUT = """
import sys
sys.modules[{name!r}] = None
from malflow import SingleThreadRuntime
from malflow.errors import MissingDependency
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

def build(provider):
    rows = provider.new_stream().source("rows", SingleIteratorSource([{{"n": 1}}])).select_columns("some", m="n")
    rows.sink("out", sink)
    for add in (rows.map_batches, rows.filter_batches, lambda name, function: rows.to_columns(name)):
        try:
            add("it", len)
        except MissingDependency as error:
            print(error)

sink = VecSink()
SingleThreadRuntime(build).execute()
print(sink.values)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pyarrow", "numpy"])
def test_without_the_library_the_error_says_what_to_install(name: str) -> None:
    command = [sys.executable, "-c", WITHOUT.format(name=name)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert told == ["columns need pyarrow and numpy; pip install 'malflow[columns]'"] * 3 + ["[{'m': 1}]"]


def test_no_row_is_made() -> None:
    def build(rows: Any) -> Any:
        few = rows.select_columns("few", "n", where="town").filter_batches("all", lambda batch: pc.is_valid(batch["n"]))
        keyed = (
            few.map_batches("twice", doubled)
            .key_distribute("where", "where")
            .event_time("times", "n", out_of_orderness=1)
        )
        return keyed.filter_batches("none", lambda batch: pc.less(batch["n"], 0))

    before = rows_made()
    assert values_of(ROWS, build) == []
    assert rows_made() == before


@pytest.mark.parametrize("debug", [False, True])
def test_fields_are_selected_alike_of_columns_and_dicts(debug: bool) -> None:
    def select(rows: Any) -> Any:
        return rows.select_columns("few", "n", where="town")

    expected = [{"n": 1, "where": "Ulm"}, {"n": None, "where": "Bonn"}, {"n": 3, "where": "Ulm"}]
    assert values_of(ROWS, select, debug=debug) == expected
    assert values_of(ROWS, lambda rows: select(rows.map("as dicts", dict)), debug=debug) == expected


@pytest.mark.parametrize("prepare", [lambda rows: rows, lambda rows: rows.map("as dicts", dict)])
def test_unknown_field(prepare: Any) -> None:
    with pytest.raises(OperatorError, match=r"operator 'few' failed at .*: KeyError: 'twon'; .*it has \['town', 'n'\]"):
        values_of(ROWS, lambda rows: prepare(rows).select_columns("few", "twon"))


def test_a_column_that_a_function_misspells() -> None:
    with pytest.raises(OperatorError, match=r"'it' failed .*KeyError.*batch has no column 'twon'; did you mean 'town'"):
        values_of(ROWS, lambda rows: rows.map_batches("it", lambda batch: batch["twon"]))


MISTAKES = [
    (lambda rows: rows.map_batches("it", 5), "function must be a plain function; got 5"),
    (lambda rows: rows.map_batches("it", lambda: 1), r"calls function\(batch\), but .* takes other arguments"),
    (lambda rows: rows.map_batches("it", doubled, frame="polars"), "frame must be a plain function; got 'polars'"),
    (lambda rows: rows.filter_batches("it", doubled, frame=7), "frame must be a plain function; got 7"),
    (lambda rows: rows.map_batches("it", doubled, schema=5), r"needs a schema of columns; got 5: .*pyarrow.schema"),
    (lambda rows: rows.map_batches("it", doubled, schema={}), "needs a schema of columns; got {}: it has no column"),
    (
        lambda rows: rows.map_batches("it", doubled, with_key="k"),
        "needs a keyed stream for its with_key=; .*distribute",
    ),
    (lambda rows: rows.map_batches("it", doubled, with_time=""), "with_time must be the name of a column or None"),
    (lambda rows: rows.map_batches("it", doubled, on_error="skp"), "can't have this policy: .*did you mean 'skip'"),
    (lambda rows: rows.select_columns("it"), r"needs a field or more; write .select_columns\('it', 'field'\)"),
    (lambda rows: rows.select_columns("it", "n", "n"), "selects two columns with the name 'n'"),
    (lambda rows: rows.select_columns("it", 5), "fields must be the name of a field, as text; got 5"),
    (lambda rows: rows.to_columns("it", key="key"), "needs a keyed stream for its key="),
    (lambda rows: rows.to_columns("it", schema=[("n", 5)]), "needs a schema of columns"),
]


@pytest.mark.parametrize(("build", "message"), MISTAKES)
def test_mistakes_are_found_when_it_is_built(build: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        values_of(ROWS, build)
    assert __file__ in str(caught.value)
    assert "'it'" in str(caught.value)


def test_two_options_with_one_name() -> None:
    with pytest.raises(GraphError, match="has with_key= and with_time= with one name, 'x'; name two"):
        values_of(
            ROWS, lambda rows: rows.key_local("k", "town").map_batches("it", doubled, with_key="x", with_time="x")
        )


ANSWERS = [
    (lambda batch: None, r"at a batch of . rows?: it answered None, which is not a frame of columns"),
    (lambda batch: [1, 2, 3], r"it answered \[1, 2, 3\], of type list, which is not a frame of columns"),
    (lambda batch: batch["n"], r"which is not a frame of columns"),
    (lambda batch: batch.select([]), "it answered no columns for . rows?"),
    (lambda batch: pa.record_batch([batch["n"], batch["n"]], names=["a", "a"]), "two columns of one name: 'a'"),
    (lambda batch: batch.slice(1), r"fails at rows 0 to 1 of a batch together, .*WrongLength|it answered 0 rows for 1"),
    (lambda batch: batch.slice(0, 1), r"fails at rows . to . .* alone: WrongLength: it answered 1 row for 2, and must"),
    (
        lambda batch: batch.filter(pc.is_valid(batch["n"])),
        r"value \{'n': None, 'town': 'Bonn'\}, timestamp 1: WrongLength: it answered 0 rows for 1, .*filter_batches"
        r".*it is row . of a batch of ",
    ),
    (
        lambda batch: pa.record_batch(
            {"t": pc.add(batch["n"].cast(pa.timestamp("ns")), pa.scalar(1, pa.duration("ns")))}
        ),
        r"value {'n': 1, 'town': 'Ulm'}, .*column 't' has times with a fraction of a microsecond",
    ),
    (
        lambda batch: pa.record_batch({"t": pc.multiply(batch["n"], 10**18).cast(pa.timestamp("us"))}),
        r"column 't' \(timestamp\[us\]\) has a time outside of the years 1 to 9999",
    ),
]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(("function", "message"), ANSWERS)
def test_answers_that_are_refused(function: Any, message: str, debug: bool) -> None:
    with pytest.raises(OperatorError, match=rf"operator 'it' failed .*{message}"):
        values_of(ROWS, lambda rows: rows.map_batches("it", function), debug=debug)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: batch["n"], "it answered int64, and must answer booleans"),
        (lambda batch: batch, "it answered struct<.*, and must answer booleans"),
        (lambda batch: [True, False, True], r"it answered \[True, False, True\], of type list; answer an array"),
        (lambda batch: True, r"it answered True, of type bool; answer an array"),
        (lambda batch: pa.array([True]), r"fails at rows . to . .*WrongLength: it answered 1 flag for 2 rows"),
    ],
)
def test_flags_that_are_refused(function: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator 'it' failed at .*{message}"):
        values_of(ROWS, lambda rows: rows.filter_batches("it", function))


def test_another_schema_than_before() -> None:
    def uneven(batch: Any) -> Any:
        return batch if batch["n"][0].as_py() == 1 else batch.set_column(1, "n", batch["n"].cast(pa.float64()))

    with pytest.raises(OperatorError, match=r"it answered column 'n' as double, and as int64 before; .*pass schema="):
        values_of(cut(ROWS, [2]), lambda rows: rows.map_batches("it", uneven, on_error="skip"))
    schema = {"town": pa.string(), "n": pa.float64()}
    found = values_of(cut(ROWS, [2]), lambda rows: rows.map_batches("it", uneven, schema=schema))
    assert repr([row["n"] for row in found]) == "[1.0, None, 3.0]"

    def renamed(batch: Any) -> Any:
        return batch if batch["n"][0].as_py() == 1 else batch.rename_columns(["town", "m"])

    with pytest.raises(OperatorError, match=r"it answered the columns 'town', 'm', and before it answered 'town', 'n'"):
        values_of(cut(ROWS, [2]), lambda rows: rows.map_batches("it", renamed))


@pytest.mark.parametrize("sizes", [[1], [2], [1, 1]])
def test_a_column_of_nulls_has_the_type_of_other_answers(sizes: list[int]) -> None:
    """Libraries find no type for nulls only, and batches have any size."""

    def inferred(batch: Any) -> Any:
        return pa.record_batch({"n": batch["n"].to_pylist()})

    table = pa.table({"n": [None, 2, None, 4]})
    for rows in (table, table.slice(1)):
        found = values_of(cut(rows, sizes), lambda rows: rows.map_batches("it", inferred).map_batches("id", inferred))
        assert found == rows.to_pylist()


def test_a_schema_that_an_item_does_not_fit() -> None:
    with pytest.raises(OperatorError, match=r"value \{'n': 300\}.*column 'n' does not fit its type in schema=, uint8"):
        values_of(
            pa.table({"n": [1, 300]}), lambda rows: rows.map_batches("it", lambda it: it, schema={"n": pa.uint8()})
        )


def windows(rows: Any) -> Any:
    keyed = rows.key_distribute("town", "town").event_time("time", "n", out_of_orderness=0)
    return keyed.window(tumbling(10)).aggregate("sums", agg.sum("n"), agg.count())


@pytest.mark.parametrize("debug", [False, True])
def test_results_of_windows_are_no_columns(debug: bool) -> None:
    """They may be columns, but they are objects to every reader."""
    table = pa.table({"town": ["Ulm", "Bonn"] * 50, "n": [*range(100)]})
    with pytest.raises(
        OperatorError, match=r"operator 'it' failed at .*value WindowResult.*needs columns, and gets Py"
    ):
        values_of(table, lambda rows: windows(rows).map_batches("it", lambda batch: batch), debug=debug)
    flat = lambda rows: windows(rows).to_columns("flat").map_batches("it", lambda batch: batch)  # noqa: E731
    assert len(values_of(table, flat, debug=debug)) == 20


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: rows.map("as dicts", dict).map_batches("it", doubled),
        lambda rows: rows.map("as dicts", dict).filter_batches("it", doubled),
        lambda rows: rows.inspect("look", lambda msg, ctx: None).map_batches("it", doubled, on_error="skip"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_objects_are_no_columns(build: Any, debug: bool) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'it' failed at .*'Ulm'.*needs columns, and gets Python.*to_columns"
    ):
        values_of(ROWS, build, debug=debug)


def test_readers_of_one_stream_keep_the_columns() -> None:
    def build(rows: Any) -> Any:
        plain, columns = rows.cloned("two", 2)
        plain.map("as dicts", dict).sink("plain", _nothing())
        return columns.map_batches("twice", doubled)

    assert [row["twice"] for row in values_of(ROWS, build)] == [2, None, 6]


def _nothing() -> Any:
    from malflow.sinks import VecSink  # noqa: PLC0415 - of one test

    return VecSink()


def test_empty_batches_are_not_passed_to_functions() -> None:
    def build(rows: Any) -> Any:
        timed = rows.event_time("time", "n", out_of_orderness=0)
        none = timed.filter_batches("none", lambda batch: pc.less(batch["n"], 0))
        return none.map_batches("it", lambda batch: 1 / 0).inspect_frontier(
            "epochs", lambda epoch, _: seen.append(epoch)
        )

    seen: list[Any] = []
    assert values_of(pa.table({"n": [1, 2]}), build) == []
    assert seen[:-1] == [1, 2]


class Log:
    """Notes records and epochs in their order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_data(self, msg: Any, output: Any) -> None:
        self.seen.append(msg.value["n"])

    def on_epoch(self, epoch: Any, output: Any) -> None:
        self.seen.append(("epoch", epoch))


@pytest.mark.parametrize("debug", [False, True])
def test_epochs_stay_between_their_records(debug: bool) -> None:
    def seen(choose: Any) -> list[Any]:
        log = Log()

        def build(rows: Any) -> Any:
            return choose(rows.event_time("time", "n", out_of_orderness=2)).stateless_op("log", log)

        records_of(pa.table({"n": [*range(20), 3, 30, 29]}), build, debug=debug)
        return log.seen

    def odd(batch: Any) -> Any:
        return pc.equal(pc.bit_wise_and(batch["n"], 1), 1)

    by_columns = seen(lambda rows: rows.filter_batches("odd", odd).map_batches("id", lambda batch: batch))
    assert by_columns == seen(lambda rows: rows.filter("odd", lambda row: row["n"] % 2))
    assert {("epoch", 17), 29} <= {*by_columns}


def test_times_keep_their_types() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    table = pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))})

    def to_nanoseconds(batch: Any) -> Any:
        return pa.record_batch(
            {"at": batch["at"].cast(pa.timestamp("ns", "UTC")), "day": batch["at"].cast(pa.date32())}
        )

    (row,) = values_of(table, lambda rows: rows.map_batches("it", to_nanoseconds))
    assert (type(row["at"]), row["at"], row["day"]) == (datetime, moment, moment.date())
