"""Fixtures of the tests of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """Return a client of the session's server."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def name() -> str:
    """Return a key that no other test uses."""
    return f"t-{uuid4().hex}"
