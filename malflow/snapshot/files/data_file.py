"""The data file format: a header that lists the sections, then their frames, each compressed separately."""

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
from malflow.snapshot.compression import Compression, is_compression
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta
from malflow.store.contract import FILE_LIMIT
from malflow.words import plural

__all__ = [
    "FORMAT",
    "DataFile",
    "Section",
    "apply_chunk",
    "decode_file",
    "encode_delta",
    "encode_file",
    "joined",
    "pack",
    "raw_of",
]

FORMAT: Final = 2
"""The latest format version that can be read. It is written only where the compression asks for it."""

_PLAIN_FORMAT = 1
"""The version of files with lz4, or without compression: older versions of malflow read them."""

_MAGIC = b"\x8dMFS\r\n\x1a\n"
_HEAD = Struct(">8sHII")
_CHUNK_BYTES = 4 << 20
"""Serialised bytes per frame. Less: more overhead per frame; more: more memory at once."""

_FIRST_CHUNK = 1_000
"""Keys of the first frame. Their size is not known yet. More: large ones take much memory; fewer: small frames."""

_LARGEST_CHUNK = 1 << 14
"""Keys per frame even if they are tiny. More: longer searches for an unwritable key; fewer: more frames."""

_GROWTH = 16
"""The largest growth from one frame to the next, since its keys may be larger than the ones before."""

_KINDS = ("whole", "changed", "appended", "deleted")
_MOST = 1 << 62
"""Limits the numbers of a section's header: greater ones come only from damage."""

_SIZES = ("worker", "version", "keys", "raw", "piece", "pieces")
_MEMBERS = frozenset({"state", "what", "stored", *_SIZES})


