"""Fixtures of tests of two systems at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.pairs import Pair


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path, kafka_servers: str, postgres_dsn: str) -> Iterator[Pair]:
    """Return a job between the two systems of the test's parameter."""
    source, sink = request.param
    made = Pair(source, sink, tmp_path, kafka_servers, postgres_dsn)
    yield made
    made.close()
