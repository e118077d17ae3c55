"""The file sources and sinks against the S3 protocol, over a real HTTP connection."""

import gzip
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
import s3fs.core

from malflow.connectors.files.paths import SPAN
from malflow.connectors.lost_output import SinkFileError
from malflow.sinks import TextFileSink
from malflow.sources import CsvSource, InputFileError, TextFileSource
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.s3_servers import S3_SERVERS, s3_options

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=S3_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


@pytest.fixture
def options(server: FaultyS3) -> dict[str, Any]:
    return server.options


@pytest.fixture
def bucket(server: FaultyS3) -> str:
    return server.bucket


def read(source: Any, part: str, state: Any, limit: int) -> tuple[list[Any], Any]:
    """Read up to `limit` records, then let go."""
    partition = source.build_part(part, state)
    values: list[Any] = []
    while len(values) < limit and not partition.is_finished():
        values += partition.poll_batch(limit - len(values))[0]
    partition.suspend()
    return values, partition.snapshot()


def test_a_gzipped_csv_is_found_by_glob_and_resumed(options: dict[str, Any], bucket: str) -> None:
    expected = [{"n": str(n), "note": f'a "long"\nnote, {n}'} for n in range(5_000)]
    text = "n,note\n" + "".join(f'{n},"a ""long""\nnote, {n}"\n' for n in range(5_000))
    s3 = fsspec.filesystem("s3", **options)
    s3.pipe(
        {
            f"{bucket}/in/1.csv.gz": gzip.compress(text.encode()),
            f"{bucket}/in/2.csv.gz": gzip.compress(b""),
            f"{bucket}/in/no": b"",
        }
    )
    source = CsvSource(f"s3://{bucket}/in/*.csv.gz", storage_options=options)
    parts = source.list_parts()
    assert parts == [f"s3://{bucket}/in/1.csv.gz", f"s3://{bucket}/in/2.csv.gz"]
    first, state = read(source, parts[0], None, 1_234)
    rest, _ = read(source, parts[0], state, 10_000)
    assert first + rest == expected
    assert read(source, parts[1], None, 10)[0] == []


def test_a_plain_file_is_resumed_without_reading_it_again(
    options: dict[str, Any], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = fsspec.filesystem("s3", **options)
    s3.pipe(f"{bucket}/big.txt", b"".join(b"%09d\n" % n for n in range(1_000_000)))
    source = TextFileSource(f"s3://{bucket}/big.txt", storage_options=options)
    [part] = source.list_parts()
    _, state = read(source, part, None, 950_000)
    fetched: list[int] = []
    fetch = s3fs.core.S3File._fetch_range

    def counted(self: Any, start: int, end: int) -> bytes:
        fetched.append(start)
        return bytes(fetch(self, start, end))

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", counted)
    values, _ = read(source, part, state, 1_000_000)
    assert (values[0], values[-1], len(values)) == ("000950000", "000999999", 50_000)
    assert min(fetched) >= 9_500_000 - SPAN


def test_source_reads_the_output_of_a_sink(options: dict[str, Any], bucket: str) -> None:
    s3 = fsspec.filesystem("s3", use_listings_cache=False, **options)
    for name in ("out.txt", "out.txt.gz"):
        sink: TextFileSink[Any, Any, Any] = TextFileSink(f"s3://{bucket}/{name}", storage_options=options)
        sink.sink_batch([0, 0], ["one", "zwölf"], [0, 1])
        sink.flush()
        assert not s3.exists(f"{bucket}/{name}")
        sink.close()
        source = TextFileSource(f"s3://{bucket}/{name}", storage_options=options)
        assert read(source, f"s3://{bucket}/{name}", None, 10)[0] == ["one", "zwölf"]


def test_an_empty_stream_leaves_an_empty_object(options: dict[str, Any], bucket: str) -> None:
    sink: TextFileSink[Any, Any, Any] = TextFileSink(f"s3://{bucket}/empty", storage_options=options)
    sink.flush()
    sink.close()
    assert fsspec.filesystem("s3", **options).cat_file(f"{bucket}/empty") == b""


@pytest.mark.parametrize("name", ["gone", "gone/*", "nobucket"])
def test_a_missing_object_is_an_error_without_credentials_in_it(
    options: dict[str, Any], bucket: str, name: str
) -> None:
    source = TextFileSource(f"s3://{bucket}/{name}", storage_options=options)
    with pytest.raises(InputFileError, match=f"s3://{bucket}/{name[:4]}") as missing:
        source.list_parts()
    assert options["secret"] not in repr(missing.value) + str(missing.value) + repr(source)


def test_a_listing_is_not_remembered(options: dict[str, Any], bucket: str) -> None:
    s3 = fsspec.filesystem("s3", skip_instance_cache=True, **options)
    source = TextFileSource(f"s3://{bucket}/new/*", storage_options=options)
    for name in ("a", "b"):
        s3.pipe(f"{bucket}/new/{name}", b"")
        assert source.list_parts()[-1] == f"s3://{bucket}/new/{name}"


def test_a_bucket_that_is_missing_or_denied_is_named(
    options: dict[str, Any], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink: Any = TextFileSink(f"s3://{bucket}-missing/out.txt", storage_options=options)
    sink.sink_batch([None], ["x"], [0])
    with pytest.raises(SinkFileError, match=f"'s3://{bucket}-missing/out.txt' could not be written: .*bucket"):
        sink.close()

    async def deny(*_: Any, **__: Any) -> None:
        raise PermissionError(f"Forbidden to {options['secret']}")

    monkeypatch.setattr(s3fs.core.S3FileSystem, "_call_s3", deny)
    s3fs.core.S3FileSystem.clear_instance_cache()
    url = f"s3://{bucket}/denied/*.txt"
    with pytest.raises(InputFileError, match=r"denied/\*.txt' cannot be read: .*Forbidden to \*\*\*") as denied:
        TextFileSource(url, storage_options=options).list_parts()
    assert options["secret"] not in repr(denied.value)
    sink = TextFileSink(f"s3://{bucket}/denied.txt", storage_options=options)
    sink.sink_batch([None], ["x"], [0])
    with pytest.raises(SinkFileError, match=r"/denied.txt' could not be written: .*Forbidden to \*\*\*"):
        sink.close()
    s3fs.core.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("path", ["sized/*.txt", "sized/"])
def test_sizes_are_known_from_the_listing(server: FaultyS3, options: dict[str, Any], bucket: str, path: str) -> None:
    s3 = fsspec.filesystem("s3", **options)
    for size in (1, 20, 300):
        s3.pipe(f"{bucket}/sized/{size}.txt", b"x" * size)
    s3.invalidate_cache()
    source = TextFileSource(f"s3://{bucket}/{path}", storage_options=options)
    parts = source.list_parts()
    asked = len(server.requests)
    assert source.part_sizes(parts) == {f"s3://{bucket}/sized/{size}.txt": size for size in (1, 20, 300)}
    assert len(server.requests) == asked, "without another request"
