"""Zip archives: the one file in it is read, and anything else is refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from malflow.sources import CsvSource, InputFileError, JsonLinesSource, TextFileSource

KINDS: list[Any] = [CsvSource, JsonLinesSource, TextFileSource]


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.rm("/zips", recursive=True)


def archive(**members: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for name, text in members.items():
            file.writestr(name, text)
    return whole.getvalue()


def records(source: Any) -> list[Any]:
    [part] = source.list_parts()
    reader = source.build_part(part, None)
    values: list[Any] = []
    while not reader.is_finished():
        values += reader.poll_batch(10)[0]
    return values


def test_folders_beside_the_one_file_do_not_count(store: Any) -> None:
    store.pipe("/zips/a.txt.zip", archive(**{"data/": "", "__MACOSX/._a.txt": "x", "data/a.txt": "x\ny\n"}))
    assert records(TextFileSource("memory://zips/a.txt.zip")) == ["x", "y"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_of_several_files_is_refused(kind: Any, store: Any) -> None:
    store.pipe("/zips/two.zip", archive(january="1\n2\n", february="3\n"))
    with pytest.raises(
        InputFileError, match=r"two.zip' is a zip archive of 2 files, 'january', 'february'; write each"
    ):
        records(kind("memory://zips/two.zip"))
    one = TextFileSource("zip://february::memory://zips/two.zip")
    assert records(one) == ["3"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (archive(), "is a zip archive without a file in it"),
        (archive(**{"data/": ""}), "is a zip archive without a file in it"),
        (b"not a zip", "cannot be decompressed: File is not a zip file"),
        (archive(a="1\n")[:-10], "cannot be decompressed"),
        (archive(a="12345\n").replace(b"12345", b"12346"), "cannot be decompressed: Bad CRC-32"),
    ],
    ids=["empty", "only_a_folder", "no_zip", "torn", "damaged"],
)
def test_empty_and_broken_archives_are_refused(content: bytes, problem: str, store: Any) -> None:
    store.pipe("/zips/bad.zip", content)
    with pytest.raises(InputFileError, match=f"bad.zip' {problem}"):
        records(TextFileSource("memory://zips/bad.zip"))
