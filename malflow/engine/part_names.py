"""Parts of sources whose names in a snapshot differ from their current names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from malflow.diagnostics import operator_error
from malflow.engine.idle_edges import Idle
from malflow.engine.plan import Program
from malflow.engine.state_specs import OldStates
from malflow.operators.epochs.generator import ANSWERED
from malflow.operators.epochs.part_epochs import PART
from malflow.partitioners import rendezvous_select
from malflow.sources.contract import StatefulSource
from malflow.words import plural

__all__ = ["with_present_names"]

_log = logging.getLogger("malflow.runtime")


def with_present_names(
    program: Program, listed: Mapping[str, Iterable[Any]], states: OldStates, parallelism: int
) -> OldStates:
    """Rename the positions and epochs of renamed parts, and move them to the workers of the new names.

    A source with renamed parts has a method ``present_part(part)``. A warning is logged if a source that was read
    before has only new parts.

    Args:
        program: the program.
        listed: the parts of each source.
        states: the states in the snapshot.
        parallelism: the number of workers that had them.
    """
    names: dict[Any, Any] = {}
    present = dict(states)
    for source, node in program.sources.items():
        if not isinstance(node.source, StatefulSource):
            continue
        positions = {part: at for by_part in states.get(source, {}).values() for part, at in by_part.items()}
        known = list(positions)
        here = _names(node.source.impl, known)
        here = _with_renamed(source, node.source.impl, positions, listed[source], here)
        if here:
            moves = {old: (new, new) for old, new in here.items()}
            present[source] = _moved(states[source], moves, parallelism)
            names.update(here)
        _tell_if_all_are_new(source, set(listed[source]), {here.get(part, part) for part in known})
    if names:
        by_part = {(what, old): ((what, new), new) for old, new in names.items() for what in (PART, ANSWERED)}
        for vertex in program.vertices:
            if vertex.node.issues_epochs and vertex.node.name in states:
                present[vertex.node.name] = _moved(states[vertex.node.name], by_part, parallelism)
    return present


def _names(impl: Any, known: list[Any]) -> dict[Any, Any]:
    """Return the new names by the old ones; a part with its current name takes precedence."""
    if not hasattr(impl, "present_part"):
        return {}
    taken, names = set(known), {}
    for part in known:
        name = impl.present_part(part)
        if name not in taken:
            taken.add(name)
            names[part] = name
    return names


def _with_renamed(
    source: str, impl: Any, positions: Mapping[Any, Any], listed: Iterable[Any], names: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the new names of parts, with those that the source finds by the positions.

    Args:
        source: the name of the source.
        impl: its implementation.
        positions: the positions by the old names.
        listed: the current parts.
        names: the new names that are known without the positions, by the old ones.

    Raises:
        OperatorError: if the source fails.
    """
    if not hasattr(impl, "renamed_parts") or not positions:
        return dict(names)
    present = {names.get(old, old): at for old, at in positions.items()}
    try:
        renamed = impl.renamed_parts(present, list(listed))
    except Exception as error:
        raise operator_error(source, error, None, impl) from error
    whole = {old: renamed.get(names.get(old, old), names.get(old, old)) for old in positions}
    return {old: new for old, new in whole.items() if new != old}


def _moved(
    by_worker: Mapping[int, Mapping[Any, Any]], names: Mapping[Any, tuple[Any, Any]], parallelism: int
) -> dict[int, dict[Any, Any]]:
    """Return a state with its renamed keys on the workers of their parts.

    A key that loses its name to another one, and that has no new name, is dropped.

    Args:
        by_worker: the state by worker.
        names: the new key and its part, by the old key.
        parallelism: the former number of workers.
    """
    moved: dict[int, dict[Any, Any]] = {worker: {} for worker in range(parallelism)}
    taken = {name for name, _ in names.values()}
    got: set[int] = set()
    for worker, by_key in by_worker.items():
        for key, state in by_key.items():
            if key not in names:
                if key not in taken:
                    moved[worker][key] = state
                continue
            name, part = names[key]
            target = rendezvous_select(part, range(parallelism))
            moved[target][name] = state
            if target != worker:
                got.add(target)
    for worker in got:
        if moved[worker].get("idle") == Idle.EMPTY:  # of epochs: the worker has a part now
            moved[worker]["idle"] = int(Idle.ENDED)
    return moved


def _tell_if_all_are_new(source: str, listed: set[Any], known: set[Any]) -> None:
    if listed and known and listed.isdisjoint(known):
        _log.warning(
            "source '%s' has %s, all of them new, and none of the %d that were read before: they are read from "
            "their beginning; if they are the same under other names, such as after a mount was moved, restore the old "
            "names",
            source,
            plural(len(listed), "part"),
            len(known),
        )