@dataclass(frozen=True, slots=True)
class Section:
    """A serialised change to one state on one worker.

    Attributes:
        state: the name of the state.
        worker: the worker.
        version: the schema version of the state.
        what: "changed" sets keys; "appended" sets keys and moves them to the end; "deleted" removes keys; "whole" has
            no content and removes all previous keys.
        keys: the number of keys.
        raw: the size before compression.
        frame: the stored bytes.
        piece: the index of this piece, if the frame is too large for one file.
        pieces: the number of pieces of the frame; `keys` and `raw` count all of them together.
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
    """The content of a file: codec, compression and sections in order."""

    codec: str
    compression: str
    sections: tuple[Section, ...]


def encode_delta(
    codec: Codec, delta: Delta, errors: type[BaseException] = Exception
) -> Iterator[tuple[str, int, bytes]]:
    """Serialise a delta in chunks of some MiB; yield kind, number of keys and bytes, in the order to be applied.

    Whether the delta is whole is not included; the keys of a whole delta are "changed".

    Args:
        codec: the codec.
        delta: the delta.
        errors: the exceptions attributed to the classes of a state; others, such as KeyboardInterrupt, propagate.

    Raises:
        StateNotSerializable: naming the first key that can't be serialised, with its state; the cause says why.
    """
    changed, in_place = delta.changed, len(delta.changed) - delta.appended
    yield from _chunks(codec, "deleted", delta.deleted, 0, len(delta.deleted), errors)
    yield from _chunks(codec, "changed", changed, 0, in_place, errors)
    yield from _chunks(codec, "appended", changed, in_place, len(changed), errors)


def apply_chunk(state: dict[Any, Any], what: str, value: Any, *, name: str = "") -> None:
    """Apply a chunk to a state, in place.

    Args:
        state: the state after the previous chunks.
        what: the kind of the chunk.
        value: the deserialised chunk.
        name: the file, for errors.

    Raises:
        SnapshotCorrupt: if the value does not match the kind.
    """
    if what == "whole":
        state.clear()
        return
    if type(value) is not (list if what == "deleted" else dict):
        reason = f"'{name}' is damaged: a section of {what} keys has a {type(value).__name__}"
        raise SnapshotCorrupt(reason, name=name)
    try:
        if what == "deleted" or (what == "appended" and not state.keys().isdisjoint(value)):
            for key in value:
                state.pop(key, None)
    except TypeError as error:
        raise SnapshotCorrupt(f"'{name}' is damaged: a deleted key is not hashable: {error}", name=name) from error
    if what != "deleted":
        state.update(value)


def encode_file(sections: Iterable[Section], *, codec: str, compression: str) -> bytes:
    """Return the bytes of a data file.

    The layout: a magic number of 8 bytes, the format version (16 bits), the CRC-32 of everything after it, the length
    of the header (32 bits; numbers are big-endian), the header as JSON, and the frames without gaps. Version 2 is
    version 1 with the name of another compression than lz4 and none.
    """
    sections = list(sections)
    entries = [_entry(section) for section in sections]
    header = json.dumps({"codec": codec, "compression": compression, "sections": entries}, separators=(",", ":"))
    parts = [header.encode(), *(section.frame for section in sections)]
    version = _PLAIN_FORMAT if is_compression(compression, own=True) else FORMAT
    head = _HEAD.pack(_MAGIC, version, _checksum(parts), len(parts[0]))
    return b"".join([head, *parts])


def decode_file(name: str, data: bytes) -> DataFile:
    """Parse a data file, and validate all of it.

    Raises:
        SnapshotCorrupt: if it is not the output of `encode_file`.
        SnapshotError: if a newer malflow wrote it.
    """
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise SnapshotCorrupt(f"'{name}' is not a data file of malflow: it has {plural(len(data), 'byte')}", name=name)
    _, version, checksum, length = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise SnapshotError(
            f"'{name}' was written by a newer malflow (format {version}; this version reads up to {FORMAT}); "
            "upgrade malflow"
        )
    frames_at = _HEAD.size + length
    if version == 0 or frames_at > len(data) or _checksum([memoryview(data)[_HEAD.size :]]) != checksum:
        raise SnapshotCorrupt(f"'{name}' is damaged: its checksum does not match", name=name)
    try:
        codec, compression, bare = _header(data[_HEAD.size : frames_at], version)
        sections = _with_frames(bare, data, frames_at)
    except (ValueError, TypeError, RecursionError) as error:
        raise SnapshotCorrupt(f"'{name}' has an invalid header: {error}", name=name) from error
    return DataFile(codec, compression, sections)


def raw_of(name: str, section: Section, compression: Compression) -> bytes:
    """Return the decompressed frame of a section; never decompress more bytes than declared.

    Args:
        name: the file, for errors.
        section: a section returned by `joined`.
        compression: the file's compression.

    Raises:
        SnapshotCorrupt: if the frame is not the output of the compression.
        SnapshotError: if a function of the user's fails.
    """
    if section.what == "whole":
        return b""
    raw = compression.unpacked(section.frame, section.raw)
    if raw is None:
        frame = f"a frame of operator '{section.state}' is not {section.raw} bytes of {compression.name}"
        raise SnapshotCorrupt(f"'{name}' is damaged: {frame}", name=name)
    return raw


def pack(sections: Iterable[Section], limit: int = FILE_LIMIT) -> Iterator[list[Section]]:
    """Yield groups of sections with at most `limit` bytes of frames, one per file; split larger frames into pieces.

    Sections that are pieces already are not split again.
    """
    group: list[Section] = []
    size = 0
    for section in _in_pieces(sections, limit):
        if group and size + len(section.frame) > limit:
            yield group
            group, size = [], 0
        group.append(section)
        size += len(section.frame)
    if group:
        yield group


def joined(sections: Iterable[Section]) -> Iterator[Section]:
    """Yield whole sections, reassembled from their pieces.

    Raises:
        SnapshotCorrupt: if a piece is missing or out of order.
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
    """Serialise the keys from `start` to `stop`, with their states if `keys` is a mapping."""
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
) -> tuple[StateNotSerializable, BaseException]:
    """Return the first key that can't be serialised with its state, and the cause; found by bisection."""
    while len(items) > 1:
        half = items[: len(items) // 2]
        items = half if _failure(codec, dict(half), errors) else items[len(half) :]
    ((key, state),) = items
    return StateNotSerializable("", key, state), _failure(codec, state, errors) or _failure(codec, key, errors) or error


def _failure(codec: Codec, value: Any, errors: type[BaseException]) -> BaseException | None:
    try:
        codec.dumps(value)
    except errors as error:
        return error
    return None


def _in_pieces(sections: Iterable[Section], limit: int) -> Iterator[Section]:
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
    reason = f"piece {expected + 1} of {section.pieces} of a section of operator '{section.state}' is missing"
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


def _header(data: bytes, version: int) -> tuple[str, str, list[dict[str, Any]]]:
    header = json.loads(data.decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict) or set(header) != {"codec", "compression", "sections"}:
        raise ValueError("its members are not codec, compression and sections")
    codec, compression, sections = header["codec"], header["compression"], header["sections"]
    is_known = is_compression(compression, own=version == _PLAIN_FORMAT)
    if not isinstance(codec, str) or not is_known or not isinstance(sections, list):
        raise ValueError("its codec, compression or sections are invalid")
    for section in sections:
        _check(section)
    return codec, compression, sections


def _check(section: Any) -> None:
    if not isinstance(section, dict) or set(section) != _MEMBERS:
        raise ValueError("a section has missing or unknown members")
    if not isinstance(section["state"], str) or section["what"] not in _KINDS:
        raise ValueError("a section has an invalid operator or kind")
    for member in (*_SIZES, "stored"):
        if type(section[member]) is not int or not 0 <= section[member] <= _MOST:
            raise ValueError(f"a section has {member} {section[member]!r}")
    if section["what"] == "whole":
        if section["keys"] or section["raw"] or section["stored"] or section["pieces"] != 1:
            raise ValueError("a section of kind 'whole' has content")
    elif not section["keys"]:
        raise ValueError("a section has no keys")
    if section["piece"] >= section["pieces"]:
        raise ValueError("a piece of a section is out of range")


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
        raise ValueError("a member is duplicated")
    return members
