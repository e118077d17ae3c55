"""The small files that say what a job is and what each of its snapshots consists of."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from malflow.errors import SnapshotCorrupt, SnapshotError
from malflow.snapshot.codecs.shapes import Shape
from malflow.snapshot.layout import is_data_key
from malflow.version import __version__

__all__ = ["FORMAT", "WRITER", "FileEntry", "Manifest", "OperatorEntry", "Seal", "seal", "unseal"]

FORMAT = 2
"""The latest version of what is written; each version ever written is read for ever.

Format 2 has the shapes of operators. What has none is written in format 1, and an older malflow reads it.
"""

_PLAIN_FORMAT = 1


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


WRITER = {"malflow": __version__, "python": platform.python_version(), "lz4": _version_of("lz4")}
"""The versions that each snapshot records, for whoever must find out why one cannot be read."""

_DIGEST_LENGTH = 64
_MOST_WORKERS = 1 << 20


class Seal(Protocol):
    """What signs files and checks their signatures."""

    def sign(self, data: bytes) -> str | None:
        """Give the signature, or None where there is no key."""

    def verify(self, data: bytes, mac: str | None) -> str | None:
        """Tell what is wrong with a signature; None if nothing is."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A data file of a snapshot.

    Attributes:
        name: its key in the store.
        bytes: how long it is.
        sha256: its digest.
        raw: how many bytes its frames hold.
        base: whether it belongs to the base; otherwise it is an increment over the files before it.
    """

    name: str
    bytes: int
    sha256: str
    raw: int
    base: bool


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """An operator's state in a snapshot.

    Attributes:
        name: the operator's name.
        kind: what it is, such as ``stateful_map``.
        version: the version of its state's schema.
        placement: the name of the function that chose the worker of each key; None where nothing did.
        keys: how many keys it has, over all workers.
        shapes: the classes in its states; the same names mean the same fields, or states would be read wrong.
    """

    name: str
    kind: str
    version: int
    placement: str | None
    keys: int
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: a snapshot, or a claim that carries the content of an earlier one.

    Attributes:
        job: the job's uuid.
        name: the job's name.
        seq: its number; each commit has the next one.
        epoch: the number of the claim that it was committed under.
        runner: the run that wrote it.
        attempt: tells this write from every other.
        parent: the digest of the manifest before; None for the first, or where that one is unreadable.
        snapshot: the number under which its content was written: `seq`, but for a claim; 0 is the empty one.
        tick: how many ticks had run.
        time: when it was written, by this machine's clock, in ISO format.
        parallelism: how many workers had the state.
        codec: how states are written as bytes.
        operators: the operators with state.
        files: what its content consists of: a base and the increments over it, in their order.
        writer: the versions of what wrote it.
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
    operators: tuple[OperatorEntry, ...]
    files: tuple[FileEntry, ...]
    writer: Mapping[str, str]

    def to_bytes(self, seal_with: Seal) -> bytes:
        """Write it."""
        body = asdict(self)
        bare = [entry for entry in body["operators"] if not entry["shapes"]]
        for entry in bare:
            del entry["shapes"]
        return seal(body, seal_with, _PLAIN_FORMAT if len(bare) == len(self.operators) else FORMAT)

    @classmethod
    def from_bytes(cls, name: str, data: bytes, seal_with: Seal) -> Manifest:
        """Read it, and check all that can be checked without its files.

        Raises:
            SnapshotCorrupt: if it is not what was written.
            SnapshotError: if a newer malflow wrote it.
        """
        body = unseal(name, data, seal_with)
        try:
            operators = tuple(_operator(entry) for entry in body.pop("operators"))
            files = tuple(_record(FileEntry, entry) for entry in body.pop("files"))
            manifest: Manifest = _record(cls, {**body, "operators": operators, "files": files})
            _check_sense(manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotCorrupt(f"'{name}' is no manifest: {error}", name=name) from error
        return manifest


def seal(body: Mapping[str, Any], seal_with: Seal | None, version: int = _PLAIN_FORMAT) -> bytes:
    """Write a body as JSON in its one canonical form, with its digest and, where it is to be signed, its signature."""
    inner = {"format": version, **body}
    plain = _canonical(inner)
    mac = None if seal_with is None else seal_with.sign(plain)
    return _canonical({**inner, "mac": mac, "sha256": sha256(plain).hexdigest()})


def unseal(name: str, data: bytes, seal_with: Seal | None) -> dict[str, Any]:
    """Read what `seal` wrote.

    Raises:
        SnapshotCorrupt: if a byte of it is not what was written, or its signature is missing or wrong.
        SnapshotError: if a newer malflow wrote it.
    """
    try:
        sealed = json.loads(data)
        body = dict(sealed)
        mac, digest, version = body.pop("mac"), body.pop("sha256"), body["format"]
        plain = _canonical(body)
        is_canonical = _canonical(sealed) == data
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"'{name}' is damaged ({len(data)} bytes): {error}"
        raise SnapshotCorrupt(reason, name=name) from error
    actual = sha256(plain).hexdigest()
    if not is_canonical or digest != actual:
        raise SnapshotCorrupt(f"'{name}' is damaged: its digest is {actual}, it says {digest}", name=name)
    problem = None if seal_with is None else seal_with.verify(plain, mac)
    if problem:
        raise SnapshotCorrupt(f"'{name}' can't be trusted: {problem}", name=name)
    if type(version) is not int or version < 1:
        raise SnapshotCorrupt(f"'{name}' has no format version", name=name)
    if version > FORMAT:
        by = body.get("writer", {}).get("malflow", "a newer version") if isinstance(body.get("writer"), dict) else "?"
        raise SnapshotError(
            f"'{name}' was written by malflow {by} in format {version}; this one reads formats up to {FORMAT}; upgrade"
        )
    del body["format"]
    return body


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> Any:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number of zero or more")
    return value


def _flag(value: Any) -> Any:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is no flag")
    return value


def _texts(value: Any) -> Any:
    for key, text in value.items():
        _text(key), _text(text)
    return value


def _optional(value: Any) -> Any:
    return value if value is None else _text(value)


def _all_texts(value: Any) -> Any:
    if type(value) is not tuple:
        raise TypeError(f"{value!r} is no list")
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
        raise ValueError(f"it has the number {manifest.seq}, and goes back to {manifest.epoch} and {manifest.snapshot}")
    if manifest.parallelism > _MOST_WORKERS:
        raise ValueError(f"it has the state of {manifest.parallelism} workers")


def _operator(entry: dict[str, Any]) -> Any:
    shapes = [{**shape, "fields": tuple(shape["fields"])} for shape in entry.pop("shapes", ())]
    return _record(OperatorEntry, {**entry, "shapes": tuple(_record(Shape, shape) for shape in shapes)})


def _record(cls: type[Any], entry: dict[str, Any]) -> Any:
    """Make a dataclass of what was read, which must have its fields and no others, of their types."""
    wanted = {field.name: str(field.type) for field in fields(cls)}
    if set(entry) != set(wanted):
        raise ValueError(f"its fields are {sorted(entry)}; expected {sorted(wanted)}")
    for key, kind in wanted.items():
        _CHECKS.get(kind, lambda value: value)(entry[key])
    record = cls(**entry)
    if isinstance(record, FileEntry) and not (is_data_key(record.name) and len(record.sha256) == _DIGEST_LENGTH):
        raise ValueError(f"{record.name!r} is no data file")
    return record
