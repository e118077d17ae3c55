"""A runtime made of a script's own one, on another machine or with other options."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from malflow.cli.exits import CommandError, Exit, nearest
from malflow.errors import short_repr
from malflow.events import Listener
from malflow.runtime.face import Runtime
from malflow.runtime.options import NOTHING, RunOptions
from malflow.runtime.processes.runtime import MultiProcessRuntime
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.layout import check_job
from malflow.snapshot.persistence import Persistence
from malflow.store.opening import check_place
from malflow.streams.stream import StreamProvider

__all__ = ["Changes", "On", "adapted", "kind_of", "place_of"]

On = Literal["single", "processes", "spark"]
"""The kinds of runtimes."""

Build = Callable[[StreamProvider], object]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a command changes about the runs of a script.

    Attributes:
        on: the kind of runtime; None leaves it.
        persistence: the path or URL of the snapshots; None leaves them.
        job: the name of the job; None leaves it.
        options: other options by their names in `RunOptions`.
        listeners: listeners in addition to the script's own.
    """

    on: On | None = None
    persistence: str | None = None
    job: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    listeners: Sequence[Listener] = ()


def kind_of(runtime: Runtime) -> On:
    """Return the kind of a runtime."""
    if isinstance(runtime, MultiProcessRuntime):
        return "processes"
    return "single" if isinstance(runtime, SingleThreadRuntime) else "spark"


def adapted(runtime: Runtime, changes: Changes, say: Callable[[str], object]) -> Runtime:
    """Return a runtime of a script with other options, perhaps of another kind.

    Args:
        runtime: the script's own.
        changes: what is different.
        say: writes a line about options that are left out.

    Raises:
        GraphError: if an option is not valid.
        CommandError: if an option contradicts another one.
    """
    options = runtime._options
    changed = dict(changes.options)
    changed["listeners"] = (*options.listeners, *changes.listeners)
    persistence = _persistence(options.persistence, changes)
    if persistence is not options.persistence:
        changed["persistence"] = persistence
    if changed.get("snapshots") is not None and persistence is NOTHING:
        raise CommandError("--snapshots needs a place for them: --persistence PATH-OR-URL", Exit.USAGE)
    build = _named_check(runtime._build, changed.get("renamed") or {})
    if changes.on is None or changes.on == kind_of(runtime):
        same = copy.copy(runtime)
        same._build, same._options = build, replace(options, **changed)
        return same
    return _moved(build, options, changed, changes.on, say)


def place_of(persistence: Persistence) -> str | None:
    """Return where state is kept, for messages; None if it is not kept."""
    if not persistence.is_enabled:
        return None
    if not isinstance(persistence, FsspecBackend) or persistence.own_store is not None:
        return short_repr(persistence)
    place = persistence._shown_url()
    here = f"{Path.cwd()}{os.sep}"
    job = "" if persistence.job == "default" else f", job '{persistence.job}'"
    return f"{place.removeprefix(here)}{job}"


def _moved(
    build: Build, options: RunOptions, changed: Mapping[str, Any], on: On, say: Callable[[str], object]
) -> Runtime:
    """Return a runtime of another kind, with the options that both kinds have."""
    kind, names = _kind(on)
    left_out = [it.name for it in fields(options) if it.name not in names and _is_set(options, it)]
    if left_out:
        say(f"--on {on} leaves out options that it does not have: {', '.join(left_out)}")
    shared = {it.name: getattr(options, it.name) for it in fields(options) if it.name in names}
    given = {**shared, **changed}
    if on == "single":
        given["parallelism"] = given["parallelism"] or 1
    return kind(build, **given)


def _kind(on: On) -> tuple[Callable[..., Runtime], set[str]]:
    """Return a class of runtimes, with the names of its options."""
    if on == "single":
        return SingleThreadRuntime, {it.name for it in fields(RunOptions)}
    if on == "processes":
        from malflow.runtime.processes.options import ProcessOptions  # noqa: PLC0415 - as the next one

        return MultiProcessRuntime, {it.name for it in fields(ProcessOptions)}
    from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - slow to import, and few runs need it
    from malflow.runtime.spark.settings import SparkOptions  # noqa: PLC0415 - as there

    return SparkRuntime, {it.name for it in fields(SparkOptions)}


def _is_set(options: RunOptions, it: Any) -> bool:
    default = it.default if it.default_factory is MISSING else it.default_factory()
    value = getattr(options, it.name)
    return value != default and bool(value)


def _persistence(own: Persistence, changes: Changes) -> Persistence:
    """Return where snapshots are saved: in the script's place, for another job, or elsewhere."""
    if changes.persistence is None and changes.job is None:
        return own
    if not isinstance(own, FsspecBackend) or own.own_store is not None:
        if changes.persistence is None:
            raise CommandError("--job needs a place for the job's state: --persistence PATH-OR-URL", Exit.USAGE)
        return FsspecBackend(changes.persistence, job=changes.job or "default")
    other = copy.copy(own)  # with its codec and keys
    if changes.job is not None:
        other.job = check_job(changes.job)
    if changes.persistence is not None:
        other._filesystem = None
        other._url = check_place(changes.persistence, other._options)
        other._check_codec()
    return other


def _named_check(build: Build, renamed: Mapping[str, str]) -> Build:
    """Return a function that builds the same dataflow, and refuses new names that it does not have."""
    if not renamed:
        return build

    def checked(provider: StreamProvider) -> object:
        result = build(provider)
        names = [it.node.name for it in provider._graph.vertices]
        for old, new in renamed.items():
            if new not in names:
                raise CommandError(
                    f"--rename {old}={new}: the flow has no operator '{new}'{nearest(new, names)}", Exit.USAGE
                )
        return result

    return checked
