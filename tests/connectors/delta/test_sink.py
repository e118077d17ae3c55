"""A Delta table to which transactions are appended, each once."""

from __future__ import annotations

import datetime as dt
import io
import pickle
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from malflow import SingleThreadRuntime
from malflow.connectors.delta import DeltaSink
from malflow.connectors.delta.table import DeltaSinkError, Table
from malflow.connectors.parquet.columns import UnfitRow
from malflow.errors import FencedError, GraphError
from malflow.sinks.transactional import SinkOwner
from malflow.sources import SingleIteratorSource
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.s3_servers import S3_SERVERS, s3_options

SCHEMA = pa.schema([("n", pa.int64())])
ONE = pa.table({"n": [1]})


def owner(claim: int) -> SinkOwner:
    return SinkOwner("job", "out", claim)


def run(path: Path | str, claim: int, **options: Any) -> DeltaSink[Any, Any, Any]:
    """Return a sink that has taken the table over."""
    sink: DeltaSink[Any, Any, Any] = DeltaSink(path, **options)
    sink.fence(owner(claim))
    sink.abort([])
    return sink


def prepared(sink: DeltaSink[Any, Any, Any], transaction: int, *numbers: Any) -> Any:
    sink.sink_batch([0] * len(numbers), [{"n": number} for number in numbers], [0] * len(numbers))
    return sink.prepare(transaction)


def values(path: Path | str, **options: Any) -> list[Any]:
    table: Any = deltalake.DeltaTable(str(path), **options)
    return sorted(row["n"] for row in table.to_pyarrow_table().to_pylist())


def test_transactions_appended_by_commit(tmp_path: Path) -> None:
    sink = run(tmp_path / "t", 1)
    assert sink.prepare(1) is None
    first = prepared(sink, 1, 1, 2)
    assert not (tmp_path / "t").exists()
    second = prepared(sink, 2, 3)
    sink.commit([first, second])
    sink.commit([first, second])
    third = prepared(sink, 3, 4)
    sink.commit([second, third])
    assert values(tmp_path / "t") == [1, 2, 3, 4]
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert (table.transaction_version("job/out"), table.transaction_version("job/out#claim")) == (3, 1)


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_transactions_that_another_process_commits(tmp_path: Path, schema: pa.Schema | None) -> None:
    path = tmp_path / "t"
    sink = run(path, 1, schema=schema)
    handles = [prepared(sink, 1, 1), prepared(sink, 2, 2)]
    sink.commit(handles[:1])
    prepared(sink, 3, 3)  # no snapshot has it
    heir: DeltaSink[Any, Any, Any] = DeltaSink(path, schema=schema)
    assert heir.fence(owner(2)) == 1
    heir.commit(pickle.loads(pickle.dumps(handles)))
    heir.abort([])
    heir.commit([prepared(heir, 3, 3)])
    assert values(path) == [1, 2, 3]
    again: DeltaSink[Any, Any, Any] = DeltaSink(path)
    assert again.fence(owner(3)) == 3


def test_run_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t"
    zombie = run(path, 1, schema=SCHEMA)
    handle = prepared(zombie, 1, 1)
    heir = run(path, 2)
    with pytest.raises(FencedError, match=r"another run \(claim 2\) has taken over '.*/t'"):
        zombie.commit([handle])
    heir.commit([prepared(heir, 1, 10)])
    with pytest.raises(FencedError):
        zombie.commit([handle])
    with pytest.raises(FencedError):
        zombie.fence(owner(1))
    assert values(path) == [10]


def test_replaced_between_look_and_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    zombie, heir = Table(path, {}, {}), Table(path, {}, {})
    zombie.fence(owner(1), SCHEMA)
    seen = deltalake.DeltaTable(path)
    heir.fence(owner(2), SCHEMA)
    with pytest.raises(CommitFailedError, match=r"Concurrent transaction failed"):
        zombie._append_once(seen, 1, ONE)
    twin = Table(path, {}, {})
    twin.fence(owner(2), SCHEMA)
    seen = deltalake.DeltaTable(path)
    twin.append(1, ONE)
    with pytest.raises(CommitFailedError, match=r"Concurrent transaction failed"):
        heir._append_once(seen, 1, ONE)
    heir.append(1, ONE)
    assert values(path) == [1]


