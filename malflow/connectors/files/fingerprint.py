"""A short digest that tells whether a file is still the one it was, up to a place."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

__all__ = ["SPAN", "digest", "fingerprint", "spans"]

SPAN = 4096
"""How many bytes of the beginning, and how many before the place, are looked at."""


def fingerprint(read: Callable[[int, int], bytes], length: int) -> str:
    r"""Return a digest of the beginning of a file and of what is before a place in it.

    Two small reads, however large the file is.

    Args:
        read: returns the bytes from one place to another.
        length: the place, in bytes.

    >>> text = b"one\ntwo\n"
    >>> fingerprint(lambda start, end: text[start:end], 4)
    '2b93bf7282cb10ba'
    """
    head, tail = spans(length)
    return digest(read(0, head), read(tail, length))


def spans(length: int) -> tuple[int, int]:
    """Return where the beginning that is looked at ends, and where what is looked at before a place begins."""
    head = min(SPAN, length)
    return head, max(head, length - SPAN)


def digest(head: bytes, tail: bytes) -> str:
    """Return the digest of a beginning and of what is before a place."""
    return blake2b(head + tail, digest_size=8).hexdigest()
