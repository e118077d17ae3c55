"""The program of docs/s3.md against an S3-compatible server, with arguments and with the environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import deltalake
import fsspec
import pyarrow.parquet as pq
import pytest

from malflow.snapshot import FsspecBackend, snapshots
from malflow.sources import JsonLinesSource
from tests.connectors.s3_program import delta_options
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.nights import NIGHTLY
from tests.kit.s3_servers import S3_SERVERS, s3_options
from tests.test_readme import ROOT, programs

pytestmark = pytest.mark.slow

ROWS = [{"town": "Ulm", "cents": 3}, {"town": "Bonn", "cents": 4}]


WAYS = [
    ("moto", "arguments"),
    pytest.param("versitygw", "environment", marks=[pytest.mark.servers, pytest.mark.nightly]),
]
if NIGHTLY:
    WAYS += [("moto", "environment"), pytest.param("versitygw", "arguments", marks=pytest.mark.servers)]


@pytest.fixture(params=S3_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


def placed(text: str, server: FaultyS3) -> str:
    """Return the program with the bucket, the endpoint and the credentials of a server."""
    text = text.replace("s3://bucket", f"s3://{server.bucket}")
    key, secret = server.options["key"], server.options["secret"]
    return re.sub(r"^ENDPOINT, .*$", f"ENDPOINT, KEY, SECRET = {(server.endpoint, key, secret)}", text, flags=re.M)


def environment(server: FaultyS3) -> dict[str, str]:
    """Return the environment that the page tells of, which has the names of deltalake's options."""
    own = {"AWS_ACCESS_KEY_ID": server.options["key"], "AWS_SECRET_ACCESS_KEY": server.options["secret"]}
    return {**delta_options(server.endpoint), **own}


@pytest.mark.slow
@pytest.mark.parametrize(("server", "way"), WAYS, indirect=["server"])
def test_the_program_of_the_page_reaches_a_server_like_s3(way: str, server: FaultyS3, tmp_path: Path) -> None:
    options: Any = server.options
    fsspec.filesystem("s3", **options).pipe({f"{server.bucket}/orders/1.csv": b"town,cents\nUlm,3\nBonn,4\n"})
    (program,) = programs(ROOT / "docs" / "s3.md")
    text, more = placed(program.text, server), {}
    if way == "environment":
        text, more = re.sub(r", storage_options=\w+", "", text), environment(server)
        assert "storage_options" not in text
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = pq.read_table(f"{server.bucket}/parquet", filesystem=fsspec.filesystem("s3", **options)).to_pylist()
    assert sorted(written, key=itemgetter("cents")) == ROWS
    lines = JsonLinesSource(f"s3://{server.bucket}/json/", storage_options=options)
    (part,) = lines.list_parts()
    assert sorted(lines.build_part(part, None).poll_batch(9)[0], key=itemgetter("cents")) == ROWS
    table = deltalake.DeltaTable(f"s3://{server.bucket}/delta", storage_options=environment(server))
    assert sorted(table.to_pyarrow_table().to_pylist(), key=itemgetter("cents")) == ROWS
    state = FsspecBackend(f"s3://{server.bucket}/state", job="orders", storage_options=options, codec="msgpack")
    assert len(list(snapshots(state))) >= 1
