"""A file whose path is spelled differently is not read again."""

from __future__ import annotations

import shutil
import traceback
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import MalflowError
from malflow.sinks import TextFileSink, VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.sources import StatefulSource, TextFileSource
from malflow.testing import ScriptedSource
from tests.kit.backends import in_memory, kept, kept_states


class Spelt(TextFileSource):
    """Names parts as they are given, as older versions did."""

    def list_parts(self) -> list[str]:
        return [str(path) for path in self.spelt]

    def present_part(self, part: str) -> str:
        return part

    def __init__(self, *spelt: Any) -> None:
        super().__init__(list(spelt))
        self.spelt = spelt


def count(source: Any, backend: FsspecBackend, parallelism: int = 1) -> list[str]:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        lines = provider.new_stream().source("lines", StatefulSource(source))
        timed, _ = lines.assign_timestamps("time", lambda msg: msg.timestamp).generate_epochs(
            "epochs", lambda msg, _: msg.timestamp
        )
        timed.sink("out", out)

    SingleThreadRuntime(build, backend, parallelism=parallelism, debug=True).execute()
    return sorted(out.values)


@pytest.mark.fault("F4")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("before", ["file://{0}/in/a.txt", "{0}//in/a.txt", "{0}/link/a.txt", "local://{0}/link/a.txt"])
def test_positions_under_an_older_spelling_are_found(tmp_path: Path, before: str, parallelism: int) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    path = tmp_path / "in" / "a.txt"
    path.write_text("one\ntwo\n")
    (tmp_path / "in" / "b.txt").write_text("b\n")
    backend = in_memory()
    other = before.format(tmp_path).replace("a.txt", "b.txt")
    assert count(Spelt(before.format(tmp_path), other), backend, parallelism) == ["b", "one", "two"]
    path.write_text("one\ntwo\nthree\n")
    assert count(TextFileSource(tmp_path / "in" / "*.txt"), backend, parallelism) == ["three"]
    assert set(kept_states(backend, "lines")) == {str(path), str(tmp_path / "in" / "b.txt")}
    epochs = {key for states in kept(backend).states["epochs"].values() for key in states if isinstance(key, tuple)}
    assert epochs == {("part", str(path)), ("part", str(tmp_path / "in" / "b.txt"))}
    assert count(TextFileSource(f"file://{tmp_path}/link/*"), backend, parallelism) == []
    assert fsck(backend).problems == ()


@pytest.mark.fault("F4")
def test_a_source_whose_parts_are_all_new_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = in_memory()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.txt").write_text("one\n")
    count(TextFileSource(tmp_path / "old" / "*"), backend)
    shutil.rmtree(tmp_path / "old")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.txt").write_text("two\n")
    assert caplog.text == ""
    count(TextFileSource(tmp_path / "new" / "*"), backend)
    assert "source 'lines' has 1 part, all of them new, and none of the 1 that were read before" in caplog.text
    caplog.clear()
    count(ScriptedSource({"a": []}), in_memory())
    assert caplog.text == ""


@pytest.mark.parametrize("url", ["s3://AKIA:hush@bucket/x.txt", "s3://AKIA:hu/hush@bucket/x.txt", "s3://AKIA:hush"])
def test_credentials_in_the_url_of_a_bucket(url: str) -> None:
    pytest.importorskip("s3fs")
    for build in (
        lambda provider: provider.new_stream().source("in", TextFileSource(url)),
        lambda provider: provider.new_stream().source("in", ScriptedSource([1])).sink("out", TextFileSink(url)),
    ):
        with pytest.raises(MalflowError, match="the URL of a bucket can't hold credentials") as refused:
            SingleThreadRuntime(build).execute()
        assert "hush" not in "".join(traceback.format_exception(refused.value))
