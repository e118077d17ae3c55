"""What a run tells of itself while it goes on, and at its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from malflow.engine.plan import Program
from malflow.engine.worker import LATE
from malflow.graph import Port

__all__ = ["Progress", "late_of", "records_of", "warn_of_dropped"]

_log = logging.getLogger("malflow.runtime")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        tick: the number of the last tick.
        parallelism: how many workers there are.
        records: how many records each operator took, and each source gave, since the run started here.
        polled: how many records came in the last tick.
        snapshot: the id of the last snapshot; None before the first.
        restarts: how often the run was started again after a failure.
        late: how many records were late at each `generate_epochs`, since the run started here.
    """

    tick: int
    parallelism: int
    records: dict[str, int]
    polled: int
    snapshot: int | None
    restarts: int
    late: dict[str, int] = field(default_factory=dict)


def records_of(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many records each operator took, of what workers count."""
    return {name: count for name, count in counts.items() if not name.endswith(LATE)}


def late_of(program: Program, counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many records were late at each generator of epochs, of what workers count."""
    return {name: counts.get(name + LATE, 0) for name in program.generators}


def warn_of_dropped(program: Program, counts: Mapping[str, int]) -> None:
    """Log how many late records nothing has read, for each generator that had any."""
    read = {port for vertex in program.vertices for port in vertex.inputs}
    late = late_of(program, counts)
    for index, vertex in enumerate(program.vertices):
        name = vertex.node.name
        if vertex.node.issues_epochs and late[name] and Port(index, 1) not in read:
            _log.warning(
                "operator '%s' dropped %d records as late: nothing reads the second of the streams that "
                "generate_epochs() returns; send it to a sink to see them",
                name,
                late[name],
            )
