"""Backends of snapshots for the tests of runs."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from malflow.snapshot import FsspecBackend
from tests.kit.backends import at_once


@pytest.fixture(params=["disk", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecBackend:
    """Return a backend, on disk and in memory."""
    return at_once(tmp_path if request.param == "disk" else f"memory://{uuid4()}")
