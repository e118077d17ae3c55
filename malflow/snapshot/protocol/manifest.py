"""The job file, the manifests, one of which describes each commit, and the keys of a job's objects."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from malflow.errors import GraphError, SnapshotCorrupt, SnapshotError
from malflow.names import LONGEST_JOB
from malflow.snapshot.codecs.shapes import Shape
from malflow.version import __version__
from malflow.words import plural

__all__ = [
    "BOUNDARIES",
    "DATA",
    "FORMAT",
    "JOB",
    "MANIFESTS",
    "WRITER",
    "Authenticator",
    "DataName",
    "FileEntry",
    "Manifest",
    "StateEntry",
    "boundary_key",
    "checked_job",
    "decode_signed",
    "encode_signed",
    "highest",
    "is_data_key",
    "manifest_key",
    "number_of",
    "sequence_of_target",
]

JOB = "job.json"
MANIFESTS = "m/"
DATA = "d/"
BOUNDARIES = "gc/"

_JOB = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_JOB - 1}}}", re.ASCII)
_DATA_KEY = re.compile(r"d/([0-9]{20})-[0-9]{1,12}-[0-9a-f]{16}-[0-9a-f]{16}\.mfs", re.ASCII)
_NUMBERED = re.compile(r"(?:m/([0-9]{20})\.json|gc/([0-9]{20}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class DataName:
    """The parts of a data file's name; the random attempt makes it unique."""

    seq: int
    epoch: int
    runner: str
    attempt: str

    @property
    def key(self) -> str:
        """The key in the store."""
        return f"{DATA}{self.seq:020d}-{self.epoch}-{self.runner}-{self.attempt}.mfs"


def manifest_key(seq: int) -> str:
    """Return the key of the manifest with this sequence number.

    >>> manifest_key(42)
    'm/00000000000000000042.json'
    """
    return f"{MANIFESTS}{seq:020d}.json"


def boundary_key(seq: int) -> str:
    """Return the key of the boundary marker: nothing below its number is retained."""
    return f"{BOUNDARIES}{seq:020d}"


def number_of(key: str) -> int | None:
    """Return the number of a manifest or boundary marker; None for any other key."""
    match = _NUMBERED.fullmatch(key)
    return None if match is None else int(match[1] or match[2])


def highest(keys: Iterable[str]) -> int:
    """Return the highest number of manifests or boundary markers; 0 if there are none."""
    return max((number for key in keys if (number := number_of(key)) is not None), default=0)


def is_data_key(key: str) -> bool:
    """Whether this is the key of a data file."""
    return _DATA_KEY.fullmatch(key) is not None


def sequence_of_target(key: str) -> int | None:
    """Return the snapshot number that a manifest or data file was written for; None for any other key."""
    match = _DATA_KEY.fullmatch(key)
    return number_of(key) if match is None else int(match[1])


def checked_job(name: object) -> str:
    """Check the name of a job: short, and of letters, digits and ``. _ -``, since it is a folder; return it."""
    if not isinstance(name, str) or _JOB.fullmatch(name) is None:
        raise GraphError(
            f"job= must be up to 63 letters, digits or . _ - starting with a letter or digit; got {name!r}"
        )
    return name


FORMAT = 3
"""The latest format version. Every version ever written stays readable.

Format 2 adds the shapes of states, format 3 the definitions and panes of windows. A manifest is written in the first
format that can express it, so that older versions can read it.
"""

_PLAIN_FORMAT = 1
"""The first format, without shapes, definitions and panes."""

_WITH_SHAPES = 2
"""The format that added the shapes of states."""

_OPTIONAL = ("shapes", "definition", "panes")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


WRITER = {"malflow": __version__, "python": platform.python_version(), "lz4": _version_of("lz4")}
"""The versions recorded in each snapshot, to help diagnose why one can't be read."""

_DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""

_MOST_WORKERS = 1 << 20
"""A million workers: more come only from damage, and would take memory for each."""


