"""Serialise changes of state to sections of data files, and check that they add up to the live state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any

from malflow.errors import SnapshotError
from malflow.operators.failures.dead_letters import LETTERS, as_text, parks
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.codecs.shapes import Finding
from malflow.snapshot.compression import Compression
from malflow.snapshot.files.data_file import Section, decode_file, encode_delta, encode_file, pack
from malflow.snapshot.persistence import RestoredState, StateNotSerializable
from malflow.snapshot.protocol.commit import DataWriter
from malflow.snapshot.protocol.manifest import FileEntry
from malflow.states.keyed import Delta, KeyedState, StateDelta
from malflow.states.paned import OperatorState
from malflow.words import plural, short_repr

__all__ = [
    "LARGE",
    "Found",
    "Recount",
    "Written",
    "bare_sections",
    "encoded",
    "finding",
    "merge_files",
    "sections_of",
    "with_frame",
    "write_file",
]

LARGE = 1 << 20
"""The bytes from which a state of one key is large: a change of it costs as much as thousands of others."""

Written = tuple[Sequence[FileEntry], Sequence[Finding]]
"""The files written, and the classes found in them."""


@dataclass
class Found:
    """The classes and the largest state in a delta, noted while it is serialised.

    Attributes:
        kinds: the classes.
        largest: as in `Finding`.
        usual: the bytes that a key is expected to take with its state, 0 if unknown; afterwards, those that it took.
    """

    kinds: set[type] = field(default_factory=set)
    largest: tuple[str, int] | None = None
    usual: float = 0.0


def finding(codec: Codec, worker: int, name: str, delta: Delta, found: Found) -> Finding:
    """Return the shapes of the classes in a delta, and its largest state."""
    shapes = map(codec.shape_of, found.kinds) if isinstance(codec, ShapedCodec) else ()
    known = sorted((shape for shape in shapes if shape is not None), key=lambda shape: shape.name)
    return Finding(worker, name, delta.whole, tuple(known), found.largest)


def bare_sections(
    codec: Codec,
    worker: int,
    name: str,
    version: int,
    delta: Delta,
    found: Found,
    errors: type[BaseException] = Exception,
) -> Iterator[tuple[Section, bytes]]:
    """Serialise a delta to sections without frames; yield each with the bytes of its frame, uncompressed.

    Args:
        codec: the codec.
        worker: the worker.
        name: the state.
        version: its schema version.
        delta: the delta.
        found: takes the classes, and the largest state.
        errors: the exceptions attributed to the classes of a state; see `encode_delta`.

    Raises:
        StateNotSerializable: if a state can't be serialised.
        SnapshotError: if keys have been mutated.
    """
    if delta.appended > len(delta.changed):
        raise SnapshotError(f"operator '{name}' has keys that have become equal; keys and their hashes must not change")
    if name.endswith(f"/{LETTERS}"):
        delta = _with_texts(codec, delta)
    if delta.whole:
        yield Section(name, worker, version, "whole", 0, 0, b""), b""
    writing = codec.noting(found.kinds) if isinstance(codec, ShapedCodec) else codec
    start = 0
    try:
        for what, count, raw in encode_delta(writing, delta, errors):
            if what != "deleted":
                size = len(raw)
                if size >= found.usual * (count - 1) + LARGE:
                    large = _largest(codec, delta.changed, start, count)
                    found.largest = _larger(found.largest, large)
                    size -= 0 if large is None else large[1]
                start, found.usual = start + count, size / count
            yield Section(name, worker, version, what, count, len(raw), b""), raw
    except StateNotSerializable as error:
        error.operator = name
        raise


def _with_texts(codec: Codec, delta: Delta) -> Delta:
    """Return the changes of dead letters in a form that can be serialised.

    Otherwise, the text of a record replaces it, and a key is removed. A key stays if later records follow the letter:
    without it, they would overtake the letter after a restart.
    """
    changed = {_with_key(codec, entry, letter): _with_text(codec, letter) for entry, letter in delta.changed.items()}
    deleted = frozenset(_with_key(codec, entry) for entry in delta.deleted)
    return replace(delta, changed=changed, deleted=deleted)


def _with_key(codec: Codec, entry: Any, letter: Any = None) -> Any:
    if letter is not None and parks(letter):
        return entry
    return entry if _writes(codec, entry) else (entry[0], None)


def _with_text(codec: Codec, letter: Any) -> Any:
    return letter if _writes(codec, letter) else as_text(letter)


def _writes(codec: Codec, thing: Any) -> bool:
    try:
        codec.dumps(thing)
    except Exception:  # noqa: BLE001 - a letter must not end the run that it saved, whatever the user's classes raise
        return False
    return True


def _largest(codec: Codec, changed: Mapping[Any, Any], start: int, count: int) -> tuple[str, int] | None:
    """Return the key and the bytes of the largest state in a slice, if it is large.

    A slice that takes more than the states before it made expect has such a state; only then its states are measured.
    """
    some = islice(changed.items(), start, start + count)
    key, size = max(((key, len(codec.dumps(state))) for key, state in some), key=itemgetter(1))
    return (short_repr(key), size) if size >= LARGE else None


def _larger(one: tuple[str, int] | None, other: tuple[str, int] | None) -> tuple[str, int] | None:
    return max((it for it in (one, other) if it is not None), key=itemgetter(1), default=None)


def with_frame(bare: Section, raw: bytes, compression: Compression) -> Section:
    """Return a section with its compressed frame."""
    return replace(bare, frame=compression.packed(raw)) if raw else bare


def encoded(
    codec: Codec, compression: Compression, versions: Mapping[str, int], deltas: Iterable[StateDelta]
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
        found = Found()
        bare = bare_sections(codec, worker, name, versions[name], delta, found)
        sections += [with_frame(section, raw, compression) for section, raw in bare]
        findings.append(finding(codec, worker, name, delta, found))
    return sections, findings


def write_file(
    writer: DataWriter, sections: Sequence[Section], codec: Codec, compression: Compression, *, base: bool
) -> FileEntry:
    """Write a data file of sections; return its entry for the manifest.

    Raises:
        StoreError: if it can't be written.
    """
    data = encode_file(sections, codec=codec.name, compression=compression.name)
    raw = sum(section.raw for section in sections)
    return FileEntry(writer.write(data), len(data), sha256(data).hexdigest(), raw, base)


def sections_of(
    read: Callable[[FileEntry], bytes], files: Sequence[FileEntry], compression: Compression
) -> list[Section] | None:
    """Return the sections of data files; None if one has another compression: its frames can't be copied.

    Raises:
        SnapshotCorrupt: if a file is missing or damaged.
    """
    decoded = [decode_file(entry.name, read(entry)) for entry in files]
    if any(file.compression != compression.name for file in decoded):
        return None
    return [section for file in decoded for section in file.sections]


def merge_files(
    writer: DataWriter, files: Sequence[FileEntry], codec: Codec, compression: Compression
) -> list[FileEntry] | None:
    """Merge increments into few files, with their frames copied as they are; None if `sections_of` is.

    Raises:
        SnapshotCorrupt: if a file is missing or damaged.
        StoreError: if the merged ones can't be written.
    """
    sections = sections_of(writer.read, files, compression)
    if sections is None:
        return None
    return [write_file(writer, group, codec, compression, base=False) for group in pack(sections, writer.file_limit)]


_NONE: Any = object()


class Recount:
    """The keys that all deltas add up to, replayed as a restore would.

    Args:
        restored: the state before the first delta; None if it is empty.
    """

    def __init__(self, restored: RestoredState | None) -> None:
        self._keys: dict[tuple[int, str], KeyedState] = {}
        for name, by_worker in ({} if restored is None else restored.states).items():
            for worker, states in by_worker.items():
                self._add(worker, name, Delta(states, whole=True))

    def check(
        self,
        deltas: Iterable[StateDelta],
        states: Mapping[tuple[int, str], OperatorState],
        *,
        base: bool,
    ) -> None:
        """Apply deltas, and compare the keys with the live states.

        Args:
            deltas: the changes of one tick.
            states: the live states by worker and name.
            base: whether the deltas hold the full state.

        Raises:
            SnapshotError: naming the operator and the first key that differs.
        """
        if base:
            self._keys.clear()
        for worker, name, delta, _ in deltas:
            self._add(worker, name, delta)
        for (worker, name), live in states.items():
            kept: Mapping[Any, Any] = self._keys.get((worker, name), {})
            if live.arranged(kept) != list(live):
                raise _difference(worker, name, live.arranged(kept), live)

    def _add(self, worker: int, name: str, delta: Delta) -> None:
        keys = Delta(dict.fromkeys(delta.changed), delta.deleted, delta.appended, delta.whole)
        self._keys.setdefault((worker, name), KeyedState()).apply(keys)


def _difference(worker: int, name: str, kept: list[Any], live: OperatorState) -> SnapshotError:
    there, here = next(pair for pair in zip_longest(kept, live, fillvalue=_NONE) if pair[0] != pair[1])
    first, second = (("none" if key is _NONE else f"key {short_repr(key)}") for key in (there, here))
    return SnapshotError(
        f"operator '{name}' has {plural(len(live), 'key')} on worker {worker}, but its snapshots add up to "
        f"{len(kept)}: the first difference is {first} instead of {second}; keys and their hashes must not change"
    )
