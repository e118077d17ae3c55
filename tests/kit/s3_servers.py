"""The S3 servers of the tests: moto, which is always installed, and versitygw, which checks signatures."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["S3_SERVERS", "s3_options"]

S3_SERVERS = ["moto", pytest.param("versitygw", marks=[pytest.mark.servers, pytest.mark.nightly])]
"""Parameters of a fixture: a server in this process by day, and a real one at night."""


def s3_options(request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """Return the storage options of the server that is the fixture's parameter; None for moto."""
    if request.param == "moto":
        return None
    options: dict[str, Any] = request.getfixturevalue(request.param).options
    return options
