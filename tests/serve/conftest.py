"""A run with a page, shared by those tests of a module that don't change it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor.conftest import place
from tests.monitor.watching import numbers
from tests.serve.serving import Served, served

__all__ = ["folder", "place", "run", "steered"]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder for the files of a module's shared runs."""
    tmp_path_factory.getbasetemp()  # before there is another temporary folder
    runtime = Path(tempfile.mkdtemp(prefix="mf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.setenv("TMPDIR", str(runtime))
        patch.setattr(tempfile, "tempdir", None)
        yield runtime
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[Served]:
    """Return a run whose page can't steer it."""
    del folder
    with served(numbers()) as found:
        yield found


@pytest.fixture(scope="module")
def steered(folder: Path) -> Iterator[Served]:
    """Return a run whose page may steer it."""
    del folder
    with served(numbers(), control=True) as found:
        yield found
