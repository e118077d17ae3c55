"""A run with a page that may steer it, shared by the tests of a module that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitor.conftest import place
from tests.monitor.watching import numbers
from tests.serve.serving import Served, served

__all__ = ["place", "run", "steered"]


@pytest.fixture(scope="module")
def run() -> Iterator[Served]:
    """Return a run whose page only shows it."""
    with served(numbers()) as found:
        yield found


@pytest.fixture(scope="module")
def steered() -> Iterator[Served]:
    """Return a run whose page may steer it."""
    with served(numbers(), control=True) as found:
        yield found
