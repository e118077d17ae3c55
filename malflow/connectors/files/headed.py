"""Lines below a header that each file has once."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["HeadedLines"]


class HeadedLines(NamedTuple):
    """Some lines, and the header of their file; b"" for none.

    Attributes:
        header: the header.
        lines: the lines.
    """

    header: bytes
    lines: bytes
