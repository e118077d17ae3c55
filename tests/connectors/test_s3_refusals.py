"""A missing bucket, and a server that refuses: the error of each source, sink and backend names a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from malflow import MalflowError, SingleThreadRuntime, StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.sinks import CsvSink, JsonLinesSink, TextFileSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import CsvSource, JsonLinesSource, SingleIteratorSource, TextFileSource
from tests.connectors.s3_program import delta_options
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.nights import NIGHTLY
from tests.kit.s3_servers import S3_SERVERS, s3_options

pytestmark = pytest.mark.slow

SCHEMA = pa.schema({"a": pa.int64()})
ONCE = timedelta(0)
Options = dict[str, Any]

SOURCES: dict[str, Callable[[str, Options], Any]] = {
    "text": lambda place, options: TextFileSource(f"{place}/a.txt", storage_options=options),
    "csv": lambda place, options: CsvSource(f"{place}/*.csv", storage_options=options),
    "json": lambda place, options: JsonLinesSource(f"{place}/a*", storage_options=options),
    "parquet": lambda place, options: ParquetSource(f"{place}/a.parquet", storage_options=options),
    "parquet files": lambda place, options: ParquetSource(
        f"{place}/*.parquet", storage_options=options, discover_every=timedelta(1)
    ),
}
SINKS: dict[str, Callable[[str, Options], Any]] = {
    "text": lambda place, options: TextFileSink(f"{place}/o.txt", storage_options=options),
    "json": lambda place, options: JsonLinesSink(f"{place}/o.json", storage_options=options),
    "json folder": lambda place, options: JsonLinesSink(f"{place}/", storage_options=options, retry_for=ONCE),
    "csv folder": lambda place, options: CsvSink(f"{place}/", storage_options=options, retry_for=ONCE),
    "text folder": lambda place, options: TextFileSink(f"{place}/", storage_options=options, retry_for=ONCE),
    "parquet": lambda place, options: ParquetSink(place, schema=SCHEMA, storage_options=options, retry_for=ONCE),
    "delta": lambda place, options: DeltaSink(
        place, schema=SCHEMA, storage_options=_for_delta(options), retry_for=ONCE
    ),
}
RUNS = [*(f"{name} source" for name in SOURCES), *(f"{name} sink" for name in SINKS), "backend"]


@pytest.fixture(params=S3_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


def _for_delta(options: Options) -> dict[str, str]:
    own = {"AWS_ACCESS_KEY_ID": options["key"], "AWS_SECRET_ACCESS_KEY": options["secret"]}
    return {**delta_options(options["client_kwargs"]["endpoint_url"]), **own}


def told(run: str, place: str, options: Options, folder: Path) -> str:
    """Return what a run says that can't reach the place of its source, sink or snapshots."""
    name, _, role = run.rpartition(" ")

    def build(provider: StreamProvider) -> None:
        source = SOURCES[name](place, options) if role == "source" else SingleIteratorSource([{"a": 1}])
        provider.new_stream().source("in", source).sink(
            "out", SINKS[name](place, options) if role == "sink" else VecSink()
        )

    at: Any = {"url": place, "storage_options": options} if role == "backend" else {"url": str(folder)}
    state = FsspecBackend(at.pop("url"), job="job", codec="msgpack", **at)
    with pytest.raises(MalflowError) as caught:
        SingleThreadRuntime(build, state, timedelta(seconds=1)).execute()
    assert place in str(caught.value)
    assert options["secret"] not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("run", RUNS)
def test_a_bucket_that_is_missing(run: str, server: FaultyS3, tmp_path: Path) -> None:
    error = told(run, "s3://no-such-bucket/x", server.options, tmp_path)
    assert re.search(r"; create the bucket, or check its name and the endpoint: .*AWS_ENDPOINT_URL$", error)
    assert ("endpoint_url in storage_options" in error) == (run != "delta sink")


@pytest.mark.parametrize("run", RUNS)
def test_a_request_that_is_denied(run: str, server: FaultyS3, tmp_path: Path) -> None:
    for method in ("GET", "PUT", "POST"):
        server.inject("403", method, times=10**6)
    error = told(run, f"s3://{server.bucket}/x", server.options, tmp_path)
    assert re.search(r"; allow it in the bucket's policy, or check .*AWS_SECRET_ACCESS_KEY$", error)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "wrong"),
    [*product(RUNS, ("key", "secret"))] if NIGHTLY else [*zip(RUNS, cycle(("key", "secret")))],
)
def test_credentials_that_are_wrong(run: str, wrong: str, versitygw: Any, tmp_path: Path) -> None:
    with FaultyS3(upstream=versitygw.options) as server:
        error = told(run, f"s3://{server.bucket}/x", {**server.options, wrong: "is-not-right"}, tmp_path)
    assert re.search(r"; check .*AWS_SECRET_ACCESS_KEY; if they are right, check that the endpoint is theirs: ", error)
