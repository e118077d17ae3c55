"""Parquet files, Delta tables and HTTP by their URL."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import GraphError, SingleThreadRuntime, connect
from malflow.connectors.delta import DeltaSink
from malflow.connectors.http import HttpSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.sinks import VecSink

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the entry points of the project, which may not be those installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = [
        importlib.metadata.EntryPoint(name, value, group)
        for group, entries in project["entry-points"].items()
        for name, value in entries.items()
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", importlib.metadata.EntryPoints(points).select)


def test_dataflow_from_parquet_to_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3], "m": [4, 5, 6]}), tmp_path / "a.parquet")
    found: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        rows = provider.new_stream().source("rows", connect(f"{tmp_path}/*.parquet?columns=m,n&row=tuple"))
        rows.sink("found", found)
        rows.map("row", lambda row: {"n": row[1]}).sink(
            "out", connect(f"{tmp_path}/out?format=parquet&delivery=at-least-once&settings.compression=snappy")
        )

    SingleThreadRuntime(build).execute()
    assert found.values == [(4, 1), (5, 2), (6, 3)]
    assert pq.read_table(tmp_path / "out").to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_kinds_and_options(tmp_path: Path) -> None:
    source: Any = connect("x.parquet?row=n&timestamp=at", filter=[("n", ">", 3)], storage_options={}).source()
    assert isinstance(source, ParquetSource)
    assert (source._options.rows.row, source._options.rows.timestamp) == ("n", "at")
    assert isinstance(connect(f"{tmp_path}/out?format=parquet").sink(), ParquetSink)
    assert repr(connect(f"delta://{tmp_path}/t?settings.name=x").sink()) == f"DeltaSink('{tmp_path}/t')"
    assert repr(connect("delta+s3://bucket/t?storage_options.AWS_REGION=eu").sink()) == "DeltaSink('s3://bucket/t')"
    assert isinstance(connect("delta://t").sink(), DeltaSink)
    assert repr(connect("Delta+s3://bucket/t").sink()) == "DeltaSink('s3://bucket/t')"
    sink: Any = connect("https://me:hush@example.org/x/y?batch=7&headers.X-Mine=1&encode=json-lines").sink()
    assert isinstance(sink, HttpSink)
    assert (sink._most, sink._target.headers["X-Mine"], sink._target.url) == (7, "1", "https://example.org/x/y")


def test_webhook_by_its_address() -> None:
    source: Any = connect("webhook://[::1]:8080/a/b?acknowledge=snapshot&timeout=5", token="hush").source()
    options = source._options
    assert (options.host, options.port, options.path, options.timeout) == ("::1", 8080, "/a/b", 5.0)
    assert "hush" not in repr(source) + repr(connect("webhook://127.0.0.1:1/?token=hush"))
    for url in ("webhook://127.0.0.1/a", "webhook://:8080/a", "webhook://127.0.0.1:\u00b2/a"):
        with pytest.raises(GraphError, match=r"has no host or no port; write webhook://127.0.0.1:8080/path"):
            connect(url).source()
    with pytest.raises(GraphError, match=r"'webhook://\*\*\*@127.0.0.1:1/' has a user, .*; pass token="):
        connect("webhook://me:hush@127.0.0.1:1/").source()


def test_mistakes_in_urls() -> None:
    with pytest.raises(GraphError, match=r"names a file, but a sink writes several into a folder"):
        connect("out/x.parquet").sink()
    with pytest.raises(GraphError, match=r"has no option 'colums'; did you mean 'columns'\?"):
        connect("x.parquet?colums=a").source()
    with pytest.raises(GraphError, match=r"can't be read"):
        connect("https://example.org/x").source()


@pytest.mark.parametrize(
    ("room", "library", "extra"),
    [("parquet", "pyarrow", "parquet"), ("delta", "deltalake", "delta"), ("http", "aiohttp", "http")],
)
@pytest.mark.slow
def test_library_that_is_not_installed(room: str, library: str, extra: str) -> None:
    program = f"""
import sys
sys.modules[{library!r}] = None
import malflow, malflow.connectors
try:
    import malflow.connectors.{room}
except malflow.MissingDependency as missing:
    print(missing)
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert f"pip install 'malflow[{extra}]'" in printed
