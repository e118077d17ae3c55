"""The runtimes that every conformance case runs on.

A case that asks for `runtime` runs on one worker; one that asks for `any_parallelism` runs on one and on three, and
therefore says nothing about the order over keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from malflow import SingleThreadRuntime

Runtime = Callable[..., SingleThreadRuntime]


@pytest.fixture(params=[SingleThreadRuntime], ids=["single_thread"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Give a runtime of one worker."""
    return request.param


@pytest.fixture(params=[1, 3], ids=["one_worker", "three_workers"])
def any_parallelism(runtime: Runtime, request: pytest.FixtureRequest) -> Any:
    """Give a runtime of one worker, then one of three."""
    return partial(runtime, parallelism=request.param)
