"""A short digest that detects whether a file has changed before a position."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

__all__ = ["SPAN", "digest", "fingerprint", "spans"]

SPAN = 4096
"""The number of bytes to hash at the start of the file, and before the position."""


def fingerprint(read: Callable[[int, int], bytes], length: int) -> str:
    r"""Return a digest of the start of a file and of the bytes before a position.

    It takes two small reads, however large the file is.

    Args:
        read: returns the bytes between two offsets.
        length: the position, in bytes.

    >>> text = b"one\ntwo\n"
    >>> fingerprint(lambda start, end: text[start:end], 4)
    '2b93bf7282cb10ba'
    """
    head, tail = spans(length)
    return digest(read(0, head), read(tail, length))


def spans(length: int) -> tuple[int, int]:
    """Return the end of the hashed start of the file, and the offset of the hashed bytes before a position."""
    head = min(SPAN, length)
    return head, max(head, length - SPAN)


def digest(head: bytes, tail: bytes = b"") -> str:
    """Return the digest of the start of a file, and of the bytes before a position."""
    return blake2b(head + tail, digest_size=8).hexdigest()
