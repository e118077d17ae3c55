"""The states of a snapshot that are still in the store, which any process can read, file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.contract import Codec, ShapedCodec
from malflow.snapshot.codecs.old_records import old_kind
from malflow.snapshot.compression import Compression, known_as
from malflow.snapshot.files.data_file import DataFile, Section, apply_chunk, decode_file, joined, raw_of
from malflow.snapshot.protocol.manifest import Manifest, manifest_key
from malflow.snapshot.protocol.manifest_log import ManifestLog, read_data
from malflow.store.contract import Store
from malflow.store.retry import Retry
from malflow.words import error_line, plural

__all__ = ["FoundSection", "Names", "StoredStates", "Versions", "refused_codec", "with_hint"]

Names = Mapping[str, str]
"""The states of a snapshot to read, mapped to their names in the program."""

Versions = Mapping[str, int]
"""The schema version of each state in the program. If the snapshot has another version, records whose class has changed
or is missing are read as their fields; without a program, this applies to all states."""


class FoundSection(NamedTuple):
    """A section of a data file, with all that a reader needs.

    Attributes:
        file: the name of the file.
        compression: the compression of the file.
        section: the section.
    """

    file: str
    compression: str
    section: Section


@dataclass(frozen=True, slots=True)
class StoredStates:
    """The states of a snapshot in the store; can be pickled, for use in another process.

    Attributes:
        store: the store.
        retry: how long to retry.
        manifest: the snapshot.
        codec: the codec of the states.
        names: the states to read, mapped to their names in the program.
        versions: the state versions of the program.
        compression: the compression of the backend, by which files may be written that only its program can read.
    """

    store: Store
    retry: Retry
    manifest: Manifest
    codec: Codec
    names: Names
    versions: Versions | None
    compression: Compression

    @classmethod
    def of(
        cls, log: ManifestLog, manifest: Manifest, codec: Codec, names: Names, versions: Versions | None
    ) -> StoredStates:
        """Return the states of a snapshot of a job."""
        return cls(log.store, log.retry, manifest, codec, names, versions, log.compression)

    @property
    def files(self) -> int:
        """The number of data files."""
        return len(self.manifest.files)

    @property
    def keys(self) -> Mapping[str, int]:
        """The number of keys of each state, by its name in the program."""
        return {self.names[it.name]: it.keys for it in self.manifest.operators if it.name in self.names}

    def read(self, at: int) -> Iterator[FoundSection]:
        """Read a data file; yield its sections in order, except for other states.

        Args:
            at: the index of the file.

        Raises:
            SnapshotCorrupt: if it is damaged or missing.
            SnapshotError: if it was written with another codec.
        """
        entry = self.manifest.files[at]
        return self.sections(entry.name, decode_file(entry.name, read_data(self.store, self.retry, entry)))

    def sections(self, name: str, file: DataFile) -> Iterator[FoundSection]:
        """Yield the sections of a data file in order, except for other states.

        Args:
            name: the name of the file.
            file: the file.

        Raises:
            SnapshotError: if it was written with another codec.
        """
        if file.codec != self.codec.name:
            raise SnapshotError(refused_codec(name, file.codec, self.codec.name))
        for section in file.sections:
            if section.state in self.names:
                yield FoundSection(name, file.compression, section)

    def states(self, sections: Iterable[FoundSection]) -> dict[str, dict[Any, Any]]:
        """Return the states of one worker, by their names in the program.

        Sections that a later whole state replaces are not even decoded.

        Args:
            sections: the sections of the worker, in the order of the files.

        Raises:
            SnapshotCorrupt: if they are damaged.
            SnapshotError: if a state can't be read.
        """
        everything = [*sections]
        begins = {it.section.state: at for at, it in enumerate(everything) if it.section.what == "whole"}
        wanted = (it for at, it in enumerate(everything) if at > begins.get(it.section.state, -1))
        states: dict[str, dict[Any, Any]] = {}
        for section, value in self.chunks(wanted):
            apply_chunk(states.setdefault(self.names[section.state], {}), section.what, value)
        for name in {it.section.state for it in everything} if self.versions is not None else ():
            if self.names[name] in states and self._is_migrating(name):
                _check_keys(self.names[name], states[self.names[name]])
        return states

    def chunks(self, sections: Iterable[FoundSection]) -> Iterator[tuple[Section, Any]]:
        """Yield sections, reassembled from their pieces, with their deserialised content: keys, or states by key.

        Args:
            sections: sections of one worker, in the order of the files.

        Raises:
            SnapshotCorrupt: if they are damaged.
            SnapshotError: if a state can't be read.
        """
        loads: dict[str, Callable[[bytes], Any]] = {}
        at = FoundSection("", "", Section("", 0, 0, "whole", 0, 0, b""))

        def bare() -> Iterator[Section]:
            nonlocal at
            for found in sections:
                at = found
                yield found.section

        for section in joined(bare()):
            if section.what == "whole":
                yield section, ()
                continue
            if section.state not in loads:
                loads[section.state] = self._reader(section.state)
            raw = raw_of(at.file, section, known_as(at.file, at.compression, self.compression))
            yield section, _value(at.file, section, raw, loads[section.state])

    def check(self, counts: Mapping[str, Mapping[int, int]]) -> None:
        """Check the numbers of keys that were read against the manifest.

        Args:
            counts: the number of keys of each state, by its name in the program and by worker.

        Raises:
            SnapshotCorrupt: if they differ.
        """
        manifest = self.manifest
        for entry in manifest.operators:
            if entry.name not in self.names:
                continue
            by_worker = counts.get(self.names[entry.name], {})
            found = sum(by_worker.values())
            reason = f"snapshot {manifest.snapshot}: operator '{entry.name}' has"
            if found != entry.keys:
                raise SnapshotCorrupt(
                    f"{reason} {plural(found, 'key')} of {entry.keys}", name=manifest_key(manifest.seq)
                )
            beyond = [worker for worker, count in by_worker.items() if count and worker >= manifest.parallelism]
            if beyond:
                of = plural(manifest.parallelism, "worker")
                raise SnapshotCorrupt(f"{reason} keys on worker {beyond[0]} of {of}", name=manifest_key(manifest.seq))

    def _reader(self, name: str) -> Callable[[bytes], Any]:
        if not isinstance(self.codec, ShapedCodec):
            return self.codec.loads
        shapes = next(entry.shapes for entry in self.manifest.operators if entry.name == name)
        return self.codec.reader(shapes, migrating=self._is_migrating(name))

    def _is_migrating(self, name: str) -> bool:
        if self.versions is None:
            return True
        entry = next(entry for entry in self.manifest.operators if entry.name == name)
        return self.versions.get(self.names[name]) != entry.version


def refused_codec(file: str, codec: str, ours: str) -> str:
    """Return why a data file that was written with another codec can't be read."""
    return (
        f"'{file}' was written with codec '{codec}', but the program uses codec '{ours}'; pass codec='{codec}', or "
        "restore=None to start from empty state"
    )


