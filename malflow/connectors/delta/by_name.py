"""Delta tables by their URL: ``delta://`` before a path, or ``delta+s3://`` and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from malflow.connectors.address import Address
from malflow.connectors.delta.sink import DeltaSink
from malflow.connectors.lost_output import OnDataLoss
from malflow.durations import Duration

__all__ = ["sink"]


def sink(  # noqa: PLR0913 - all of them a user's
    address: Address,
    /,
    *,
    schema: pa.Schema | None = None,
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once",
    formatter: Callable[[Any], Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
    retry_for: Duration = timedelta(minutes=1),
    on_data_loss: OnDataLoss = "fail",
    on_workers: bool = True,
) -> DeltaSink[Any, Any, Any]:
    """Return the sink into a table."""
    return DeltaSink(
        f"{address.scheme}{address.url[len(address.scheme) :]}".removeprefix("delta+").removeprefix("delta://"),
        schema=schema,
        delivery=delivery,
        formatter=formatter,
        settings=settings,
        storage_options=storage_options,
        retry_for=retry_for,
        on_data_loss=on_data_loss,
        on_workers=on_workers,
    )
