"""Programs whose classes change from one run to the next, as when somebody edits their module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.kit.backends import in_memory, kept_states

HEAD = """
from __future__ import annotations
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from enum import Enum, Flag, IntEnum
from typing import Any, Generic, NamedTuple, TypeVar
"""


def module(source: str, name: str = "a_job_that_changes") -> ModuleType:
    """Make a module, in place of the one that was there before."""
    made = ModuleType(name)
    sys.modules[name] = made
    exec(HEAD + source, vars(made))  # noqa: S102 - the tests' own
    return made


def keep(backend: FsspecBackend, states: dict[Any, Any], **options: Any) -> None:
    """Run a dataflow that keeps these states of operator "acc", by key."""
    run(backend, states, lambda _old, new: new, **options)


def run(
    backend: FsspecBackend,
    values: dict[Any, Any],
    update: Callable[[Any, Any], Any],
    *,
    version: int = 1,
    migrate: Any = None,
    runtime: Any = SingleThreadRuntime,
    **options: Any,
) -> None:
    """Update the states of some keys."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", SingleIteratorSource(values.items()))
        stream.key_distribute("key", lambda m: m.value[0]).stateful_map(
            "acc", lambda _, value, old: (None, update(old, value[1])), version=version, migrate=migrate
        )

    runtime(build, backend, **options).execute()


def opened(backend: FsspecBackend, **options: Any) -> dict[Any, Any]:
    """Restore the states of "acc" with no more records, and return them."""
    run(backend, {}, lambda old, _: old, **options)
    return kept_states(backend, "acc")


def fresh() -> FsspecBackend:
    """Make a place for snapshots."""
    return in_memory()
