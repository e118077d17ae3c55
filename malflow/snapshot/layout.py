"""The keys of a job's objects in the store, and how they are parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from malflow.disk_names import LONGEST_JOB
from malflow.errors import GraphError

__all__ = [
    "BOUNDARIES",
    "DATA",
    "JOB",
    "MANIFESTS",
    "DataName",
    "boundary_key",
    "checked_job",
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