class Authenticator(Protocol):
    """Signs files and verifies their signatures."""

    def sign(self, data: bytes) -> str | None:
        """Return the signature, or None if there is no key."""

    def verify(self, data: bytes, mac: str | None) -> str | None:
        """Return the fault of a signature; None if it is valid."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A data file of a snapshot.

    Attributes:
        name: its key in the store.
        bytes: its size.
        sha256: its SHA-256 digest.
        raw: the size of its frames before compression.
        base: whether it is part of the base; otherwise it is an increment over the files before it.
    """

    name: str
    bytes: int
    sha256: str
    raw: int
    base: bool


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One state in a snapshot.

    Attributes:
        name: the state's name: that of its operator, or ``operator/role``.
        kind: the kind of its owner, such as ``stateful_map``.
        version: the schema version of the state.
        placement: the name of the partitioner that assigned keys to workers; None without one.
        keys: the number of keys, over all workers.
        shapes: the shapes of the classes in the state, against which the program's are checked at restore.
        definition: the windows and aggregators that created the state; None if the user's functions did.
        panes: the partition of time of the panes in its slots; None without slots.
    """

    name: str
    kind: str
    version: int
    placement: str | None
    keys: int
    shapes: tuple[Shape, ...] = ()
    definition: str | None = None
    panes: str | None = None

    @property
    def format(self) -> int:
        """The first format version that can express the entry."""
        if self.definition is not None or self.panes is not None:
            return FORMAT
        return _WITH_SHAPES if self.shapes else _PLAIN_FORMAT


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: a snapshot, or a claim that carries the content of an earlier one.

    Attributes:
        job: the job's uuid.
        name: the job's name.
        seq: its sequence number, one more than that of the commit before.
        epoch: the number of the claim under which it was committed.
        runner: the id of the run that wrote it.
        attempt: a random id of this write.
        parent: the digest of the previous manifest; None for the first, or if the previous one is unreadable.
        snapshot: the number under which its content was committed: `seq` except for claims; 0 if there is none.
        tick: the number of ticks completed.
        time: when it was written, by the writer's clock, in ISO format.
        parallelism: the number of workers.
        codec: the name of the codec of its states.
        operators: the states.
        files: its data files: a base and the increments over it, in order.
        writer: the versions of the software that wrote it.
    """

    job: str
    name: str
    seq: int
    epoch: int
    runner: str
    attempt: str
    parent: str | None
    snapshot: int
    tick: int
    time: str
    parallelism: int
    codec: str
    operators: tuple[StateEntry, ...]
    files: tuple[FileEntry, ...]
    writer: Mapping[str, str]

    def to_bytes(self, authenticator: Authenticator) -> bytes:
        """Return the manifest as signed JSON."""
        body = asdict(self)
        for entry in body["operators"]:
            for name in _OPTIONAL:
                if not entry[name]:
                    del entry[name]
        return encode_signed(body, authenticator, max((entry.format for entry in self.operators), default=1))

    @classmethod
    def from_bytes(cls, name: str, data: bytes, authenticator: Authenticator) -> Manifest:
        """Parse a manifest, and check everything that can be checked without its data files.

        Raises:
            SnapshotCorrupt: if it is damaged or not trusted.
            SnapshotError: if a newer malflow wrote it.
        """
        body = decode_signed(name, data, authenticator)
        try:
            states = tuple(_state(entry) for entry in body.pop("operators"))
            files = tuple(_record(FileEntry, entry) for entry in body.pop("files"))
            manifest: Manifest = _record(cls, {**body, "operators": states, "files": files})
            _check_sense(manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotCorrupt(f"'{name}' is not a manifest: {error}", name=name) from error
        return manifest


def encode_signed(body: Mapping[str, Any], authenticator: Authenticator | None, version: int = _PLAIN_FORMAT) -> bytes:
    """Return a body as canonical JSON with its digest and, given a key, its signature."""
    inner = {"format": version, **body}
    plain = _canonical(inner)
    mac = None if authenticator is None else authenticator.sign(plain)
    return _canonical({**inner, "mac": mac, "sha256": sha256(plain).hexdigest()})


def decode_signed(name: str, data: bytes, authenticator: Authenticator | None) -> dict[str, Any]:
    """Verify and parse the output of `encode_signed`.

    Raises:
        SnapshotCorrupt: if a byte has changed, or its signature is missing or wrong.
        SnapshotError: if a newer malflow wrote it.
    """
    try:
        sealed = json.loads(data)
        body = dict(sealed)
        mac, digest, version = body.pop("mac"), body.pop("sha256"), body["format"]
        plain = _canonical(body)
        is_canonical = _canonical(sealed) == data
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"'{name}' is damaged ({plural(len(data), 'byte')}): {error}"
        raise SnapshotCorrupt(reason, name=name) from error
    actual = sha256(plain).hexdigest()
    if not is_canonical or digest != actual:
        raise SnapshotCorrupt(f"'{name}' is damaged: its digest is {actual}; expected {digest}", name=name)
    problem = None if authenticator is None else authenticator.verify(plain, mac)
    if problem:
        raise SnapshotCorrupt(f"'{name}' can't be trusted: {problem}", name=name)
    if type(version) is not int or version < 1:
        raise SnapshotCorrupt(f"'{name}' has no format version", name=name)
    if version > FORMAT:
        by = body.get("writer", {}).get("malflow", "a newer version") if isinstance(body.get("writer"), dict) else "?"
        raise SnapshotError(
            f"'{name}' was written by malflow {by} in format {version}; this version reads formats up to {FORMAT}; "
            "upgrade malflow"
        )
    del body["format"]
    return body


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a string")
    return value


def _number(value: Any) -> Any:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a non-negative integer")
    return value


def _flag(value: Any) -> Any:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is not a boolean")
    return value


def _texts(value: Any) -> Any:
    for key, text in value.items():
        _text(key), _text(text)
    return value


def _optional(value: Any) -> Any:
    return value if value is None else _text(value)


def _all_texts(value: Any) -> Any:
    if type(value) is not tuple:
        raise TypeError(f"{value!r} is not a list")
    for text in value:
        _text(text)
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": _number,
    "bool": _flag,
    "str | None": _optional,
    "Mapping[str, str]": _texts,
    "tuple[str, ...]": _all_texts,
}


