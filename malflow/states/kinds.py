"""The kinds of states, which determine how states are handled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

__all__ = ["Arrangement", "Movement", "StateKind", "StateLayout", "StateSpec"]


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
class Arrangement:
    """How a state of another layout becomes one of a program's.

    Attributes:
        counts: how many parts the old state has, for each of its lists.
        places: for each new part, by list, its old place; or a function that returns its value if it has none.
        dropped: the names of the old parts that are dropped.
        added: the names of the new ones.
    """

    counts: tuple[int, ...]
    places: tuple[tuple[int | Callable[[], Any], ...], ...]
    dropped: tuple[str, ...]
    added: tuple[str, ...]

    def __call__(self, parts: Sequence[Any], number: int = 0) -> list[Any]:
        """Return the parts of one list in their new places."""
        return [it() if callable(it) else parts[it] for it in self.places[number]]


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What a state of an operator holds, in words.

    Programs that are generated from another language, as from SQL, give their operators layouts. Two programs then
    share states if the texts are equal, whatever their functions are called. The parts of a state are found by their
    names: parts that a program no longer has are dropped from the state as it is loaded, and others may change places.

    Attributes:
        text: the keys, windows and conditions by which records come into the state.
        parts: the names of the parts in their places: of windows one list, with a name for each variable of the
            accumulators; of joins a list for each stream, with a name for each item of its records.
        new: functions that return the values of parts that a state in a snapshot lacks. A state that lacks another part
            is refused.
        of_rows: whether the accumulators of windows are lists of records, which have the parts.
        without: how a program can begin without a part that is missing, for the refusal.
        remark: a warning about the operator, for ``malflow check``.
    """

    text: str
    parts: Sequence[Sequence[str]] = ()
    new: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    of_rows: bool = False
    without: str = ""
    remark: str = ""

    @property
    def definition(self) -> str:
        """The text and the names of the parts, as snapshots have them.

        >>> StateLayout("windows of 10 by user", [["count(*)", "sum(price)"]]).definition
        'windows of 10 by user; count(*); sum(price)'
        """
        lists = [_BETWEEN.join(map(_escaped, names)) for names in self.parts]
        return _BETWEEN.join([_escaped(self.text), _BETWEEN_LISTS.join(lists)] if lists else [_escaped(self.text)])

    def arrangement(self, definition: str) -> Arrangement | None:
        """Return how states of another definition become states of this one; None if their text is another."""
        text, _, rest = definition.partition(_BETWEEN)
        old = [it.split(_BETWEEN) if it else [] for it in rest.split(_BETWEEN_LISTS)] if rest else []
        if text != _escaped(self.text) or len(old) != len(self.parts):
            return None
        new = [[*map(_escaped, names)] for names in self.parts]
        places = tuple(
            tuple(
                had.index(it) if it in had else self.new.get(name, _missing)
                for it, name in zip(has, names, strict=True)
            )
            for had, has, names in zip(old, new, self.parts, strict=True)
        )
        dropped = tuple(it for had, has in zip(old, new, strict=True) for it in had if it not in has)
        added = tuple(it for had, has in zip(old, new, strict=True) for it in has if it not in had)
        return Arrangement(tuple(map(len, old)), places, dropped, added)

    def missing(self, arrangement: Arrangement) -> list[str]:
        """Return the names of the parts that an old state lacks, and that have no value to begin with."""
        known = {_escaped(it) for it in self.new}
        return [it for it in arrangement.added if it not in known]


_BETWEEN, _BETWEEN_LISTS = "; ", ";; "
"""What is between the parts of a definition, and between its lists of parts."""


def _escaped(text: str) -> str:
    """Return a text without a semicolon: it is between the parts."""
    return text.replace("\\", "\\\\").replace(";", "\\u003b")


def _missing() -> Any:
    """Stand for the value of a part that a state lacks: such a state is refused before it is loaded."""
    raise LookupError("the state lacks a part")


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
        layout: the layout of the states, by which states of another definition can be arranged; None without one.
    """

    name: str
    kind: StateKind
    version: int
    placement: str | None
    definition: str | None = None
    panes: str | None = None
    layout: StateLayout | None = None
