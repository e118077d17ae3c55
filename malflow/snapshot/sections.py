"""Serialising changes of state to sections, and writing sections to data files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from malflow.errors import SnapshotError
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.commit import DataWriter
from malflow.snapshot.data_file import Section, compress, decode_file, encode_delta, encode_file, pack
from malflow.snapshot.manifest import FileEntry
from malflow.snapshot.persistence import StateNotSerializable
from malflow.states.keyed import Delta, StateDelta

__all__ = [
    "Written",
    "bare_sections",
    "encoded",
    "finding",
    "merge_files",
    "sections_of",
    "with_frame",
    "write_file",
]

Written = tuple[Sequence[FileEntry], Sequence[Finding]]
"""The files written, and the classes found in them."""


def finding(codec: Codec, worker: int, name: str, delta: Delta, kinds: Iterable[type]) -> Finding:
    """Return the shapes of the classes in a delta."""
    shapes = map(codec.shape_of, kinds) if isinstance(codec, ShapedCodec) else ()
    found = sorted((shape for shape in shapes if shape is not None), key=lambda shape: shape.name)
    return Finding(worker, name, delta.whole, tuple(found))


def bare_sections(
    codec: Codec,
    worker: int,
    name: str,
    version: int,
    delta: Delta,
    kinds: set[type],
    errors: type[BaseException] = Exception,
) -> Iterator[tuple[Section, bytes]]:
    """Serialise a delta to sections without frames; yield each with the bytes of its frame, uncompressed.

    Args:
        codec: the codec.
        worker: the worker.
        name: the state.
        version: its schema version.
        delta: the delta.
        kinds: a set to which the classes found are added.
        errors: the exceptions attributed to the classes of a state; see `encode_delta`.

    Raises:
        StateNotSerializable: if a state can't be serialised.
        SnapshotError: if keys have been mutated.
    """
    if delta.appended > len(delta.changed):
        raise SnapshotError(f"operator '{name}' has keys that have become equal; keys and their hashes must not change")
    if delta.whole:
        yield Section(name, worker, version, "whole", 0, 0, b""), b""
    writing = codec.noting(kinds) if isinstance(codec, ShapedCodec) else codec
    try:
        for what, count, raw in encode_delta(writing, delta, errors):
            yield Section(name, worker, version, what, count, len(raw), b""), raw
    except StateNotSerializable as error:
        error.operator = name
        raise


def with_frame(bare: Section, raw: bytes, compression: str) -> Section:
    """Return a section with its compressed frame."""
    return replace(bare, frame=compress(raw, compression)) if raw else bare


def encoded(
    codec: Codec, compression: str, versions: Mapping[str, int], deltas: Iterable[StateDelta]
) -> tuple[list[Section], list[Finding]]:
    """Serialise the changes of several states; return the sections, and the classes in them.

    Args:
        codec: the codec.
        compression: the compression of frames.
        versions: the schema version of each state.
        deltas: the changes.

    Raises:
        StateNotSerializable: if a state can't be serialised.
        SnapshotError: if keys have been mutated.
    """
    sections: list[Section] = []
    findings: list[Finding] = []
    for worker, name, delta, _ in deltas:
        kinds: set[type] = set()
        bare = bare_sections(codec, worker, name, versions[name], delta, kinds)
        sections += [with_frame(section, raw, compression) for section, raw in bare]
        findings.append(finding(codec, worker, name, delta, kinds))
    return sections, findings


def write_file(
    writer: DataWriter, sections: Sequence[Section], codec: Codec, compression: str, *, base: bool
) -> FileEntry:
    """Write a data file of sections; return its entry for the manifest.

    Raises:
        StoreError: if it can't be written.
    """
    data = encode_file(sections, codec=codec.name, compression=compression)
    raw = sum(section.raw for section in sections)
    return FileEntry(writer.write(data), len(data), sha256(data).hexdigest(), raw, base)


def sections_of(
    read: Callable[[FileEntry], bytes], files: Sequence[FileEntry], compression: str
) -> list[Section] | None:
    """Return the sections of data files; None if one has another compression, so that its frames can't be copied.

    Raises:
        SnapshotCorrupt: if a file is missing or damaged.
    """
    decoded = [decode_file(entry.name, read(entry)) for entry in files]
    if any(file.compression != compression for file in decoded):
        return None
    return [section for file in decoded for section in file.sections]


def merge_files(
    writer: DataWriter, files: Sequence[FileEntry], codec: Codec, compression: str
) -> list[FileEntry] | None:
    """Merge increments into few files, whose frames are copied as they are; None if `sections_of` is.

    Raises:
        SnapshotCorrupt: if a file is missing or damaged.
        StoreError: if the merged ones can't be written.
    """
    sections = sections_of(writer.read, files, compression)
    if sections is None:
        return None
    return [write_file(writer, group, codec, compression, base=False) for group in pack(sections)]
