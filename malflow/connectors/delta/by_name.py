"""Delta tables by their URL: ``delta://`` before a path, or ``delta+s3://`` and the like."""

from __future__ import annotations

from functools import wraps
from typing import Any

from malflow.connectors.address import Address
from malflow.connectors.delta.sink import DeltaSink

__all__ = ["sink"]


@wraps(DeltaSink)
def sink(address: Address, /, **options: Any) -> DeltaSink[Any, Any, Any]:
    """Return the sink into a table."""
    path = f"{address.scheme}{address.url[len(address.scheme) :]}".removeprefix("delta+").removeprefix("delta://")
    return DeltaSink(path, **options)