def test_table_that_an_earlier_run_creates_late(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    zombie, heir = Table(path, {}, {}), Table(path, {}, {})
    zombie.fence(owner(1), None)
    heir.fence(owner(2), None)
    zombie.append(1, ONE)
    with pytest.raises(DeltaSinkError, match=r"was created by an earlier run of this job"):
        heir.append(1, pa.table({"n": [2]}))
    restarted = Table(path, {}, {})
    assert restarted.fence(owner(3), None) == 1
    assert values(path) == [1]


def test_other_writers_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    sink = run(path, 1, schema=SCHEMA)
    other: DeltaSink[Any, Any, Any] = DeltaSink(path)
    other.fence(SinkOwner("job", "other", 1))
    sink.commit([prepared(sink, 1, 1)])
    other.commit([prepared(other, 1, 2)])
    deltalake.write_deltalake(path, pa.table({"n": [3]}), mode="append")
    sink.commit([prepared(sink, 2, 4)])
    assert values(path) == [1, 2, 3, 4]


def test_row_that_does_not_fit_the_table(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", ONE)
    sink = run(tmp_path / "t", 1)
    with pytest.raises(UnfitRow, match=r"/t' cannot store \{'n': 'one'\} in column 'n': it is not int64"):
        prepared(sink, 1, "one")


def test_table_created_by_a_transaction_of_the_run_before(tmp_path: Path) -> None:
    pending = prepared(run(tmp_path / "t", 1), 1, 1)
    heir: DeltaSink[Any, Any, Any] = DeltaSink(tmp_path / "t")
    heir.fence(owner(2))
    heir.commit([pending])
    heir.abort([])
    with pytest.raises(UnfitRow, match=r"cannot store \{'n': 1.5\} in column 'n': int64 would hold 1 instead"):
        prepared(heir, 2, 1.5)
    heir.commit([prepared(heir, 2, 2)])
    later: DeltaSink[Any, Any, Any] = DeltaSink(tmp_path / "t", delivery="at-least-once")
    later.sink_batch([0], [{"n": 2.5}], [0])
    with pytest.raises(UnfitRow, match=r"int64 would hold 2 instead"):
        later.close()
    assert values(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.float64(), "has column 'n' as int64, and the records have it as double; change the table's columns"),
        (pa.timestamp("us"), "has column 'n' as int64, and the records have it as timestamp"),
        (pa.string(), "has column 'n' as int64, and the records have it as string"),
        (pa.struct([("x", pa.int8())]), "has column 'n' as int64, and the records have it as struct"),
    ],
)
def test_schema_that_is_not_that_of_the_table(tmp_path: Path, kind: pa.DataType, found: str) -> None:
    deltalake.write_deltalake(tmp_path / "t", ONE)
    with pytest.raises(DeltaSinkError, match=found):
        run(tmp_path / "t", 1, schema=pa.schema([("n", kind)]))
    with pytest.raises(DeltaSinkError, match="has no column 'm', which the records have"):
        run(tmp_path / "t", 1, schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))


