"""The functions of one row."""

from __future__ import annotations

from malflow.sql.functions.table import Signature
from malflow.sql.types import INT, STRING

__all__ = ["SCALAR"]

SCALAR: dict[str, tuple[Signature, ...]] = {
    "CHAR_LENGTH": (Signature("t", INT, "len({0})"),),
    "UPPER": (Signature("t", STRING, "{0}.upper()"),),
    "LOWER": (Signature("t", STRING, "{0}.lower()"),),
}
"""Each function by its name in capitals, with the ways to call it: the first that fits counts."""
