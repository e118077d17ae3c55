"""The options that all runtimes share, with their checks, and a builder for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from inspect import Parameter, signature
from typing import Any, Literal, Self, TypedDict, TypeVar

from malflow.checks import Cures, check_choice, check_function, check_whole_number, checked_duration, checked_seconds
from malflow.durations import Duration
from malflow.engine.plan import PartAssignment
from malflow.errors import GraphError, check_methods
from malflow.events import InputEnded, Listener
from malflow.operators.waiting import Waiting
from malflow.partitioners import SLOTS
from malflow.snapshot.persistence import NoPersistence, Persistence, RestoreOptions, check_wish, job_of
from malflow.words import did_you_mean, short_repr

__all__ = [
    "NOTHING",
    "RunArguments",
    "RunOptions",
    "RuntimeBuilder",
    "check_build",
    "checked_parallelism",
    "lists_options",
    "options_of",
]

NOTHING = NoPersistence()
"""The default persistence of a runtime."""

Kind = TypeVar("Kind", bound="RunOptions")
F = TypeVar("F", bound=Callable[..., Any])

_RUN = "a run's"
"""The owner of the options, for errors."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run that all runtimes share, documented at `malflow.SingleThreadRuntime`.

    Each is an argument of every runtime (see `RunArguments`) and a method of every builder, under the same name.

    Attributes:
        parallelism: the number of logical workers; None lets the runtime choose.

    Raises:
        GraphError: if an option is not valid.
    """

    persistence: Persistence = NOTHING
    snapshots: Duration | None = None
    parallelism: int | None = None
    restore: Literal["latest"] | int | datetime | None = "latest"
    recovery: Literal["strict", "previous"] = "strict"
    renamed: Mapping[str, str] | None = None
    allow_dropped_state: Collection[str] = ()
    debug: bool = False
    listeners: Sequence[Listener] = ()
    sinks: Literal["exactly_once", "accept_duplicates"] = "exactly_once"
    at_end: Literal["finish", "keep"] | None = None
    part_assignment: PartAssignment = "auto"
    move_parts: bool = True
    pinned: Collection[str] = ()

    def __post_init__(self) -> None:
        """Check the options, and copy those that the caller might mutate later."""
        object.__setattr__(self, "snapshots", _checked_snapshots(self.snapshots, self.persistence))
        if self.parallelism is not None:
            checked_parallelism(self.parallelism)
        _check_restore(self.restore, self.recovery, self.allow_dropped_state)
        _check_listeners(self.listeners)
        check_choice(_RUN, "sinks", self.sinks, ("exactly_once", "accept_duplicates"))
        check_choice(_RUN, "at_end", self.at_end, ("finish", "keep", None))
        check_choice(_RUN, "part_assignment", self.part_assignment, ("auto", "dynamic", "static"))
        _check_pinned(self.pinned, [it.name for it in fields(self) if it.name != "pinned"])
        object.__setattr__(self, "pinned", tuple(self.pinned))
        object.__setattr__(self, "renamed", dict(self.renamed or {}))
        object.__setattr__(self, "listeners", tuple(self.listeners))

    @property
    def interval(self) -> float | None:
        """The seconds between snapshots; None for no periodic snapshots."""
        return None if self.snapshots is None else checked_seconds(_RUN, "snapshots", self.snapshots)

    @property
    def finishes(self) -> bool:
        """Whether the end of the input closes windows and fires timers, rather than keeping them for the next run."""
        return not self.persistence.is_enabled if self.at_end is None else self.at_end == "finish"

    def input_ended(self, tick: int, held: Mapping[str, Waiting]) -> InputEnded:
        """Return the event of the end of the input.

        Args:
            tick: the number of the last tick.
            held: the open results of operators; empty if the run finishes.
        """
        texts = {name: str(it) for name, it in held.items()}
        return InputEnded(tick, "finish" if self.finishes else "keep", self.at_end is not None, texts)

    @property
    def restore_options(self) -> RestoreOptions:
        """The options for restoring state."""
        accepts = self.sinks == "accept_duplicates"
        return RestoreOptions(self.restore, self.recovery, self.renamed or {}, self.allow_dropped_state, accepts)

    def check_places(self) -> None:
        """Check that the run can reach the folders of its options; within one process, it always can."""

    @property
    def first_workers(self) -> int | None:
        """The number of workers that a run begins with; None if it is known only once the run has started."""
        return self.parallelism or 1

    @property
    def job(self) -> str:
        """The name of the job."""
        return job_of(self.persistence)


class RunArguments(TypedDict, total=False):
    """The `RunOptions` that a runtime takes by keyword only."""

    restore: Literal["latest"] | int | datetime | None
    recovery: Literal["strict", "previous"]
    renamed: Mapping[str, str] | None
    allow_dropped_state: Collection[str]
    debug: bool
    listeners: Sequence[Listener]
    sinks: Literal["exactly_once", "accept_duplicates"]
    at_end: Literal["finish", "keep"] | None
    part_assignment: PartAssignment
    move_parts: bool
    pinned: Collection[str]


def options_of(runtime: object, kind: type[Kind], /, **given: Any) -> Kind:
    """Return the options of a runtime from the arguments of its constructor.

    Raises:
        TypeError: if the options have no such argument, as Python raises it.
        GraphError: if an option is not valid.
    """
    known = [it.name for it in fields(kind)]
    for name in given:
        if name not in known:
            text = f"{type(runtime).__name__}() got an unexpected keyword argument {name!r}"
            raise TypeError(text + did_you_mean(name, known, else_=""))
    return kind(**given)


def lists_options(kind: type[RunOptions]) -> Callable[[F], F]:
    """Return a decorator of a constructor with ``**options``: `help` then lists each option with its default."""
    own_first = sorted(fields(kind), key=lambda it: it in fields(RunOptions))
    options = [Parameter(it.name, Parameter.KEYWORD_ONLY, default=it.default, annotation=it.type) for it in own_first]

    def listing(constructor: F) -> F:
        written = signature(constructor)
        explicit = [it for it in written.parameters.values() if it.kind is not Parameter.VAR_KEYWORD]
        listed = [*explicit, *(it for it in options if it.name not in written.parameters)]
        vars(constructor)["__signature__"] = written.replace(parameters=listed)
        return constructor

    return listing


def _checked_snapshots(snapshots: Duration | None, persistence: Persistence) -> timedelta | None:
    """Return the interval between snapshots. It needs a persistence."""
    if isinstance(persistence, str | os.PathLike):
        raise GraphError(
            f"persistence needs a backend; got {short_repr(persistence)}; write FsspecBackend({str(persistence)!r})"
        )
    check_methods(persistence, "persistence", ("open",))
    if snapshots is None:
        return None
    interval = checked_duration(_RUN, "snapshots", snapshots, or_else="None")
    if persistence is NOTHING:
        raise GraphError(
            f"snapshots={snapshots!r} needs a persistence; pass persistence=FsspecBackend(...), or NoPersistence() to "
            "keep no state"
        )
    return interval


def checked_parallelism(parallelism: int) -> int:
    """Check a number of workers (at most the number of slots); return it."""
    check_whole_number(_RUN, "parallelism", parallelism)
    if parallelism > SLOTS:
        raise GraphError(
            f"parallelism is {parallelism:,}, but keys belong to {SLOTS:,} slots: this is the most workers"
        )
    return parallelism


def _check_restore(restore: object, recovery: object, allow_dropped_state: object) -> None:
    """Check the options for restoring state."""
    if restore is not None:
        check_wish("restore", restore, ", or None to start without state")
    check_choice(_RUN, "recovery", recovery, ("strict", "previous"))
    if isinstance(allow_dropped_state, str):
        raise GraphError(f"allow_dropped_state needs a list of names; got {allow_dropped_state!r}")


def _check_pinned(pinned: object, known: Sequence[str]) -> None:
    """Check the names of options that no configuration may change."""
    if isinstance(pinned, str) or not isinstance(pinned, Collection):
        raise GraphError(f"pinned needs a list of options; got {short_repr(pinned)}; write ['parallelism']")
    for name in pinned:
        if name not in known:
            hint = did_you_mean(name, known)
            raise GraphError(f"pinned has {short_repr(name)}, which is not an option of this runtime{hint}")


def _check_listeners(listeners: object) -> None:
    """Check the listeners of a run: a sequence of objects with a method `on_event`."""
    if isinstance(listeners, str) or not isinstance(listeners, Sequence):
        raise GraphError(f"listeners needs a list of listeners; got {short_repr(listeners)}")
    for listener in listeners:
        check_methods(listener, "listeners", ("on_event",))


def check_build(build_dataflow: object, asked_by: str) -> None:
    """Check the function that builds the dataflow."""
    check_function(asked_by, "build_dataflow", build_dataflow, returns=False, cures=Cures("add operators at once"))


class RuntimeBuilder:
    """Collects the options of a runtime. Each method returns the builder; `build` checks the options."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def persistence(self, persistence: Persistence) -> Self:
        """Set where snapshots are saved."""
        return self._with("persistence", persistence)

    def snapshots(self, interval: Duration) -> Self:
        """Set how often to take a snapshot."""
        return self._with("snapshots", interval)

    def parallelism(self, workers: int) -> Self:
        """Set the number of logical workers."""
        return self._with("parallelism", workers)

    def restore(self, snapshot: Literal["latest"] | int | datetime | None) -> Self:
        """Set the snapshot to restore: ``"latest"``, an id, a datetime, or None to start without state."""
        return self._with("restore", snapshot)

    def recovery(self, recovery: Literal["strict", "previous"]) -> Self:
        """Set what to do if the snapshot to restore is damaged."""
        return self._with("recovery", recovery)

    def renamed(self, renamed: Mapping[str, str]) -> Self:
        """Set the new names of stateful operators by their old ones."""
        return self._with("renamed", renamed)

    def allow_dropped_state(self, names: Collection[str]) -> Self:
        """Set the stateful operators that may lose their state if the program no longer has them."""
        return self._with("allow_dropped_state", names)

    def debug(self, debug: bool = True) -> Self:
        """Turn on checks that are too expensive for production."""
        return self._with("debug", debug)

    def listeners(self, listeners: Sequence[Listener]) -> Self:
        """Set the listeners for ticks, snapshots and the end of a run."""
        return self._with("listeners", listeners)

    def sinks(self, sinks: Literal["exactly_once", "accept_duplicates"]) -> Self:
        """Set whether a run may start before the last commit of a transactional sink."""
        return self._with("sinks", sinks)

    def at_end(self, at_end: Literal["finish", "keep"] | None) -> Self:
        """Set whether the end of the input closes windows and fires timers, or keeps them for the next run."""
        return self._with("at_end", at_end)

    def part_assignment(self, part_assignment: PartAssignment) -> Self:
        """Set whether workers get the parts of sources at once or one after the other."""
        return self._with("part_assignment", part_assignment)

    def move_parts(self, move_parts: bool = True) -> Self:
        """Set whether parts of sources may move from busy workers to idle ones."""
        return self._with("move_parts", move_parts)

    def pinned(self, names: Collection[str]) -> Self:
        """Set the names of options that no configuration may change."""
        return self._with("pinned", names)

    def _with(self, name: str, value: object) -> Self:
        self._options[name] = value
        return self
