"""The epochs of operators and of their inputs, merged for new workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from malflow.engine.state_specs import States
from malflow.engine.worker_time import Idle
from malflow.operators.epochs.frontiers import KEPT, UNTIL
from malflow.operators.epochs.generator import ANSWERED, SILENCE

__all__ = ["exchange_frontiers", "input_frontiers", "least_of_all", "past_epochs", "with_least"]

_OF_PLACEMENT = 2
"""The length of an entry of `Past` that says nothing of the placement."""

_Reached = tuple[int, Any]
"""The idleness of an edge or a worker, and its epoch or None."""


def with_least(old: Sequence[States]) -> list[States]:
    """Set the workers that never had a part to the least epoch; the others keep theirs."""
    reached = _reached(old)
    least, answered = _least(reached), _answered(old, reached)
    return [
        _state({**states, "epoch": least, ANSWERED: answered})
        if idle == Idle.EMPTY and (epoch, states.get(ANSWERED)) != (least, answered)
        else states
        for states, (idle, epoch) in zip(old, reached, strict=True)
    ]


def least_of_all(old: Sequence[States], past: Any) -> States:
    """Return the least epoch of all workers, with the epochs that were ahead of it."""
    reached = _reached(old)
    silence = _least((idle, states.get(SILENCE)) for states, (idle, _) in zip(old, reached, strict=True))
    like, until = (next((states[name] for states in old if name in states), None) for name in ("like", UNTIL))
    kept = tuple(dict.fromkeys(it for states in old for it in states.get(KEPT, ()))) or None
    epoch, answered = _least(reached), _answered(old, reached)
    return _state(
        {"epoch": epoch, ANSWERED: answered, "past": past, "like": like, SILENCE: silence, UNTIL: until, KEPT: kept}
    )


def past_epochs(
    old: Sequence[States], dealt: Mapping[Any, int] | None, earlier: str | None, *, is_known: bool
) -> tuple[tuple[Any, ...], ...] | None:
    """Return the epochs of old workers, and of workers before them, that were ahead of the least one: see `Floors`.

    Args:
        old: the state of each old worker.
        dealt: the old worker of each part, if the keys are parts.
        earlier: the placement of keys by workers before them, where they note none; None if it is the same.
        is_known: whether the old worker of each key is known. If not, the greatest epoch counts for each key.
    """
    least = _least(_reached(old))
    epochs = {worker: states["epoch"] for worker, states in enumerate(old) if "epoch" in states}
    past: list[tuple[Any, ...]] = [(len(old), epochs) if dealt is None else (len(old), epochs, dict(dealt))]
    for states in old:
        past.extend(entry for entry in states.get("past", ()) if entry not in past)
    ahead = [entry for entry in past if any(least is None or epoch > least for epoch in entry[1].values())]
    if ahead and not is_known:
        ahead = [(1, {0: max(epoch for _, epochs, *_ in ahead for epoch in epochs.values())})]
    if earlier is not None:
        ahead = [(*entry, earlier) if len(entry) == _OF_PLACEMENT else entry for entry in ahead]
    return tuple(ahead) or None


def _reached(old: Sequence[States]) -> list[_Reached]:
    return [(states.get("idle", Idle.BUSY), states.get("epoch")) for states in old]


def _least(reached: Iterable[_Reached]) -> Any:
    """Return the least epoch among the least idle ones, or None if one of them has no epoch."""
    known = list(reached)
    busiest = min(idle for idle, _ in known)
    epochs = [epoch for idle, epoch in known if idle == busiest]
    return None if None in epochs else min(epochs)


def _answered(old: Sequence[States], reached: Iterable[_Reached]) -> Any:
    """Return the least epoch that the generators returned, or None if they issued all that they returned."""
    if not any(ANSWERED in states for states in old):
        return None
    return _least((idle, states.get(ANSWERED, epoch)) for states, (idle, epoch) in zip(old, reached, strict=True))


def exchange_frontiers(old: Sequence[States], after: int) -> list[States]:
    """Set each new upstream worker to the frontier of the whole stream."""
    merged = _least((Idle.BUSY, states.get("merged")) for states in old)
    return [_state({**dict.fromkeys(range(after), merged), "merged": merged})] * after


def input_frontiers(old: Sequence[States], after: int, edges: int) -> list[States]:
    """Set each input of all new workers to the least frontier of the old ones."""
    idle = [states.get("idle", (Idle.BUSY,) * edges) for states in old]
    least = {
        edge: _least((at[edge], states.get(edge)) for at, states in zip(idle, old, strict=True))
        for edge in range(edges)
    }
    merged = _least((min(at), states.get("merged")) for at, states in zip(idle, old, strict=True))
    return [_state({**least, "merged": merged})] * after


def _state(states: States) -> States:
    return {key: state for key, state in states.items() if state is not None}
