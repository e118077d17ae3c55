"""The laws of sources, kept by files that return to an older state: some are new, others have grown."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from malflow.sources import CsvSource, JsonLinesSource, TextFileSource
from malflow.testing import assert_source
from malflow.testing.source_laws import SOURCE_LAWS
from tests.kit.going_back import copied_folder


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (TextFileSource, str),
        (JsonLinesSource, lambda number: json.dumps({"n": number})),
        (CsvSource, str),
    ],
)
@pytest.mark.parametrize("grows", [False, True])
def test_laws_of_files_that_are_put_back(
    source: Callable[[str], Any], line: Callable[[int], str], tmp_path: Path, *, grows: bool
) -> None:
    folder, numbers = tmp_path / "input", count()
    folder.mkdir()
    if grows:
        (folder / "a.txt").write_text("n\n" if source is CsvSource else "", encoding="utf-8")

    def add(size: int) -> None:
        """Append to a file, or write another one."""
        name = "a" if grows else f"f{len(list(folder.iterdir()))}"
        is_headed = source is CsvSource and not grows
        with (folder / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write("n\n" if is_headed else "")
            file.writelines(f"{line(number)}\n" for number in islice(numbers, size))

    add(10)
    assert_source(
        lambda: source(f"{folder}/*.txt"),
        add_records=add,
        copy_input=lambda: copied_folder(folder),
        timeout=5,
        without=[law for law in SOURCE_LAWS if law not in ("parts", "records", "restored")],
    )
