"""Lines in files that become visible with snapshots: in a local folder, on S3, and on another object store."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from malflow import GraphError, NoKey, SingleThreadRuntime, StreamProvider
from malflow.connectors.by_name import connect
from malflow.connectors.lost_output import SinkFileError
from malflow.errors import FencedError
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import JsonLinesSink, SinkOwner, TextFileSink, UnwritableValue
from malflow.snapshot import FsspecBackend
from malflow.sources import InputFileError, JsonLinesSource, SingleIteratorSource, TextFileSource
from malflow.testing import assert_sink
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.going_back import copied_folder
from tests.kit.nights import NIGHTLY
from tests.kit.s3_servers import S3_SERVERS, s3_options

pytestmark = pytest.mark.slow

LOCAL, MEMORY = "local", "memory"


class Folder:
    """A folder, as a sink and as a reader sees it."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self.options = options

    @property
    def filesystem(self) -> Any:
        protocol = self.url.partition("://")[0] if "://" in self.url else "file"
        return fsspec.filesystem(protocol, use_listings_cache=False, **self.options)

    @property
    def files(self) -> list[str]:
        return sorted(self.filesystem.glob(f"{self.url}part-*"))

    def lines(self) -> list[Any]:
        """Return the values in the folder's files, read by nothing of malflow and with few requests."""
        files = self.files
        contents = self.filesystem.cat(files) if files else {}
        return [json.loads(line) for file in sorted(contents) for line in contents[file].splitlines()]

    def values(self, source: Any = JsonLinesSource, glob: str = "") -> list[Any]:
        """Return what a source reads from the folder."""
        read = source(f"{self.url}{glob}", storage_options=self.options)
        try:
            parts = read.list_parts()
        except InputFileError as error:
            if error.problem not in ("matches no files", "does not exist"):
                raise
            return []
        found: list[Any] = []
        for part in parts:
            reader = read.build_part(part, None)
            while not reader.is_finished():
                found += reader.poll_batch(1000)[0]
        return found

    def sink(self, kind: Any = JsonLinesSink, **options: Any) -> Any:
        return kind(self.url, storage_options=self.options, **options)

    def run(self, claim: int, kind: Any = JsonLinesSink, **options: Any) -> Any:
        """Return a sink that has taken the folder over."""
        sink = self.sink(kind, **options)
        sink.fence(SinkOwner("job", "out", claim))
        return sink


@pytest.fixture(scope="module", params=[LOCAL, MEMORY, *S3_SERVERS])
def server(request: pytest.FixtureRequest) -> Iterator[FaultyS3 | str]:
    if request.param in (LOCAL, MEMORY):
        yield request.param
        return
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


@pytest.fixture
def folder(server: FaultyS3 | str, tmp_path: Path) -> Folder:
    if isinstance(server, str):
        return Folder(f"memory://{uuid4().hex}/out/" if server == MEMORY else f"{tmp_path}/new/out/", {})
    return Folder(f"s3://{server.bucket}/{uuid4().hex}/out/", server.options)


def send(sink: Any, *values: Any) -> None:
    sink.sink_batch([NoKey] * len(values), values, range(len(values)))


def end_transaction(sink: Any, transaction: int) -> None:
    sink.commit([sink.prepare(transaction)])


@pytest.mark.parametrize("server", [LOCAL, MEMORY, *([S3_SERVERS[1]] if NIGHTLY else [])], indirect=True)
def test_laws_of_lines_in_a_folder(folder: Folder) -> None:
    def copied() -> Callable[[], None]:
        return copied_folder(Path(folder.url))

    assert_sink(
        folder.sink,
        folder.lines,
        copy_output=copied if "://" not in folder.url else None,
        secrets=[text for name, text in folder.options.items() if name == "secret"],
    )


