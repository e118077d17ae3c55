"""The runtime that runs in place of a script's own: with settings over its options, and with listeners."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from malflow.cli.default_state import without_needless_default
from malflow.cli.exits import CommandError, Exit
from malflow.config import Settings
from malflow.events import Listener
from malflow.nodes import Node
from malflow.runtime.base import Runtime, declared_by, remade
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider
from malflow.words import did_you_mean, short_repr

__all__ = ["Wanted", "adapted", "folder_of", "listened"]

Build = Callable[[StreamProvider], object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An operator that an option of a command names.

    Attributes:
        option: the option, as it was written.
        name: the name of the operator.
        fits: whether the option accepts an operator.
        kind: the word for such operators in messages.
    """

    option: str
    name: str
    fits: Callable[[Node], bool] = lambda _: True
    kind: str = "operator"


def adapted(
    runtime: Runtime,
    settings: Settings,
    note: Callable[[Exception], object] = lambda _: None,
    wanted: Sequence[Wanted] = (),
) -> Runtime:
    """Return a runtime of a script with other options, perhaps of another kind.

    Args:
        runtime: the script's own.
        settings: the settings over its options.
        note: called with an error of the command's own when the dataflow is built; the script may catch it.
        wanted: operators that the flow must have.

    Raises:
        ConfigError: if the settings contradict each other, or the script.
    """
    settings = without_needless_default(settings, runtime)
    made = settings.apply_to(runtime)
    renamed = [Wanted(f"--rename {old}={new}", new) for old, new in (settings.run.renamed or {}).items()]
    build = _named_check(declared_by(made).build_dataflow, [*renamed, *wanted], note)
    return remade(made, build, {})


def listened(runtime: Runtime, listeners: Sequence[Listener]) -> Runtime:
    """Return a runtime like another one, with these listeners instead of its own."""
    return remade(runtime, declared_by(runtime).build_dataflow, {"listeners": listeners})


def folder_of(persistence: Persistence) -> str | None:
    """Return where state is kept, for messages; None if it is not kept."""
    if not persistence.is_enabled:
        return None
    if not isinstance(persistence, FsspecBackend) or persistence.own_store is not None:
        return short_repr(persistence)
    return persistence._shown_url().removeprefix(f"{Path.cwd()}{os.sep}")


def _named_check(build: Build, wanted: Sequence[Wanted], note: Callable[[Exception], object]) -> Build:
    """Return a function that builds the same dataflow, and fails if it lacks an operator that an option names."""
    if not wanted:
        return build

    def checked(provider: StreamProvider) -> object:
        result = build(provider)
        provider._graph.complete()  # with the operators on dead letters
        for it in wanted:
            vertices = provider._graph.vertices
            names = [*dict.fromkeys(vertex.node.name for vertex in vertices if it.fits(vertex.node))]
            if it.name not in names:
                error = CommandError(
                    f"{it.option}: the flow has no {it.kind} '{it.name}'{did_you_mean(it.name, names)}", Exit.USAGE
                )
                note(error)
                raise error
        return result

    return checked
