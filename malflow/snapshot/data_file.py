"""One immutable file of states: a header that says what is in it, then the frames, each compressed on its own."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from struct import Struct
from typing import Any, Final

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec, dumps_dict
from malflow.snapshot.persistence import UnwritableState
from malflow.state import Delta

__all__ = [
    "FORMAT",
    "DataFile",
    "Section",
    "apply_chunk",
    "compress",
    "decode_file",
    "encode_delta",
    "encode_file",
    "joined",
    "pack",
    "raw_of",
]

FORMAT: Final = 1
"""The format version that is written, and the latest that is read."""

_MAGIC = b"\x8dMFS\r\n\x1a\n"
_HEAD = Struct(">8sHII")
_FILE_LIMIT = 32 << 20
_CHUNK_BYTES = 4 << 20
_FIRST_CHUNK = 1_000
_LARGEST_CHUNK = 1 << 14
_GROWTH = 16
_LZ4_RATIO = 256
_COMPRESSIONS = ("lz4", "none")
_KINDS = ("whole", "changed", "appended", "deleted")
_MOST = 1 << 62
_SIZES = ("worker", "version", "keys", "raw", "piece", "pieces")
_MEMBERS = frozenset({"state", "what", "stored", *_SIZES})


@dataclass(frozen=True, slots=True)
class Section:
    """The states of some keys of one operator on one worker, as bytes.

    Attributes:
        state: the operator.
        worker: the worker.
        version: the version of the form of each key's state.
        what: "changed" sets the states of keys, and "appended" moves these keys to the end, too; "deleted" drops keys;
            "whole", which has no keys of its own, drops what was before.
        keys: how many keys.
        raw: how many bytes before compression.
        frame: the bytes stored.
        piece: which piece of the frame, where it is too large for one file.
        pieces: how many pieces the frame is cut into; `keys` and `raw` are those of all together.
    """

    state: str
    worker: int
    version: int
    what: str
    keys: int
    raw: int
    frame: bytes
    piece: int = 0
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """What a file says: its codec, its compression and its sections in their order."""

    codec: str
    compression: str
    sections: tuple[Section, ...]


def compress(raw: bytes, compression: str) -> bytes:
    """Make a frame of bytes; an lz4 frame tells its size and has a checksum."""
    if compression == "none":
        return raw
    import lz4.frame  # noqa: PLC0415 - most programs keep nothing

    frame: bytes = lz4.frame.compress(raw, content_checksum=True, store_size=True)
    return frame


def encode_delta(
    codec: Codec, delta: Delta, errors: type[BaseException] = Exception
) -> Iterator[tuple[str, int, bytes]]:
    """Write a delta in chunks of some MiB, in the order in which they are to be applied: what, how many keys, bytes.

    That a delta is whole is not told; what it has is "changed" then.

    Args:
        codec: how.
        delta: the delta.
        errors: what, raised by the classes of a state, is an error of theirs; others, such as KeyboardInterrupt, pass
            as they are.

    Raises:
        UnwritableState: naming the key that can't be written, or whose state can't; the cause says why.
    """
    changed, in_place = delta.changed, len(delta.changed) - delta.appended
    yield from _chunks(codec, "deleted", delta.deleted, 0, len(delta.deleted), errors)
    yield from _chunks(codec, "changed", changed, 0, in_place, errors)
    yield from _chunks(codec, "appended", changed, in_place, len(changed), errors)


def apply_chunk(state: dict[Any, Any], what: str, value: Any, *, name: str = "") -> None:
    """Bring a state to where a chunk leaves it.

    Args:
        state: what the chunks before came to.
        what: what the chunk is.
        value: what was read of it.
        name: the file, for errors.

    Raises:
        SnapshotCorrupt: if the chunk is not such.
    """
    if what == "whole":
        state.clear()
        return
    if type(value) is not (list if what == "deleted" else dict):
        reason = f"'{name}' is damaged: a section that tells keys {what} has a {type(value).__name__}"
        raise SnapshotCorrupt(reason, name=name)
    try:
        if what == "deleted" or (what == "appended" and not state.keys().isdisjoint(value)):
            for key in value:
                state.pop(key, None)
    except TypeError as error:
        raise SnapshotCorrupt(f"'{name}' is damaged: a deleted key is none: {error}", name=name) from error
    if what != "deleted":
        state.update(value)


def encode_file(sections: Iterable[Section], *, codec: str, compression: str) -> bytes:
    """Write a file.

    It has a magic number of 8 bytes, the format version (16 bits), the CRC-32 of all that follows, the header's length
    (32 bits; numbers are big-endian), the header as JSON, and the frames, nothing between and nothing after them.
    """
    sections = list(sections)
    entries = [_entry(section) for section in sections]
    header = json.dumps({"codec": codec, "compression": compression, "sections": entries}, separators=(",", ":"))
    parts = [header.encode(), *(section.frame for section in sections)]
    head = _HEAD.pack(_MAGIC, FORMAT, _checksum(parts), len(parts[0]))
    return b"".join([head, *parts])


def decode_file(name: str, data: bytes) -> DataFile:
    """Read a file, trusting nothing in it.

    Raises:
        SnapshotCorrupt: if it is not what `encode_file` wrote.
        SnapshotError: if a newer malflow wrote it.
    """
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise SnapshotCorrupt(f"'{name}' is no data file of malflow: it has {len(data)} bytes", name=name)
    _, version, checksum, length = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise SnapshotError(
            f"'{name}' was written by a newer malflow (format {version}; this one reads up to {FORMAT}); update malflow"
        )
    frames_at = _HEAD.size + length
    if version == 0 or frames_at > len(data) or _checksum([memoryview(data)[_HEAD.size :]]) != checksum:
        raise SnapshotCorrupt(f"'{name}' is damaged: its bytes are not those that were written", name=name)
    try:
        codec, compression, bare = _header(data[_HEAD.size : frames_at])
        sections = _with_frames(bare, data, frames_at)
    except (ValueError, TypeError, RecursionError) as error:
        raise SnapshotCorrupt(f"'{name}' has a header that is not malflow's: {error}", name=name) from error
    return DataFile(codec, compression, sections)


def raw_of(name: str, section: Section, compression: str) -> bytes:
    """Decompress the frame of a whole section; no more bytes are ever made of it than it says it has.

    Args:
        name: the file, for errors.
        section: one that `joined` gave.
        compression: that of the file.

    Raises:
        SnapshotCorrupt: if the frame is not what `compress` made.
    """
    if section.what == "whole":
        return b""
    raw = section.frame if compression == "none" else _decompress(section.frame, section.raw)
    if raw is None or len(raw) != section.raw:
        reason = (
            f"'{name}' is damaged: a frame of operator '{section.state}' is not {section.raw} bytes of {compression}"
        )
        raise SnapshotCorrupt(reason, name=name)
    return raw


def pack(sections: Iterable[Section], limit: int = _FILE_LIMIT) -> Iterator[list[Section]]:
    """Group sections for files whose frames are at most `limit` bytes together; larger frames are cut into pieces.

    A section that is a piece already stays as it is.
    """
    group: list[Section] = []
    size = 0
    for section in _cut(sections, limit):
        if group and size + len(section.frame) > limit:
            yield group
            group, size = [], 0
        group.append(section)
        size += len(section.frame)
    if group:
        yield group


def joined(sections: Iterable[Section]) -> Iterator[Section]:
    """Put pieces together again, and give whole sections.

    Raises:
        SnapshotCorrupt: if a piece lacks or is out of order.
    """
    pieces: list[Section] = []
    for section in sections:
        first = pieces[0] if pieces else section
        expected = replace(first, piece=len(pieces), frame=section.frame)
        if section != expected:
            raise _lost(first, len(pieces))
        pieces.append(section)
        if len(pieces) == first.pieces:
            whole = section if len(pieces) == 1 else _merged(pieces)
            pieces = []
            yield whole
    if pieces:
        raise _lost(pieces[0], len(pieces))


def _chunks(
    codec: Codec, what: str, keys: Collection[Any], start: int, stop: int, errors: type[BaseException]
) -> Iterator[tuple[str, int, bytes]]:
    """Write those from `start` to `stop` of some keys: with their states where `keys` is a mapping, else alone."""
    source = iter(keys.items() if isinstance(keys, Mapping) else keys)
    deque(islice(source, start), maxlen=0)
    write = partial(dumps_dict if isinstance(keys, Mapping) else _dumps_list, codec)
    size = _FIRST_CHUNK
    while start < stop:
        count = min(size, stop - start)
        try:
            raw = write(islice(source, count))
        except errors as error:
            some = keys.items() if isinstance(keys, Mapping) else ((key, None) for key in keys)
            unwritable, cause = _culprit(codec, list(islice(some, start, start + count)), error, errors)
            raise unwritable from cause
        yield what, count, raw
        start += count
        size = max(1, min(_CHUNK_BYTES * count // (len(raw) or 1), _GROWTH * size, _LARGEST_CHUNK))


def _dumps_list(codec: Codec, items: Iterable[Any]) -> bytes:
    return codec.dumps(list(items))


def _culprit(
    codec: Codec, items: list[tuple[Any, Any]], error: BaseException, errors: type[BaseException]
) -> tuple[UnwritableState, BaseException]:
    """Find the first key that can't be written, or whose state can't, by halving; and why."""
    while len(items) > 1:
        half = items[: len(items) // 2]
        items = half if _failure(codec, dict(half), errors) else items[len(half) :]
    ((key, state),) = items
    return UnwritableState("", key, state), _failure(codec, state, errors) or _failure(codec, key, errors) or error


def _failure(codec: Codec, value: Any, errors: type[BaseException]) -> BaseException | None:
    try:
        codec.dumps(value)
    except errors as error:
        return error
    return None


def _cut(sections: Iterable[Section], limit: int) -> Iterator[Section]:
    for section in sections:
        frame = section.frame
        if len(frame) <= limit or section.pieces > 1:
            yield section
            continue
        cuts = range(0, len(frame), limit)
        for piece, start in enumerate(cuts):
            yield replace(section, frame=frame[start : start + limit], piece=piece, pieces=len(cuts))


def _merged(pieces: list[Section]) -> Section:
    return replace(pieces[0], frame=b"".join(piece.frame for piece in pieces), piece=0, pieces=1)


def _lost(section: Section, expected: int) -> SnapshotCorrupt:
    reason = f"piece {expected + 1} of {section.pieces} of a section of operator '{section.state}' is not there"
    return SnapshotCorrupt(reason, name="")


def _entry(section: Section) -> dict[str, Any]:
    return {"state": section.state, "what": section.what, "stored": len(section.frame)} | {
        size: getattr(section, size) for size in _SIZES
    }


def _checksum(parts: Iterable[bytes | memoryview]) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def _header(data: bytes) -> tuple[str, str, list[dict[str, Any]]]:
    header = json.loads(data.decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict) or set(header) != {"codec", "compression", "sections"}:
        raise ValueError("it has not the members codec, compression and sections")
    codec, compression, sections = header["codec"], header["compression"], header["sections"]
    if not isinstance(codec, str) or compression not in _COMPRESSIONS or not isinstance(sections, list):
        raise ValueError("its codec, compression or sections are not such")
    for section in sections:
        _check(section)
    return codec, compression, sections


def _check(section: Any) -> None:
    if not isinstance(section, dict) or set(section) != _MEMBERS:
        raise ValueError("a section has not the members of one")
    if not isinstance(section["state"], str) or section["what"] not in _KINDS:
        raise ValueError("a section is of no operator, or does nothing")
    for member in (*_SIZES, "stored"):
        if type(section[member]) is not int or not 0 <= section[member] <= _MOST:
            raise ValueError(f"a section has {member} {section[member]!r}")
    if section["what"] == "whole":
        if section["keys"] or section["raw"] or section["stored"] or section["pieces"] != 1:
            raise ValueError("a section that drops what was before has content")
    elif not section["keys"]:
        raise ValueError("a section has no keys")
    if section["piece"] >= section["pieces"]:
        raise ValueError("a section has more pieces than it has")


def _with_frames(bare: list[dict[str, Any]], data: bytes, at: int) -> tuple[Section, ...]:
    sections = []
    for entry in bare:
        stored = entry.pop("stored")
        sections.append(Section(**entry, frame=data[at : at + stored]))
        at += stored
    if at != len(data):
        raise ValueError(f"its frames end at byte {at} of {len(data)}")
    return tuple(sections)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _decompress(frame: bytes, size: int) -> bytes | None:
    """Decompress one lz4 frame of this size; None where it is none."""
    import lz4.frame  # noqa: PLC0415 - most programs keep nothing

    if size > _LZ4_RATIO * len(frame):
        return None
    try:
        facts = lz4.frame.get_frame_info(frame)
        if facts["content_size"] != size or not facts["content_checksum"]:
            return None
        decompressor = lz4.frame.LZ4FrameDecompressor()
        raw: bytes = decompressor.decompress(frame, max_length=size + 1)
    except RuntimeError:
        return None
    return raw if decompressor.eof and not decompressor.unused_data else None
