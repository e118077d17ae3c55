"""The kinds of states, which determine how states are handled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Movement", "StateKind", "StateSpec"]


class Movement(Enum):
    """The redistribution of a state when the number of workers changes: see `malflow.engine.states.rescale`."""

    BY_KEY = auto()
    """Each key goes to the worker that its stream's partitioner selects."""

    BY_SLOT = auto()
    """Each key of a pane goes to the worker that its stream's partitioner selects."""

    BY_ENTRY = auto()
    """Each entry of a key in a pane goes to the worker that its stream's partitioner selects for the key."""

    EVERYWHERE = auto()
    """Every worker has all of it, and the same: it is stored once, as that of worker 0, and loaded by all."""

    BY_PART = auto()
    """Each part goes to the worker that now owns that part of the source or sink."""

    BY_LETTER = auto()
    """Each dead letter goes to the worker of its record's key, or, if records have no worker by key, of its id."""

    EPOCHS = auto()
    """All workers start from the least epoch (watermark)."""

    FRONTIER = auto()
    """All inputs of all workers start from the least epoch."""


class StateKind(Enum):
    """The kind of owner of a state. It determines how the state is handled.

    Attributes:
        word: the name in manifests and messages. It never changes.
        movement: how it is redistributed over workers.
    """

    SOURCE = "source", Movement.BY_PART
    STATEFUL_MAP = "stateful_map", Movement.BY_KEY
    STATEFUL_OP = "stateful_op", Movement.BY_KEY
    TTL_MAP = "ttl_map", Movement.BY_KEY
    AGGREGATE = "aggregate", Movement.BY_KEY
    WINDOW = "window", Movement.BY_SLOT
    ROLLUP = "rollup", Movement.BY_SLOT
    SESSION = "session", Movement.BY_KEY
    COUNT_WINDOW = "count_window", Movement.BY_KEY
    TIMERS = "timers", Movement.BY_KEY
    DISTINCT = "distinct", Movement.BY_ENTRY
    CHANGES = "changes", Movement.BY_KEY
    TABLE = "table", Movement.BY_KEY
    BROADCAST = "broadcast", Movement.EVERYWHERE
    THROTTLE = "throttle", Movement.BY_KEY
    SORT = "sort", Movement.BY_SLOT
    BATCH = "batch", Movement.BY_KEY
    JOIN = "join", Movement.BY_SLOT
    MATCH = "match", Movement.BY_KEY
    LETTERS = "letters", Movement.BY_LETTER
    EPOCHS = "epochs", Movement.EPOCHS
    FRONTIER = "frontier", Movement.FRONTIER
    SINK = "sink", Movement.BY_PART

    def __init__(self, word: str, movement: Movement) -> None:
        self.word = word
        self.movement = movement

    @classmethod
    def of(cls, word: str) -> StateKind | None:
        """Return the kind with this name in a manifest; None if a newer version wrote it."""
        return next((kind for kind in cls if kind.word == word), None)

    @property
    def is_by_key(self) -> bool:
        """Whether each state belongs to a key of records, and so to one worker."""
        return self.movement in (Movement.BY_KEY, Movement.BY_SLOT, Movement.BY_ENTRY)

    @property
    def migrates(self) -> bool:
        """Whether a program can migrate its states. These are the user's objects."""
        return self.is_by_key or self.movement is Movement.EVERYWHERE

    @property
    def may_be_lost(self) -> bool:
        """Whether a run may start without it, waiting for new epochs."""
        return self is StateKind.FRONTIER


@dataclass(frozen=True, slots=True)
class StateSpec:
    """The declaration of a program's state, from which a later program decides whether it can resume.

    Attributes:
        name: the state's name, unique in the program.
        kind: the kind of its owner.
        version: the schema version of each key's state.
        placement: the name of the partitioner that placed its keys on workers, or None.
        definition: the windows and aggregators that create the states; None if the user's functions create them.
        panes: the partition of time of the panes in its slots; None without slots.
    """

    name: str
    kind: StateKind
    version: int
    placement: str | None
    definition: str | None = None
    panes: str | None = None