@pytest.mark.nightly
def test_laws_of_compressed_text_in_a_folder(tmp_path: Path) -> None:
    folder = Folder(f"{tmp_path}/out/", {})
    assert_sink(
        lambda: folder.sink(TextFileSink, suffix=".txt.gz"),
        lambda: folder.values(TextFileSource),
        make_value=str,
        copy_output=lambda: copied_folder(tmp_path / "out"),
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson.gz", ".jsonl.bz2", ".jsonl.xz", ".jsonl.lz4"])
def test_files_of_a_folder_compressed_by_their_suffix(folder: Folder, suffix: str) -> None:
    sink = folder.run(1, suffix=suffix)
    for transaction in (1, 2):
        send(sink, {"n": transaction}, {"text": "é\n" * transaction})
        assert len(folder.files) == transaction - 1
        end_transaction(sink, transaction)
    send(sink, {"n": 3})
    assert [file.endswith(suffix) for file in folder.files] == [True, True]
    assert folder.values() == [{"n": 1}, {"text": "é\n"}, {"n": 2}, {"text": "é\né\n"}]
    assert folder.values(glob=f"*{suffix}") == folder.values() == folder.values(glob="**")
    sink.abort([])
    sink.close()
    assert len(folder.values()) == 4


def test_hostile_values_in_a_folder(folder: Folder) -> None:
    values = ["", "\u2028\r\n\0", "\ud800", "x" * 20_000_000, {"é": [None, 1e308]}, 10**400, "last"]
    sink = folder.run(1)
    send(sink, *values)
    end_transaction(sink, 1)
    assert folder.values() == values
    text = folder.run(2, TextFileSink)
    for value, problem in (("a\nb", "a line break"), ("\r", "a line break"), ("\ud800", "surrogates not allowed")):
        with pytest.raises(UnwritableValue, match=problem):
            send(text, value)
    text.close()
    assert len(folder.files) == 1


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"n": -math.inf}])
@pytest.mark.parametrize("end", ["out.jsonl", "out/"])
def test_a_number_that_json_does_not_have_is_refused(tmp_path: Path, value: Any, end: str) -> None:
    sink = JsonLinesSink[Any, Any, Any](f"{tmp_path}/{end}", delivery="at-least-once" if end == "out/" else None)
    with pytest.raises(UnwritableValue, match=r"cannot store .*: it is not JSON \(Out of range .*pass formatter="):
        send(sink, 1, value)
    sink.close()
    [file] = [path for path in tmp_path.rglob("*.jsonl") if path.is_file()]
    assert json.loads(file.read_text()) == 1


def test_lines_that_are_delivered_at_least_once(folder: Folder) -> None:
    sink = folder.sink(delivery="at-least-once")
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("n", SingleIteratorSource(range(100))).sink("out", sink)
    ).execute()
    assert folder.values() == list(range(100))


def test_a_folder_needs_snapshots(tmp_path: Path) -> None:
    sink = JsonLinesSink[Any, Any, Any](f"{tmp_path}/out/")
    with pytest.raises(GraphError, match=r"'out'.*snapshots"):
        SingleThreadRuntime(
            lambda provider: provider.new_stream().source("n", SingleIteratorSource([1])).sink("out", sink)
        ).execute()


def test_a_folder_by_its_url(tmp_path: Path) -> None:
    url = f"{tmp_path}/out/?format=json&suffix=.json.gz&retry_for=5s"

    def write(provider: StreamProvider) -> None:
        provider.new_stream().source("n", SingleIteratorSource([1, 2])).sink("out", connect(url))

    SingleThreadRuntime(write, FsspecBackend(str(tmp_path / "state"))).execute()
    [file] = (tmp_path / "out").glob("*.json.gz")
    assert gzip.decompress(file.read_bytes()) == b"1\n2\n"


@pytest.mark.spark
@pytest.mark.nightly
def test_lines_in_a_folder_on_spark(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f"{number}\n" for number in range(300)))

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("n", JsonLinesSource(tmp_path / "in.jsonl"))
        numbers.key_distribute("tens", lambda msg: msg.value % 10).sink("out", JsonLinesSink(f"{tmp_path}/out/"))

    jobs = FsspecBackend(str(tmp_path / "job"))
    for _ in range(2):  # the second run has nothing to add
        SparkRuntime(build, jobs, timedelta(seconds=1), 2, spark=spark, max_records_per_tick=100).execute()
    assert sorted(Folder(f"{tmp_path}/out/", {}).values()) == list(range(300))


