"""Migration of states from older versions to the program's."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from malflow.diagnostics import operator_error
from malflow.engine.plan import Program
from malflow.errors import SnapshotError
from malflow.nodes import StatefulNode
from malflow.snapshot.codecs.old_records import old_kind
from malflow.states.kinds import Arrangement
from malflow.words import short_repr

__all__ = ["Migrations", "faulty_versions", "migrated", "migrations"]

Migrations = dict[str, tuple[StatefulNode, int | Arrangement]]
"""The operators with states that are converted as they are loaded, by name: from an older version, or layout."""


def faulty_versions(
    program: Program, versions: Mapping[str, int], keys: Mapping[str, int]
) -> Iterator[tuple[str, SnapshotError]]:
    """Yield the states that have a newer version, then those that lack a migration, each with its error.

    Args:
        program: the program.
        versions: the version of each state in a snapshot.
        keys: the number of keys of each state in it.
    """
    missing = []
    for node in _nodes_of(program, versions):
        version = versions[node.name]
        if version > node.version:
            yield node.name, _newer(node, version)
        elif version < node.version and node.migrate is None and keys.get(node.name):
            missing.append((node.name, _no_migration(node, version)))
    yield from missing


def migrations(program: Program, versions: Mapping[str, int], definitions: Mapping[str, str | None]) -> Migrations:
    """Return the operators with states of an older version, with that version, or of another layout, by name.

    Args:
        program: the program.
        versions: the version of each state in a snapshot.
        definitions: the definition of each state in it; a state without one has the layout of the program.

    Raises:
        SnapshotError: if a state has a newer version.
    """
    found: Migrations = {}
    for node in _nodes_of(program, versions):
        version = versions[node.name]
        if version > node.version:
            raise _newer(node, version)
        definition = definitions.get(node.name)
        if version < node.version:
            found[node.name] = node, version
        elif node.layout is not None and definition is not None and definition != node.definition:
            arrangement = node.layout.arrangement(definition)
            if arrangement is not None:
                found[node.name] = node, arrangement
    return found


def _nodes_of(program: Program, names: Container[str]) -> Iterator[StatefulNode]:
    nodes = (vertex.node for vertex in program.vertices)
    return (node for node in nodes if isinstance(node, StatefulNode) and node.name in names)


def _newer(node: StatefulNode, version: int) -> SnapshotError:
    return SnapshotError(
        f"operator '{node.name}' has states of version {version} in the snapshot, but supports only version "
        f"{node.version}; run a program of version {version}, or restore an older snapshot"
    )


def _no_migration(node: StatefulNode, version: int) -> SnapshotError:
    return SnapshotError(
        f"operator '{node.name}' has version {node.version}, but its states in the snapshot have version "
        f"{version}; pass migrate=, a function (old_state, old_version) -> state"
    )


def migrated(node: StatefulNode, old: int | Arrangement, states: Mapping[Any, Any]) -> dict[Any, Any]:
    """Migrate the states of an operator on one worker.

    Args:
        node: the operator.
        old: the version of the states, or how states of their layout are arranged.
        states: the states by key.

    Raises:
        SnapshotError: if the operator has no migration.
        OperatorError: if the migration fails, or does not return a state.
    """
    if isinstance(old, Arrangement):
        return {key: state if node.arrange is None else node.arrange(key, state, old) for key, state in states.items()}
    new = dict(_migrate(node, old, states))
    _check_new(node, old, new)
    return new


def _check_new(node: StatefulNode, version: int, states: Mapping[Any, Any]) -> None:
    """Reject a state that a migration returned with an object of a class that no longer exists."""
    if old_kind(states.values()) is None:
        return
    key, state = next((key, state) for key, state in states.items() if old_kind((state,)))
    reason = f"it must return a new state; got {short_repr(state)}, with an old {old_kind((state,))} in it"
    raise operator_error(node.name, reason, None, node.migrate, about=_migration(key, state, version))


def _migration(key: Any, state: Any, version: int) -> str:
    return f"the migration of key {short_repr(key)}, state {short_repr(state)}, from version {version}"


def _migrate(node: StatefulNode, version: int, states: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    migrate = node.migrate
    if not states:
        return
    if migrate is None:
        raise _no_migration(node, version)
    for key, state in states.items():
        about = _migration(key, state, version)
        try:
            new = migrate(state, version)
        except Exception as error:
            raise operator_error(node.name, error, None, migrate, about=about) from error
        new = _checked(node, new, about)
        if new is not None:
            yield key, new


def _checked(node: StatefulNode, state: Any, about: str) -> Any:
    try:
        return state if node.validate is None else node.validate(state)
    except TypeError as error:
        raise operator_error(node.name, str(error), None, node.migrate, about=about) from None
