"""Values as Redis clients write them: bytes and text as they are, numbers in decimal."""

from __future__ import annotations

from typing import Any

from malflow.connectors.codecs.contract import Encoder

__all__ = ["PLAIN"]


class _PlainEncoder(Encoder[Any]):
    """Encode values as Redis clients do."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, int) and not isinstance(value, bool):
            return int.__repr__(value).encode()
        if isinstance(value, float):
            return float.__repr__(value).encode()
        raise TypeError(f"it is {type(value).__name__}, not bytes, text or a number")


PLAIN = _PlainEncoder()
