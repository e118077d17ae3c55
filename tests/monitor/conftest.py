"""A folder for the files of runs, of each test alone, and the runs that these tests look at."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["place"]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder in which runs of this test have their files; its path is short, as that of a socket must be."""
    tmp_path_factory.getbasetemp()  # before there is another temporary folder
    runtime = Path(tempfile.mkdtemp(prefix="mf"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(runtime))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield runtime / "malflow"
    shutil.rmtree(runtime, ignore_errors=True)
