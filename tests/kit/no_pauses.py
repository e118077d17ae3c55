"""Runs that do not pause where a script says that there is no input: nobody else has something to do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from malflow.runtime.requests import pauses

__all__ = ["no_pauses"]


@pytest.fixture(autouse=True, scope="module")
def no_pauses() -> Iterator[None]:
    """Make runs in this process take the next tick at once; for the tests of the folder whose conftest imports it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pauses, "_SHORTEST", 0.0)
        patched.setattr(pauses, "_LONGEST", 0.0)
        yield
