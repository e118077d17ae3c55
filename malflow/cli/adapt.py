"""The runtime that runs in place of a script's own: with settings over its options, and with listeners."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from malflow.cli.exits import CommandError, Exit, nearest
from malflow.config import Settings
from malflow.errors import short_repr
from malflow.events import Listener
from malflow.runtime.declared import declared_by, remade
from malflow.runtime.face import Runtime
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.persistence import Persistence
from malflow.streams.stream import StreamProvider

__all__ = ["adapted", "folder_of", "listened", "place_of"]

Build = Callable[[StreamProvider], object]


def adapted(runtime: Runtime, settings: Settings, note: Callable[[Exception], object] = lambda _: None) -> Runtime:
    """Return a runtime of a script with other options, perhaps of another kind.

    Args:
        runtime: the script's own.
        settings: the settings over its options.
        note: called with an error of the command's own when the dataflow is built, which the script may catch.

    Raises:
        ConfigError: if the settings contradict each other, or the script.
    """
    made = settings.apply_to(runtime)
    build = _named_check(declared_by(made).build_dataflow, settings.run.renamed or {}, note)
    return remade(made, build, {})


def listened(runtime: Runtime, listeners: Sequence[Listener]) -> Runtime:
    """Return a runtime like another one, with these listeners instead of its own."""
    return remade(runtime, declared_by(runtime).build_dataflow, {"listeners": listeners})


def place_of(persistence: Persistence) -> str | None:
    """Return where state is kept, for messages; None if it is not kept."""
    folder = folder_of(persistence)
    if not isinstance(persistence, FsspecBackend) or persistence.own_store is not None or persistence.job == "default":
        return folder
    return f"{folder}, job '{persistence.job}'"


def folder_of(persistence: Persistence) -> str | None:
    """Return the same without the job."""
    if not persistence.is_enabled:
        return None
    if not isinstance(persistence, FsspecBackend) or persistence.own_store is not None:
        return short_repr(persistence)
    return persistence._shown_url().removeprefix(f"{Path.cwd()}{os.sep}")


def _named_check(build: Build, renamed: Mapping[str, str], note: Callable[[Exception], object]) -> Build:
    """Return a function that builds the same dataflow, and refuses new names that it does not have."""
    if not renamed:
        return build

    def checked(provider: StreamProvider) -> object:
        result = build(provider)
        provider._graph.complete()  # with the operators on dead letters
        names = [it.node.name for it in provider._graph.vertices]
        for old, new in renamed.items():
            if new not in names:
                error = CommandError(
                    f"--rename {old}={new}: the flow has no operator '{new}'{nearest(new, names)}", Exit.USAGE
                )
                note(error)
                raise error
        return result

    return checked
