"""Partial matches as plain data, for snapshots: by the names of steps and states, without durations and predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from malflow.patterns.automaton import Automaton, State
from malflow.patterns.machine import Machine
from malflow.patterns.match import BEFORE, ORDINAL, TIME, VALUE, Event, Match, Node
from malflow.patterns.runs import LAST, Run
from malflow.words import short_repr

__all__ = ["Flat", "PartialMigration", "flatten", "load", "waiting_in"]

Flat = tuple[list[Any], list[Any], list[Any], list[Any], list[int], Any]
"""The partial matches and waiting records of a key.

Events that partial matches hold, in order: timestamp and value of each. Nodes of partial matches: the index of the
previous node or -1, the name of the step, the index of the event. Partial matches: the name of the state and the index
of the last node. Records that wait for an epoch: timestamp and value of each. The indices of first events that have a
match, if matches discard nothing. The timestamp of the last event of the step that must be absent in front, or None.
"""

_WIDTH = 3
"""The number of entries of a node."""


def flatten(machine: Machine, key: Any, waiting: Iterable[tuple[Any, Any]]) -> Flat | None:
    """Return the flat form of a key's partial matches, or None.

    Args:
        machine: the machine.
        key: the key.
        waiting: timestamp and value of the waiting records, in the order of time.
    """
    runs = machine.runs.get(key, ())
    waiting = [it for row in waiting for it in row]
    since = machine.silent_since.get(key)
    if not runs and not waiting and since is None:
        return None
    events: dict[int, tuple[Any, Any]] = {}
    nodes: dict[int, int] = {}
    chains: list[Node] = []
    for run in runs:
        _collect(run[LAST], nodes, chains, events)
    index = {ordinal: number for number, ordinal in enumerate(sorted(events))}
    flat_nodes: list[Any] = []
    for parent, step, _, _, ordinal in chains:
        flat_nodes += (-1 if parent is None else nodes[id(parent)], machine.automaton.names[step], index[ordinal])
    return (
        [it for ordinal in index for it in events[ordinal]],
        flat_nodes,
        [it for state, _, last in runs for it in (state.name, nodes[id(last)])],
        waiting,
        sorted(index[ordinal] for ordinal in machine.finished.get(key, ())),
        since,
    )


def _collect(last: Node, nodes: dict[int, int], chains: list[Node], events: dict[int, tuple[Any, Any]]) -> None:
    """Number the new nodes of a partial match, first to last, and collect their events."""
    new: list[Node] = []
    node: Node | None = last
    while node is not None and id(node) not in nodes:
        new.append(node)
        node = node[BEFORE]
    for node in reversed(new):
        nodes[id(node)] = len(chains)
        chains.append(node)
        events[node[ORDINAL]] = (node[TIME], node[VALUE])


def load(machine: Machine, key: Any, flat: Flat) -> int:
    """Load the partial matches of a key; return the number of those that the pattern no longer has a place for."""
    events, flat_nodes, flat_runs, _, finished, since = flat
    first, steps = machine.ordinal + 1, {name: number for number, name in enumerate(machine.automaton.names)}
    machine.ordinal += len(events) // 2
    nodes: list[Node] = []
    for parent, step, event in zip(flat_nodes[::_WIDTH], flat_nodes[1::_WIDTH], flat_nodes[2::_WIDTH], strict=True):
        before = None if parent < 0 else nodes[parent]
        nodes.append((before, steps[step], events[2 * event], events[2 * event + 1], first + event))
    runs: list[Run] = []
    for name, last in zip(flat_runs[::2], flat_runs[1::2], strict=True):
        state = machine.automaton.named(name)
        if state is not None and state.continues:
            runs.append((state, _first(nodes[last]), nodes[last]))
    machine.load(key, runs, {first + event for event in finished}, since)
    return len(flat_runs) // 2 - len(runs)


def _first(node: Node) -> Node:
    while node[BEFORE] is not None:
        node = node[BEFORE]
    return node


def waiting_in(flat: Flat) -> Iterable[tuple[Any, Any]]:
    """Return timestamp and value of the waiting records."""
    return zip(flat[3][::2], flat[3][1::2], strict=True)


class PartialMigration:
    """Converts the partial matches of keys from an older version, with another shape of the pattern.

    Waiting records are kept; partial matches are dropped, unless the user converts them.

    Args:
        automaton: returns the pattern's automaton.
        migrate: ``(partials, old_version) -> partials``, with a list of matches; None to drop them.
    """

    def __init__(self, automaton: Callable[[], Automaton], migrate: Any) -> None:
        self._automaton = automaton
        self._migrate = migrate

    def __call__(self, flat: Flat, version: int) -> Flat | None:
        """Return a key's partial matches in the form of the pattern; None if none are left."""
        partials = [] if self._migrate is None else self._migrate(_matches(flat), version)
        new = _replayed(self._automaton(), partials, flat[3])
        return new if new[2] or new[3] else None


def _matches(flat: Flat) -> list[Match[Any, Any, Any]]:
    """Return the partial matches, with None as their key."""
    events, nodes, runs = flat[:3]
    steps = tuple(dict.fromkeys(nodes[1::_WIDTH]))
    found = []
    for last in runs[1::2]:
        chain: list[Event[Any, Any]] = []
        node = last
        while node >= 0:
            node, step, event = nodes[_WIDTH * node : _WIDTH * (node + 1)]
            chain.append(Event(step, events[2 * event + 1], events[2 * event]))
        chain.reverse()
        found.append(Match(None, chain[0].timestamp, chain[-1].timestamp, tuple(chain), steps))
    return found


def _replayed(automaton: Automaton, partials: Iterable[Match[Any, Any, Any]], waiting: Sequence[Any]) -> Flat:
    """Return partial matches in the form of the pattern, without those that it has no path for.

    Raises:
        TypeError: if one is not a match.
    """
    kept: list[tuple[State, Sequence[Event[Any, Any]]]] = []
    for match in partials:
        if not isinstance(match, Match):
            raise TypeError(f"migrate= must return a list of matches; got {short_repr(match)} in it")
        state = automaton.state_after([event.step for event in match.events])
        if state is not None and state.continues:
            kept.append((state, match.events))
    found = {_event_id(event): event for _, chain in kept for event in chain}
    order = sorted(found, key=lambda it: found[it].timestamp)
    index = {it: number for number, it in enumerate(order)}
    nodes: list[Any] = []
    runs: list[Any] = []
    for state, chain in sorted(kept, key=lambda it: index[_event_id(it[1][0])]):
        for number, event in enumerate(chain):
            nodes += (len(nodes) // _WIDTH - 1 if number else -1, event.step, index[_event_id(event)])
        runs += (state.name, len(nodes) // _WIDTH - 1)
    events = [it for event in order for it in (found[event].timestamp, found[event].value)]
    return events, nodes, runs, list(waiting), [], None


def _event_id(event: Event[Any, Any]) -> tuple[Any, int]:
    """Return the identity of an event. Several matches may share it; values are not compared."""
    return event.timestamp, id(event.value)
