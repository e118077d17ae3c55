import subprocess
import sys

import pytest

import malflow.sinks
import malflow.sources

LIST_MODULES = "import sys; from malflow import StreamProvider; print(*sys.modules)"


@pytest.mark.slow
def test_malflow_is_imported_without_the_file_systems() -> None:
    command = [sys.executable, "-c", LIST_MODULES]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "malflow.sources" in modules
    assert not {"fsspec", "s3fs", "asyncio", "tomllib", "malflow.config"}.intersection(modules)


@pytest.mark.slow
def test_a_dataflow_is_built_with_few_modules() -> None:
    """The coordinator, snapshots, drawings and the configuration are imported when a run needs them."""
    command = [sys.executable, "-c", LIST_MODULES]
    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert sum(it.partition(".")[0] == "malflow" for it in modules) <= 140


def test_names_and_rooms_are_at_the_door() -> None:
    assert {*malflow.__all__, "agg", "errors", "patterns", "windows"} <= {*dir(malflow)}
    assert malflow.errors.GraphError is malflow.GraphError


@pytest.mark.parametrize("room", [malflow.sources, malflow.sinks])
def test_every_name_at_the_door_is_there(room: object) -> None:
    names: list[str] = room.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    assert [getattr(room, name).__name__ for name in names] == names
    with pytest.raises(AttributeError, match="has no attribute 'Gone'"):
        room.Gone  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