def with_hint(error: SnapshotCorrupt) -> SnapshotCorrupt:
    """Return the error with a hint on how to restore anyway."""
    hint = "recovery='previous' falls back to the newest readable snapshot and processes later input again"
    return type(error)(f"{error}; {hint}", name=error.name)


def _check_keys(name: str, states: Mapping[Any, Any]) -> None:
    """Check that no key contains a class that has changed: migrations convert states, not keys.

    Raises:
        SnapshotError: if one does.
    """
    kind = old_kind(states)
    if kind is not None:
        raise SnapshotError(
            f"operator '{name}': the class {kind} is used in keys, and its fields have changed; migrations convert "
            "states, not keys: leave the class as it was and use another one for the new keys, or pass "
            f"allow_dropped_state=['{name}'] and rename the operator"
        )


def _value(name: str, section: Section, raw: bytes, loads: Callable[[bytes], Any]) -> Any:
    try:
        value = loads(raw)
        count = len(value)
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(
            f"the state of operator '{section.state}' in '{name}' can't be read: {error_line(error)}; the "
            "classes in its state must be importable from the same modules, with the same names and fields; "
            "otherwise increase version= and pass migrate=(old, version) -> state"
        ) from error
    if count != section.keys:
        reason = f"'{name}': a section of operator '{section.state}' has {plural(count, 'key')} of {section.keys}"
        raise SnapshotCorrupt(reason, name=name)
    return value