def _check_sense(manifest: Manifest) -> None:
    datetime.fromisoformat(manifest.time)
    if max(manifest.epoch, manifest.snapshot) > manifest.seq:
        raise ValueError(
            f"number {manifest.seq} is below its epoch {manifest.epoch} or its snapshot {manifest.snapshot}"
        )
    if manifest.parallelism > _MOST_WORKERS:
        raise ValueError(f"a parallelism of {manifest.parallelism} is not possible")


def _state(entry: dict[str, Any]) -> Any:
    shapes = [{**shape, "fields": tuple(shape["fields"])} for shape in entry.pop("shapes", ())]
    optional = {"definition": entry.get("definition"), "panes": entry.get("panes")}
    return _record(StateEntry, {**entry, **optional, "shapes": tuple(_record(Shape, shape) for shape in shapes)})


def _record(cls: type[Any], entry: dict[str, Any]) -> Any:
    """Return a dataclass from an entry. It must have exactly its fields, with their types."""
    wanted = {field.name: str(field.type) for field in fields(cls)}
    if set(entry) != set(wanted):
        raise ValueError(f"its fields are {sorted(entry)}; expected {sorted(wanted)}")
    for key, kind in wanted.items():
        _CHECKS.get(kind, lambda value: value)(entry[key])
    record = cls(**entry)
    if isinstance(record, FileEntry) and not (is_data_key(record.name) and len(record.sha256) == _DIGEST_LENGTH):
        raise ValueError(f"{record.name!r} is not a data file")
    return record
