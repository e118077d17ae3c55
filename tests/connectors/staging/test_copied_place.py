"""Staged objects that are copied to their final names, on a store that fails for some time."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from malflow.connectors.lost_output import SinkFileError
from malflow.connectors.staging.copied_place import CopiedPlace
from malflow.store.retry import Retry, SystemContext


class Failing(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A file system whose next calls of a method fail."""

    cachable = False
    failures: list[Exception]

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        if self.failures:
            raise self.failures.pop()
        super().cp_file(path1, path2, **options)


def placed(*failures: Exception) -> tuple[CopiedPlace, Failing, str]:
    filesystem, folder = Failing(), f"/{uuid4().hex}"
    filesystem.failures = list(failures)
    return (
        CopiedPlace(filesystem, folder, "sub", ["hush"], Retry(60, SystemContext(sleep=lambda _: None))),
        filesystem,
        folder,
    )


def test_copy_that_is_tried_again() -> None:
    place, filesystem, folder = placed(ConnectionError(), TimeoutError())
    file = place.create("a")
    file.write(b"one")
    staged = file.seal()
    assert not filesystem.exists(f"{folder}/a")
    for _ in range(2):
        place.publish(staged)
        assert filesystem.find(folder) == [f"{folder}/a"]
    assert filesystem.cat_file(f"{folder}/a") == b"one"


def test_copy_by_a_run_that_died_before_its_cleanup() -> None:
    place, filesystem, folder = placed()
    staged = place.create("a").seal()
    filesystem.cp_file(place.staged_path("a"), f"{folder}/a")
    place.publish(staged)
    assert filesystem.find(folder) == [f"{folder}/a"]


def test_failure_that_names_the_object_and_no_secret() -> None:
    place, _, folder = placed(PermissionError("hush"))
    staged = place.create("a").seal()
    with pytest.raises(
        SinkFileError, match=rf"'{folder}/a' could not be written \(PermissionError: \*\*\*\)"
    ) as raised:
        place.publish(staged)
    assert raised.value.__cause__ is None
    place.publish(staged)


def test_staged_objects_that_are_swept() -> None:
    place, filesystem, folder = placed()
    place.sweep("a", [], lambda _: True)
    kept = [place.create(name).seal() for name in ("a1", "a2", "b")][1]
    place.create("a3").discard()
    place.sweep("a", [kept], lambda _: True)
    assert filesystem.find(folder) == [place.staged_path("a2"), place.staged_path("b")]