def test_table_whose_columns_another_writer_changes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    sink = run(path, 1, schema=pa.schema([("n", pa.float64())]))
    sink.commit([prepared(sink, 1, 1.5)])
    second, third = prepared(sink, 2, 2.5), prepared(sink, 3, 3.5)
    deltalake.write_deltalake(path, pa.table({"n": [0.5], "m": [7]}), mode="append", schema_mode="merge")
    sink.commit([second])
    assert values(path) == [0.5, 1.5, 2.5]
    deltalake.write_deltalake(path, ONE, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(DeltaSinkError, match="has column 'n' as int64, and the records have it as double"):
        sink.commit([third])
    assert values(path) == [1]


KINDS = [
    ("n8", pa.uint8(), 7),
    ("half", pa.float16(), 1.5),
    ("zone", pa.timestamp("s", "+05:00"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    ("nanos", pa.timestamp("ns"), dt.datetime(2026, 1, 1, 0, 0, 0, 7)),
    ("day", pa.date64(), dt.date(2026, 1, 1)),
    ("dictionary", pa.dictionary(pa.int8(), pa.large_string()), "text"),
    ("bytes", pa.binary(2), b"ab"),
    ("list", pa.list_(pa.uint16(), 2), [1, 2]),
    ("map", pa.map_(pa.large_string(), pa.struct([("x", pa.uint8())])), [("k", {"x": 1})]),
]


def test_types_as_delta_stores_them(tmp_path: Path) -> None:
    schema = pa.schema([(name, kind) for name, kind, _ in KINDS])
    row = {name: value for name, _, value in KINDS}
    for claim in (1, 2):
        sink = run(tmp_path / "t", claim, schema=schema)
        sink.sink_batch([0], [row], [0])
        handle: Any = sink.prepare(claim)
        sink.commit([handle])
    again = run(tmp_path / "t", 3)
    again.sink_batch([0], [row], [0])
    handle = again.prepare(3)
    again.commit([handle])
    table: Any = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.to_pyarrow_table().to_pylist() == [row] * 3
    again.sink_batch([0], [row], [0])
    with pytest.raises(UnfitRow, match=r"in column 'n8': it is not int8"):
        again.sink_batch([0], [{**row, "n8": 200}], [0])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (timedelta(1), r"in column 'n': .* \(Delta has no duration\[us\]\); pass schema="),
        ({}, r"in column 'n': .* \(Delta has no struct<>\)"),
        ([{"x": None}], r"in column 'n': .* \(all values so far are null\)"),
    ],
)
def test_value_that_delta_has_no_type_for(tmp_path: Path, value: Any, message: str) -> None:
    sink = run(tmp_path / "t", 1)
    with pytest.raises(UnfitRow, match=message):  # before it is in a snapshot, from which it could not be committed
        prepared(sink, 1, value)
    sink.sink_batch([0], [{"n": 1, "N": 2}], [0])
    with pytest.raises(UnfitRow, match=r"the rows have column 'N' twice, apart from the case of letters"):
        sink.prepare(1)


def test_error_of_deltalake_without_its_trace(tmp_path: Path) -> None:
    sink = run(tmp_path / "t", 1, settings={"partition_by": ["absent"]})
    with pytest.raises(DeltaSinkError, match=r"could not be written: .*absent") as raised:
        sink.commit([prepared(sink, 1, 1)])
    assert "\n" not in str(raised.value)


def test_partitions_and_at_least_once(tmp_path: Path) -> None:
    sink: DeltaSink[Any, Any, Any] = DeltaSink(
        tmp_path / "t", delivery="at-least-once", settings={"partition_by": ["n"], "name": "numbers"}
    )
    for _ in range(2):
        SingleThreadRuntime(
            lambda provider: (
                provider.new_stream()
                .source("rows", SingleIteratorSource([{"n": 1, "m": 1}, {"n": 2, "m": 2}]))
                .sink("out", sink)
            )
        ).execute()
    table: Any = deltalake.DeltaTable(str(tmp_path / "t"))
    assert (table.version(), table.metadata().name, table.metadata().partition_columns) == (1, "numbers", ["n"])
    assert values(tmp_path / "t") == [1, 1, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("server", S3_SERVERS, indirect=True)
def test_table_on_s3(server: FaultyS3) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": server.options["key"],
        "AWS_SECRET_ACCESS_KEY": server.options["secret"],
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    url = f"s3://{server.bucket}/tables/t"
    zombie = run(url, 1, schema=SCHEMA, storage_options=options)
    handle = prepared(zombie, 1, 1)
    heir: DeltaSink[Any, Any, Any] = DeltaSink(url, storage_options=options)
    heir.fence(owner(2))
    heir.abort([handle])
    with pytest.raises(FencedError):
        zombie.commit([handle])
    heir.commit([handle])
    heir.commit([handle, prepared(heir, 2, 2)])
    assert values(url, storage_options=options) == [1, 2]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Any:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


def test_no_secret_in_an_error() -> None:
    secrets = {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "hush-hush"}
    there = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true", "max_retries": "0"}
    sink: DeltaSink[Any, Any, Any] = DeltaSink("s3://bucket/t", storage_options={**secrets, **there})
    with pytest.raises(DeltaSinkError, match=r"s3://bucket/t' could not be read") as raised:
        sink.fence(owner(1))
    shown = f"{raised.value} {raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r} {sink!r}"
    for secret in secrets.values():
        assert secret not in shown
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": ""}, "table must be the path or URL of a table"),
        ({"schema": 3}, "schema must be a pyarrow.Schema; got 3"),
        ({"schema": pa.schema([("at", pa.time64("us"))])}, "schema can't have column 'at': Delta has no time64"),
        ({"schema": pa.schema([("n", pa.int8()), ("N", pa.int8())])}, "schema can't have column 'N' twice, apart"),
        ({"delivery": "once"}, "delivery must be"),
        ({"settings": {"partitions": ["n"]}}, "settings can't have 'partitions': write_deltalake takes configuration"),
        ({"settings": {"mode": "overwrite"}}, "settings can't have 'mode', on which delivery depends"),
        ({"retry_for": timedelta(seconds=-1)}, "retry_for must be a time of zero or more"),
        ({"formatter": 3}, "formatter must be a plain function"),
        ({"storage_options": {"key": "a"}}, "has 'key', an option of s3fs; deltalake calls it 'AWS_ACCESS_KEY_ID'"),
        (
            {"storage_options": {"client_kwargs": {"endpoint_url": "http://h"}}},
            "has 'client_kwargs', an option of s3fs; deltalake calls it 'AWS_ENDPOINT_URL', 'AWS_REGION'",
        ),
        (
            {"storage_options": {"max_retries": 3}},
            "must be texts, as deltalake requires; 'max_retries' is of type int",
        ),
        ({"storage_options": "x"}, "storage_options must be a dict of deltalake's options; got a str"),
        ({"on_data_loss": "x"}, "on_data_loss must be 'fail' or 'continue'; got 'x'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        DeltaSink(**{"table": "t", **options})


def staged(path: Path) -> list[Path]:
    """Return the data files of sinks, added or not."""
    return sorted(path.glob("malflow-*/*/*.parquet"))


def test_data_files_are_added_and_the_handle_has_no_rows(tmp_path: Path) -> None:
    sink = run(tmp_path, 1, schema=SCHEMA)
    handle = prepared(sink, 1, *range(5_000))
    assert len(pickle.dumps(handle)) < 500
    assert values(tmp_path) == []
    sink.commit([handle])
    sink.commit([handle])
    assert values(tmp_path) == [*range(5_000)]
    table: Any = DeltaTable(tmp_path)
    assert table.file_uris() == [str(it) for it in staged(tmp_path)]
    for number, found in ((4_999, 1), (5_000, 0)):
        assert table.to_pyarrow_table(filters=[("n", "=", number)]).num_rows == found, "by its statistics"


def test_a_data_file_that_is_gone_is_an_error_and_never_in_the_log(tmp_path: Path) -> None:
    sink = run(tmp_path, 1, schema=SCHEMA)
    handle = prepared(sink, 1, 1)
    (file,) = staged(tmp_path)
    file.unlink()
    with pytest.raises(
        DeltaSinkError, match=r"lacks 'malflow-.*parquet', which was prepared by a snapshot.*put it back"
    ):
        sink.commit([handle])
    assert values(tmp_path) == []


def test_rows_of_a_table_that_got_a_constraint_after_the_snapshot(tmp_path: Path) -> None:
    """Its data file can't be added any more: deltalake checks the rows."""
    sink = run(tmp_path, 1, schema=SCHEMA)
    good, bad = prepared(sink, 1, 1), prepared(sink, 2, -1)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    sink.commit([good])
    assert values(tmp_path) == [1]
    with pytest.raises(DeltaSinkError, match="1 rows failed validation check"):
        sink.commit([bad])
    assert values(tmp_path) == [1]


def test_tables_that_files_are_not_added_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    DeltaTable.create(tmp_path, SCHEMA).alter.add_constraint({"positive": "n > 0"})
    sink = run(tmp_path, 1)
    sink.commit([prepared(sink, 1, 1)])
    assert values(tmp_path) == [1]
    assert staged(tmp_path) == []
    (told,) = [it.getMessage() for it in caplog.records if it.name == "malflow.connectors"]
    assert "data files can't be added to the table, since it has delta.constraints.positive" in told


def test_a_handle_of_an_earlier_version_is_committed(tmp_path: Path) -> None:
    former = io.BytesIO()
    with pa.ipc.new_stream(former, SCHEMA) as writer:
        writer.write_table(pa.table({"n": [1, 2]}, SCHEMA))
    sink = run(tmp_path, 1, schema=SCHEMA)
    sink.commit([(1, former.getvalue())])
    assert values(tmp_path) == [1, 2]


def test_data_files_that_no_snapshot_has_are_removed(tmp_path: Path) -> None:
    sink = run(tmp_path, 1, schema=SCHEMA)
    sink.commit([prepared(sink, 1, 1)])
    kept, _ = prepared(sink, 2, 2), prepared(sink, 3, 3)
    heir: DeltaSink[Any, Any, Any] = DeltaSink(tmp_path)
    heir.fence(owner(2))
    heir.abort([kept])
    assert [it.parent.name for it in staged(tmp_path)] == ["00000001", "00000002"]
    heir.commit([kept])
    assert sorted(values(tmp_path)) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.decimal128(5, 2), Decimal("1.20"), Decimal("-1.20")),
        (pa.string(), "a b/ü", ""),
        (pa.string(), "a", "a" * 300),
        (pa.binary(), None, b"a"),
        (pa.float64(), -1.5, 1e300),
    ],
)
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_partitions_that_no_commit_could_write(
    tmp_path: Path, kind: pa.DataType, good: Any, bad: Any, delivery: Any
) -> None:
    schema = pa.schema([("n", kind), ("m", pa.int64())])
    sink = run(tmp_path / "t", 1, schema=schema, settings={"partition_by": ["n"]}, delivery=delivery)
    sink.sink_batch([0], [{"n": good, "m": 1}], [0])
    with pytest.raises(UnfitRow, match=r"cannot store .* in column 'n': .*; partition by a column of"):
        sink.sink_batch([0], [{"n": bad, "m": 2}], [0])
    if delivery == "exactly-once":
        transaction = sink.prepare(1)
        assert transaction is not None
        sink.commit([transaction])
    sink.close()
    assert values(tmp_path / "t") == [good]


def test_partitions_of_a_table_that_others_made(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"n": ["a"], "m": [1]}), partition_by=["n"])
    sink = run(tmp_path / "t", 1)
    with pytest.raises(UnfitRow, match="deltalake writes an empty text as null in a partition"):
        sink.sink_batch([0], [{"n": "", "m": 1}], [0])


def test_a_table_of_partition_columns_alone(tmp_path: Path) -> None:
    sink = run(tmp_path / "t", 1, settings={"partition_by": ["n"]}, schema=SCHEMA)
    with pytest.raises(UnfitRow, match="the table needs a column that is not a partition"):
        sink.sink_batch([0], [{"n": 1}], [0])
