"""The functions of SQL: one table of signatures, and what the generated code calls."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from importlib import import_module

__all__ = ["namespace"]

_MODULES = ("formats", "nested", "numbers", "patterns", "texts", "times")
"""The modules with functions that generated code calls."""


@lru_cache(maxsize=1)
def namespace() -> dict[str, object]:
    """Return the names that generated code may use."""
    found: dict[str, object] = {"Decimal": Decimal}
    for name in _MODULES:
        module = import_module(f"malflow.sql.functions.{name}")
        found |= {it: getattr(module, it) for it in module.__all__}
    return found
