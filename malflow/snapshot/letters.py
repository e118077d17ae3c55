"""Reading the dead letters of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from malflow.failures import DeadLetter
from malflow.operators.letters import LETTERS, age_of, letter_of
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.reading import read_state, wanted_manifest
from malflow.states.kinds import StateKind

__all__ = ["dead_letters"]


def dead_letters(
    backend: FsspecBackend, operator: str | None = None, *, at: Literal["latest"] | int | datetime = "latest"
) -> Iterator[DeadLetter]:
    """Read the dead letters in a snapshot; nothing is claimed, locked or written.

    Args:
        backend: the backend, configured as for a run.
        operator: the name of an operator; None for all operators.
        at: the snapshot: ``"latest"``, an id, or a datetime with a time zone for the latest one at that time.

    Yields:
        The letters, operator by operator, oldest first. The classes of their records must be
        importable.

    Raises:
        GraphError: if an argument is not valid.
        SnapshotError: if there is no such snapshot, or it can't be read.
    """
    _, manifest = wanted_manifest(backend, at)
    for entry in manifest.operators:
        name, _, role = entry.name.partition("/")
        if role.endswith(LETTERS) and entry.kind == StateKind.LETTERS.word and operator in (None, name):
            letters = [letter_of(name, *it) for it in read_state(backend, entry.name, at=manifest.snapshot)]
            yield from sorted(letters, key=lambda it: age_of(it.id))
