"""The library that pickles functions and classes of scripts by value."""

from __future__ import annotations

import sys
from typing import Any

from malflow.errors import MissingDependency

__all__ = ["cloudpickle", "dumps_by_value"]


def cloudpickle() -> Any:
    """Return cloudpickle: pyspark's copy where pyspark is loaded, whose executors may have no other.

    Raises:
        MissingDependency: if neither is installed.
    """
    if "pyspark" in sys.modules:
        from pyspark import cloudpickle as copied  # noqa: PLC0415 - only the extra has it

        return copied
    try:
        import cloudpickle as installed  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingDependency(
            "several processes need cloudpickle, which sends them the dataflow; pip install 'malflow[processes]'"
        ) from error
    return installed


def dumps_by_value(thing: object) -> bytes:
    """Pickle an object, with functions and classes of the script by value."""
    data: bytes = cloudpickle().dumps(thing, 5)
    return data
