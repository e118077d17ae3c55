"""Compressions whose library is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.utils import compressions

from malflow import MissingDependency
from malflow.sinks import CsvSink, JsonLinesSink, TextFileSink
from malflow.sources import CsvSource, JsonLinesSource, TextFileSource

NEEDS = r"file '[^']*\.zst' needs zstandard; pip install zstandard"


@pytest.fixture(autouse=True)
def without_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide zstd from fsspec, as where no library of it is installed."""
    monkeypatch.delitem(compressions, "zst", raising=False)


@pytest.mark.parametrize("make", [CsvSource, JsonLinesSource, TextFileSource])
def test_a_file_is_not_read_as_if_it_were_plain(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(b"1\n")
    source = make(path)
    with pytest.raises(MissingDependency, match=NEEDS):
        source.build_part(str(path), None).poll()


@pytest.mark.parametrize("make", [CsvSink, JsonLinesSink, TextFileSink])
def test_a_file_is_not_written_without_its_compression(make: Any, tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match=NEEDS):
        make(tmp_path / "a.zst").sink_batch([1], [{"n": "1"} if make is not TextFileSink else "1"], [0])
    with pytest.raises(MissingDependency, match=NEEDS):
        make(f"{tmp_path}/folder/", suffix=".zst")
