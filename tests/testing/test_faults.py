"""Each kind of fault occurs at its place, and has its documented effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from malflow import GraphError
from malflow.testing import Call, Crash, Fault, FaultyFileSystem
from malflow.testing.faults import KINDS

PAIRS = [(kind, operation) for kind, operations in KINDS.items() for operation in operations]


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """Return a file system, and a folder in it that holds the files "old" and "older"."""
    if request.param == "local":
        filesystem, root = LocalFileSystem(), str(tmp_path)
    else:
        filesystem, root = MemoryFileSystem(), "/test_faults"
    for name in ("older", "old"):
        filesystem.pipe_file(f"{root}/{name}", b"before")
    yield filesystem, root
    if request.param == "memory":
        filesystem.rm(root, recursive=True)


def act(faulty: FaultyFileSystem, root: str, operation: str) -> Any:
    match operation:
        case "write":
            return faulty.pipe_file(f"{root}/new", b"0123456789", mode="create")
        case "read":
            return faulty.cat_file(f"{root}/old")
        case "list":
            return faulty.find(root)
        case _:
            return faulty.rm_file(f"{root}/old")


def outcome(faulty: FaultyFileSystem, root: str, operation: str) -> tuple[Any, BaseException | None]:
    try:
        return act(faulty, root, operation), None
    except (OSError, Crash) as error:
        return None, error


def contents(filesystem: Any, root: str) -> dict[str, bytes]:
    return {path.rpartition("/")[2]: filesystem.cat_file(path) for path in filesystem.find(root)}


@pytest.mark.parametrize(("kind", "operation"), PAIRS)
def test_a_fault_fires_once_and_the_same_operation_goes_well_afterwards(
    place: tuple[Any, str], kind: str, operation: str
) -> None:
    filesystem, root = place
    fault = Fault(kind, operation)
    faulty = FaultyFileSystem(filesystem, [fault])

    outcome(faulty, root, operation)
    assert faulty.fired == [fault]
    for name in ("new", "old"):
        if filesystem.exists(f"{root}/{name}"):
            filesystem.rm_file(f"{root}/{name}")
    filesystem.pipe_file(f"{root}/old", b"before")
    _, error = outcome(faulty, root, operation)

    assert error is None
    assert faulty.fired == [fault]


def test_operation_without_a_fault_is_passed_on(place: tuple[Any, str]) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem)

    assert [act(faulty, root, operation) for operation in ("write", "read")] == [None, b"before"]
    assert sorted(faulty.find(root)) == sorted(filesystem.find(root))
    assert faulty.ls(root, detail=False) == filesystem.ls(root, detail=False)
    act(faulty, root, "delete")
    assert contents(filesystem, root) == {"older": b"before", "new": b"0123456789"}
    assert faulty.cat_file(f"{root}/new", 2, 4) == b"23"
    with faulty.open(f"{root}/new", "rb") as file:
        assert file.read(3) == b"012"
    with pytest.raises(FileExistsError):
        act(faulty, root, "write")
    with pytest.raises(FileNotFoundError):
        act(faulty, root, "read")
    assert faulty.fired == []


@pytest.mark.parametrize(
    ("kind", "error", "done"),
    [
        ("crash_before", Crash, False),
        ("crash_after", Crash, True),
        ("error_before", OSError, False),
        ("error_after", OSError, True),
        ("throttled", OSError, False),
        ("late", TimeoutError, False),
    ],
)
def test_a_write_and_a_delete_are_done_or_not_as_the_kind_says(
    place: tuple[Any, str], kind: str, error: type[BaseException], done: bool
) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault(kind, "write"), Fault(kind, "delete")])

    for operation in ("write", "delete"):
        with pytest.raises(error):
            act(faulty, root, operation)

    assert filesystem.exists(f"{root}/new") is done
    assert filesystem.exists(f"{root}/old") is not done
    assert contents(filesystem, root).get("new", b"0123456789") == b"0123456789"
    assert faulty.fired == faulty.faults


def test_a_throttled_operation_fails_as_s3_does() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem(), [Fault("throttled", "read")])

    with pytest.raises(OSError, match="reduce your request rate") as caught:
        faulty.cat_file("/nothing")

    cause: Any = caught.value.__cause__
    assert cause.response["Error"]["Code"] == "SlowDown"
    assert cause.response["ResponseMetadata"]["HTTPStatusCode"] == 503


@pytest.mark.parametrize(("kind", "error"), [("torn", Crash), ("torn_error", OSError)])
def test_a_torn_write_leaves_the_first_half(place: tuple[Any, str], kind: str, error: type[BaseException]) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault(kind, "write")])

    with pytest.raises(error):
        act(faulty, root, "write")

    assert contents(filesystem, root)["new"] == b"01234"


def test_a_late_write_arrives_when_it_is_released(place: tuple[Any, str]) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault("late", "write")])
    with pytest.raises(TimeoutError):
        act(faulty, root, "write")
    assert "new" not in contents(filesystem, root)

    assert (faulty.release(), faulty.release()) == (1, 0)
    assert contents(filesystem, root)["new"] == b"0123456789"


def test_a_late_write_that_must_be_the_first_loses_to_one_that_came_before(place: tuple[Any, str]) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault("late", "write")])
    with pytest.raises(TimeoutError):
        act(faulty, root, "write")
    faulty.pipe_file(f"{root}/new", b"another", mode="create")

    faulty.release()

    assert contents(filesystem, root)["new"] == b"another"


@pytest.mark.parametrize("operation", ["write", "read"])
def test_a_flipped_bit_is_one_bit(place: tuple[Any, str], operation: str) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault("bit_flip", operation)])
    faulty.pipe_file(f"{root}/new", b"0123456789")

    read = faulty.cat_file(f"{root}/new")

    differing = int.from_bytes(read) ^ int.from_bytes(b"0123456789")
    assert len(read) == 10
    assert differing.bit_count() == 1
    assert (filesystem.cat_file(f"{root}/new") == read) is (operation == "write")


@pytest.mark.parametrize("listing", ["find", "ls", "ls with details"])
def test_a_stale_listing_lacks_what_was_written_last(place: tuple[Any, str], listing: str) -> None:
    filesystem, root = place
    faulty = FaultyFileSystem(filesystem, [Fault("stale_listing", "list", nth=1)])
    faulty.pipe_file(f"{root}/b", b"")
    faulty.pipe_file(f"{root}/a", b"")

    def names() -> set[str]:
        if listing == "find":
            return {path.rpartition("/")[2] for path in faulty.find(root)}
        entries = faulty.ls(root, detail=listing == "ls with details")
        paths = [entry["name"] if isinstance(entry, dict) else entry for entry in entries]
        return {path.rpartition("/")[2] for path in paths}

    assert [names() for _ in range(3)] == [
        {"a", "b", "old", "older"},
        {"b", "old", "older"},
        {"a", "b", "old", "older"},
    ]


def test_a_fault_counts_only_what_it_is_meant_for() -> None:
    fault = Fault("error_before", "write", "/m/", nth=1)
    faulty = FaultyFileSystem(MemoryFileSystem(), [fault])
    paths = [f"/test_counting/{key}" for key in ("m/0", "d/0", "d/1", "m/1", "m/2")]

    failed = []
    for path in paths:
        try:
            faulty.pipe_file(path, b"")
        except OSError:
            failed.append(path)
    faulty.rm("/test_counting", recursive=True)

    assert failed == ["/test_counting/m/1"]
    assert faulty.log == [Call("write", path, "error_before" if path in failed else None) for path in paths]


def test_first_of_two_faults_due_at_once_happens() -> None:
    faults = [Fault("error_before", "read"), Fault("crash_before", "read")]
    faulty = FaultyFileSystem(MemoryFileSystem(), faults)

    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011 - which of the two it was says `fired`
            faulty.cat_file("/nothing")

    assert faulty.fired == faults[:1]


def test_files_are_not_written_through_handles() -> None:
    with pytest.raises(NotImplementedError, match="pipe_file"):
        FaultyFileSystem(MemoryFileSystem()).open("/handle", "wb")


@pytest.mark.parametrize(
    ("kind", "operation", "message"),
    [
        ("flood", "write", "unknown kind of fault 'flood'; the kinds are crash_before, "),
        ("torn", "read", "a fault of kind 'torn' does not apply to 'read'; it applies to write"),
        ("crash_before", "rename", "it applies to write and read and list and delete"),
    ],
)
def test_a_fault_that_can_not_happen_is_refused(kind: str, operation: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Fault(kind, operation)
