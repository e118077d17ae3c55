"""Parquet files that become visible with snapshots: on a local disk, and on S3."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import DataMessage, SingleThreadRuntime
from malflow.connectors.lost_output import SinkFileError
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.parquet.columns import UnfitRow
from malflow.errors import FencedError, GraphError, MalflowError
from malflow.sinks.transactional import SinkOwner
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.s3_servers import S3_SERVERS, s3_options

pytestmark = pytest.mark.slow

LOCAL, MEMORY = "local", "memory"


@dataclass
class Output:
    """A folder, as the sink and as a reader of Parquet sees it."""

    folder: str
    options: dict[str, Any]

    @property
    def filesystem(self) -> Any:
        protocol = self.folder.partition("://")[0] if "://" in self.folder else "file"
        return fsspec.filesystem(protocol, use_listings_cache=False, **self.options)

    @property
    def files(self) -> list[str]:
        """The visible files."""
        return sorted(self.filesystem.glob(f"{self.folder}/*.parquet"))

    @property
    def values(self) -> list[Any]:
        return [row["n"] for file in self.files for row in pq.read_table(file, filesystem=self.filesystem).to_pylist()]

    @property
    def staged(self) -> int:
        """How many staged files or uploads there are."""
        if not self.options:
            return len(self.filesystem.glob(f"{self.folder}/.malflow/*/staged/*"))
        bucket = self.folder.removeprefix("s3://").partition("/")[0]
        prefix = self.folder.removeprefix(f"s3://{bucket}/")
        found = self.filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/")
        return len(found.get("Uploads", ()))

    def run(self, claim: int, **options: Any) -> ParquetSink[Any, Any, Any]:
        """Return a sink that has taken the folder over."""
        sink: ParquetSink[Any, Any, Any] = ParquetSink(self.folder, storage_options=self.options, **options)
        sink.fence(SinkOwner("job", "out", claim))
        return sink


def write(sink: Any, *numbers: Any) -> None:
    rows = [{"n": number} for number in numbers]
    sink.sink_batch([0] * len(rows), rows, [0] * len(rows))


def end_transaction(sink: Any, transaction: int) -> None:
    sink.commit([sink.prepare(transaction)])


@pytest.fixture(scope="module", params=[LOCAL, MEMORY, *S3_SERVERS])
def server(request: pytest.FixtureRequest) -> Iterator[FaultyS3 | str]:
    if request.param in (LOCAL, MEMORY):
        yield request.param
        return
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


@pytest.fixture
def output(server: FaultyS3 | str, tmp_path: Path, request: pytest.FixtureRequest) -> Output:
    if isinstance(server, str):
        return Output(f"memory://{uuid4().hex}/out" if server == MEMORY else str(tmp_path / "new" / "out"), {})
    return Output(f"s3://{server.bucket}/{abs(hash(request.node.name))}/out", server.options)


def test_transactions_become_visible_by_commit(output: Output) -> None:
    sink = output.run(1)
    sink.abort([])
    assert sink.prepare(1) is None
    write(sink, 1, 2)
    first: Any = sink.prepare(1)
    write(sink, 3)
    second: Any = sink.prepare(2)
    assert (output.files, output.staged) == ([], 2)
    sink.commit([first, second])
    assert (output.values, output.staged) == ([1, 2, 3], 0)
    sink.commit([first, second])
    write(sink, 4)
    third: Any = sink.prepare(3)
    sink.commit([second, third])
    sink.close()
    assert output.values == [1, 2, 3, 4]


def test_transactions_that_another_process_commits(output: Output) -> None:
    sink = output.run(1)
    handles: list[Any] = []
    for transaction in (1, 2):
        write(sink, transaction)
        handles.append(sink.prepare(transaction))
    write(sink, 3)
    sink.prepare(3)  # no snapshot has it
    write(sink, *range(200_000))  # the process dies with an open file
    heir = output.run(2)
    heir.commit(pickle.loads(pickle.dumps(handles)))
    heir.abort([])
    sink.close()
    assert (output.values, output.staged) == ([1, 2], 0)
    write(heir, 3)
    end_transaction(heir, 3)
    assert output.values == [1, 2, 3]


def test_commit_repeated_after_readers_took_the_files(output: Output) -> None:
    sink = output.run(1)
    write(sink, 1)
    handle: Any = sink.prepare(1)
    sink.commit([handle])
    output.filesystem.rm(output.files)
    heir = output.run(2)
    heir.commit([handle])
    assert output.files == []


def test_commit_that_was_interrupted(output: Output) -> None:
    sink = output.run(1)
    handles: list[Any] = []
    for transaction in (1, 2, 3):
        write(sink, transaction)
        handles.append(sink.prepare(transaction))
    claimed = sink._claimed()
    assert claimed.ledger is not None
    claimed.ledger.begin(3)
    claimed.place.publish(*handles[0][1])
    claimed.place.publish(*handles[1][1])
    heir: ParquetSink[Any, Any, Any] = ParquetSink(output.folder, storage_options=output.options)
    assert heir.fence(SinkOwner("job", "out", 2)) == 3
    handles[2] = 3, handles[2][1][0]  # as snapshots of earlier versions have it
    heir.commit(handles)
    assert output.values == [1, 2, 3]


@pytest.mark.parametrize(
    ("server", "asleep_before"),
    [
        *((LOCAL, point) for point in ("prepare", "commit", "publish", "finish")),
        *((MEMORY, point) for point in ("commit", "publish")),
        ("moto", "commit"),
        pytest.param("versitygw", "publish", marks=[pytest.mark.servers, pytest.mark.slow]),
    ],
    indirect=["server"],
)
def test_run_that_was_replaced_while_it_slept(output: Output, asleep_before: str) -> None:
    zombie = output.run(1)
    write(zombie, 1)
    handle: Any = zombie.prepare(1) if asleep_before != "prepare" else None
    claimed = zombie._claimed()
    assert claimed.ledger is not None
    if asleep_before in ("publish", "finish"):
        claimed.ledger.begin(1)
    if asleep_before == "finish":
        claimed.place.publish(*handle[1])
    heir = output.run(2)
    if handle is not None:
        heir.commit([handle])
    heir.abort([])
    expected = [] if handle is None else [1]
    assert output.values == expected
    transactions = (
        [2] if "://" in output.folder else [2, 3, 4, 5]
    )  # the ledger no longer has the number that the sleeper wants
    for transaction in transactions:
        write(heir, transaction)
        end_transaction(heir, transaction)
    if handle is None:
        handle = zombie.prepare(1)
    if asleep_before == "publish":
        with pytest.raises(FencedError, match=r"has taken over"):
            claimed.ledger.finish()
        claimed.place.publish(*handle[1])
    with pytest.raises(FencedError, match=r"another run \(claim 2\) has taken over"):
        zombie.commit([(9, handle[1])])
    zombie.close()
    heir.close()
    assert output.values == [*expected, *transactions]
    with pytest.raises(FencedError, match=r"another run \(claim 2\) has taken over"):
        output.run(1)


def test_abort_keeps_what_is_pending_and_what_others_have(output: Output) -> None:
    sink = output.run(1)
    other: ParquetSink[Any, Any, Any] = ParquetSink(output.folder, storage_options=output.options)
    other.fence(SinkOwner("job", "other", 1))
    write(other, 10)
    theirs: Any = other.prepare(1)
    write(sink, 1)
    kept: Any = sink.prepare(1)
    write(sink, 2)
    sink.prepare(2)
    write(sink, 3)
    sink.abort([kept])
    assert output.staged == 2
    sink.commit([kept])
    other.commit([theirs])
    assert sorted(output.values) == [1, 10]


def test_file_in_parts_and_row_groups(output: Output) -> None:
    sink = output.run(1, row_group_rows=1_000, settings={"compression": "none", "use_dictionary": False})
    rows = [{"n": n, "noise": f"{n * 7919:0>9000}"} for n in range(2_500)]
    for start in range(0, 2_500, 100):
        sink.sink_batch([0] * 100, rows[start : start + 100], [0] * 100)
    end_transaction(sink, 1)
    [file] = output.files
    table = pq.read_table(file, filesystem=output.filesystem)
    assert table.to_pylist() == rows
    metadata = pq.ParquetFile(file, filesystem=output.filesystem).metadata
    assert [metadata.row_group(group).num_rows for group in range(3)] == [1_000, 1_000, 500]


def test_at_least_once_without_snapshots(output: Output) -> None:
    sink: ParquetSink[Any, Any, Any] = ParquetSink(
        output.folder, storage_options=output.options, delivery="at-least-once"
    )
    numbers = SingleIteratorSource(range(1_000))
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream().source("numbers", numbers).map("row", lambda n: {"n": n}).sink("out", sink)
        )
    ).execute()
    assert len(output.files) == 1
    assert output.values == list(range(1_000))
    assert output.staged == 0


def test_at_least_once_with_snapshots(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink: ParquetSink[Any, Any, Any] = ParquetSink(output.folder, delivery="at-least-once")

    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([{"n": 1}, {"n": 2}]))
        numbers.sink("out", sink)

    SingleThreadRuntime(build, FsspecBackend(str(tmp_path / "job"))).execute()
    SingleThreadRuntime(build, FsspecBackend(str(tmp_path / "job")), restore=None).execute()
    assert sorted(output.values) == [1, 1, 2, 2]


def test_schema_kept_for_later_runs(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink = output.run(1)
    write(sink, 1, 2.5)
    end_transaction(sink, 1)
    later = output.run(2)
    write(later, 3)
    end_transaction(later, 2)
    schemas = {pq.read_schema(file).field("n").type for file in output.files}
    assert schemas == {pa.float64()}
    with pytest.raises(MalflowError, match=r"in column 'n': it is not double"):
        write(later, "four")


def test_prepared_file_that_was_deleted(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink = output.run(1)
    write(sink, 1)
    handle: Any = sink.prepare(1)
    for staged in Path(output.folder).glob(".malflow/*/staged/*"):
        staged.unlink()
    with pytest.raises(SinkFileError, match=r"was prepared by an earlier run, and is gone"):
        sink.commit([handle])


def test_struct_without_fields_not_kept_in_the_schema(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink = output.run(1)
    sink.sink_batch([0], [{"n": 1, "more": {}}], [0])
    with pytest.raises(UnfitRow, match=r"in column 'more': .* \(Parquet has no struct without fields\); pass schema="):
        sink.prepare(1)
    again = output.run(2)
    again.sink_batch([0], [{"n": 1, "more": {"a": 1}}], [0])
    end_transaction(again, 1)
    assert output.values == [1]


def test_dictionary_that_outgrows_its_type(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink = output.run(1, schema=pa.schema([("n", pa.dictionary(pa.int8(), pa.string()))]))
    texts = [str(number) for number in range(300)]
    for start in (0, 100, 200):
        write(sink, *texts[start : start + 100])
    end_transaction(sink, 1)
    assert output.values == texts


def test_damaged_files_named_by_errors(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    sink = output.run(1)
    write(sink, 1)
    end_transaction(sink, 1)
    [kept] = (tmp_path / "out" / ".malflow").glob("*")
    (kept / "schema.arrow").write_bytes(b"\0\0")
    with pytest.raises(SinkFileError, match=r"out' has a damaged .*schema.arrow \(.*\); delete it, or pass schema="):
        output.run(2)
    sorted((kept / "ledger").iterdir())[-1].write_bytes(b"{")
    with pytest.raises(MalflowError, match=r"ledger of '.*out' has a damaged entry, ledger/0+4.json \(.*\); delete it"):
        output.run(3)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkFileError, match=r"sink file '.*/file' can't be written: .*File exists"):
        Output(str(tmp_path / "file"), {}).run(1)
    shutil.rmtree(kept)
    write(sink, 2)
    handle = sink.prepare(2)
    assert handle is not None
    lost = r"lacks committed records: .* at transaction 0, and transaction 1 was committed"
    with pytest.raises(SinkFileError, match=lost):
        sink.commit([handle])


def test_folder_that_others_may_read(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "new" / "out"), {})
    sink = output.run(1)
    write(sink, 1)
    end_transaction(sink, 1)
    assert Path(output.folder).stat().st_mode & 0o077 == tmp_path.joinpath("new").stat().st_mode & 0o077
    assert (tmp_path / "new").stat().st_mode & 0o055
    assert [path.name for path in Path(output.folder).iterdir() if not path.name.startswith("part-")] == [".malflow"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": ""}, "folder must be a path or URL"),
        ({"folder": "http://x/y"}, "'http://x/y' is neither a local folder nor on an object store"),
        ({"schema": {"n": int}}, "schema must be a pyarrow.Schema; got"),
        ({"delivery": "once"}, "delivery must be 'exactly-once' or 'at-least-once'"),
        ({"row_group_rows": 0}, "row_group_rows must be a whole number, at least 1"),
        ({"settings": {"schema": 1}}, "settings can't have 'schema'"),
        ({"settings": {"codec": "zstd"}}, "settings are not valid for pyarrow.parquet.ParquetWriter: .*'codec'"),
        ({"settings": ["codec"]}, "settings must be a dict of arguments of pyarrow"),
        ({"schema": pa.schema([("x", pa.list_(pa.struct([])))])}, "schema can't be stored: Parquet has no struct with"),
        ({"retry_for": "5x"}, "retry_for must be a time of zero or more, such as"),
        ({"retry_for": timedelta(seconds=-1)}, "retry_for must be a time of zero or more"),
        ({"formatter": 3}, "formatter must be a plain function; got 3"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        ParquetSink(**{"folder": "out", **options})


@pytest.mark.parametrize("kind", ["throttled", "reset_after"])
def test_requests_that_fail_for_some_time(server: FaultyS3 | str, output: Output, kind: str) -> None:
    if isinstance(server, str):
        pytest.skip("a local folder fails for good")
    sink = output.run(1)
    write(sink, 1)
    place: Any = sink._claimed().place
    place._filesystem = fsspec.filesystem(
        "s3", **output.options, config_kwargs={"retries": {"total_max_attempts": 1}}, skip_instance_cache=True
    )
    place._filesystem.retries = 1  # the client repeats nothing
    for method in ("POST", "PUT", "HEAD"):
        server.inject(kind, method, "part-", times=2)
    end_transaction(sink, 1)
    assert output.values == [1]
    assert server.fired > 3
    server.reset()


def test_no_secret_in_repr_and_errors(output: Output) -> None:
    if not output.options:
        pytest.skip("a local folder has no secrets")
    wrong = {**output.options, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}
    config = {"connect_timeout": 0.2, "retries": {"total_max_attempts": 1}}
    sink: ParquetSink[Any, Any, Any] = ParquetSink(
        output.folder, storage_options={**wrong, "config_kwargs": config}, retry_for=timedelta(0)
    )
    shown = repr(sink)
    sink._output = None
    place = sink._unclaimed().place
    place._filesystem.retries = 1  # type: ignore[attr-defined]
    with pytest.raises(SinkFileError, match=r"could not be written") as raised:
        place.create("x")
    shown += str(raised.value) + repr(raised.value.__cause__) + repr(raised.value.__context__)
    for secret in (output.options["key"], output.options["secret"]):
        assert secret not in shown


def test_message_formatter(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), {})
    formatter: Callable[[Any], Any] = lambda msg: {"n": msg.value, "key": msg.key, "at": msg.timestamp}  # noqa: E731
    sink = output.run(1, formatter=formatter)
    sink.sink(DataMessage("Ulm", 3, 7))
    end_transaction(sink, 1)
    assert pq.read_table(output.files[0]).to_pylist() == [{"n": 3, "key": "Ulm", "at": 7}]
