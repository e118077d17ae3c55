"""The frame that serialisers of schema registries write before a record: a zero byte and the id of its schema."""

from __future__ import annotations

import struct

__all__ = ["FRAME_SIZE", "frame", "message_indexes", "read_message_indexes", "schema_id"]

FRAME_SIZE = 5
"""The size of the frame in bytes, by Confluent's wire format: a zero byte, and a schema id of four bytes."""

_FRAME = struct.Struct(">bI")
_MOST_INDEXES = 100
"""The most levels of nested messages in a path. Damaged bytes may claim any number; no real schema has so many
levels."""

_MORE = 0x80
"""The bit of a byte that is set if the number continues."""
_LONGEST_SHIFT = 63
"""The shift of the tenth byte, seven bits each: a number of 64 bits has no further byte."""


def frame(number: int) -> bytes:
    r"""Return the frame of a schema id.

    >>> frame(258)
    b'\x00\x00\x00\x01\x02'
    """
    return _FRAME.pack(0, number)


def schema_id(raw: bytes) -> int:
    """Return the schema id of a framed record.

    Raises:
        ValueError: if the record is not framed.
    """
    if len(raw) < FRAME_SIZE or raw[0] != 0:
        raise ValueError("it does not begin with the zero byte and the schema id of a registry's wire format")
    return int.from_bytes(raw[1:FRAME_SIZE], "big")


def message_indexes(path: tuple[int, ...]) -> bytes:
    r"""Return the path of a Protobuf message in its file, in the encoding that follows the frame.

    >>> message_indexes((0,)), message_indexes((1, 0))
    (b'\x00', b'\x04\x02\x00')
    """
    if path == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def read_message_indexes(raw: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a Protobuf message in its file, and the offset at which the message begins.

    Raises:
        ValueError: if it is damaged.
    """
    count, at = _read_varint(raw, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"it has {count} message indexes")
    path = []
    for _ in range(count):
        index, at = _read_varint(raw, at)
        path.append(index)
    return tuple(path), at


def _varint(number: int) -> bytes:
    rest, written = 2 * number, bytearray()  # zigzag encoding of a non-negative number
    while rest >= _MORE:
        written.append(rest & (_MORE - 1) | _MORE)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw) or shift > _LONGEST_SHIFT:
            raise ValueError("its message indexes are truncated")
        byte = raw[at]
        number |= (byte & (_MORE - 1)) << shift
        at, shift = at + 1, shift + 7
        if byte < _MORE:
            return (number >> 1) ^ -(number & 1), at