def test_a_sink_of_a_folder_is_shipped_to_another_process(folder: Folder) -> None:
    sink = folder.run(1)
    send(sink, 1)
    handle = sink.prepare(1)
    send(sink, 2)  # the process dies with an open file
    heir, handles = pickle.loads(pickle.dumps((sink, [handle])))
    heir.fence(SinkOwner("job", "out", 2))
    heir.commit(handles)
    heir.abort([])
    assert folder.values() == [1]
    with pytest.raises(FencedError, match=r"another run \(claim 2\) has taken over"):
        sink.commit([(2, handle[1])])
    sink.close()


@pytest.mark.parametrize("server", [LOCAL, MEMORY, S3_SERVERS[1]], indirect=True)  # moto crashes
def test_a_prepared_file_that_is_gone(folder: Folder) -> None:
    sink = folder.run(1)
    send(sink, 1)
    handle = sink.prepare(1)
    folder.run(2).abort([])
    heir = folder.run(3)
    with pytest.raises(SinkFileError, match=r"was prepared by an earlier run, and is gone"):
        heir.commit([handle])


def test_a_folder_that_went_back_in_time(tmp_path: Path) -> None:
    folder = Folder(f"{tmp_path}/out/", {})
    sink = folder.run(1)
    send(sink, 1)
    end_transaction(sink, 1)
    shutil.rmtree(tmp_path / "out")
    owner = SinkOwner("job", "out", 2, 1)
    with pytest.raises(SinkFileError, match=r"lacks committed records: .*on_data_loss='continue'"):
        folder.sink().fence(owner)
    assert folder.sink(on_data_loss="continue").fence(owner) == 0


def test_a_folder_is_read_without_what_is_hidden(folder: Folder) -> None:
    sink = folder.run(1)
    send(sink, 1)
    end_transaction(sink, 1)
    send(sink, 2)
    sink.prepare(2)
    folder.filesystem.makedirs(f"{folder.url}deep", exist_ok=True)
    folder.filesystem.pipe({f"{folder.url}_SUCCESS": b"{", f"{folder.url}.note": b"{", f"{folder.url}deep/a": b"{"})
    assert folder.values() == [1]


@pytest.mark.parametrize("kind", [JsonLinesSink, TextFileSink])
def test_options_that_are_refused(kind: Any, tmp_path: Path) -> None:
    of_a_file: list[tuple[dict[str, Any], str]] = [
        (
            {"delivery": "exactly-once"},
            r"Sink\('.*/o'\) writes one file, and delivery= is an option of a folder; write",
        ),
        ({"suffix": ".txt"}, r"and suffix= is an option of a folder; write '.*/o/' to write files into a folder"),
        ({"retry_for": timedelta(1)}, "and retry_for= is an option of a folder"),
        ({"on_data_loss": "fail"}, "and on_data_loss= is an option of a folder"),
    ]
    for options, problem in of_a_file:
        with pytest.raises(GraphError, match=problem):
            kind(f"{tmp_path}/o", **options)
    of_a_folder: list[tuple[dict[str, Any], str]] = [
        ({"append": True}, "cannot append: each file in the folder is new; leave out append=True"),
        ({"suffix": "gz"}, "suffix must be an extension such as '.jsonl.gz'; got 'gz'"),
        ({"suffix": ".a/b"}, "suffix must be an extension"),
        ({"suffix": 3}, "suffix must be an extension"),
        ({"delivery": "once"}, "Sink delivery must be 'exactly-once' or 'at-least-once'"),
        ({"retry_for": "5 parsecs"}, "retry_for must be a time of zero or more, such as .10s."),
        ({"on_data_loss": "no"}, "Sink on_data_loss must be 'fail' or 'continue'"),
        ({"formatter": 3}, "formatter must be a plain function; got 3"),
    ]
    for options, problem in of_a_folder:
        with pytest.raises(GraphError, match=problem):
            kind(f"{tmp_path}/o/", **options)
    with pytest.raises(GraphError, match="'http://x/y' is neither a local folder nor on an object store"):
        kind("http://x/y/")
    with pytest.raises(GraphError, match=r"names a folder; write '.*/' to write files into it"):
        kind(tmp_path)
    with pytest.raises(GraphError, match="or to a folder: a path that ends with a slash"):
        kind("s3://bucket/out", append=True)
