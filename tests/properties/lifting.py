"""What depends on when sources end: then their generators of epochs follow those that their streams meet.

The interpreter has no ticks, and knows nothing of that. So what depends on the number of epochs, or on what comes
before the end, is not specified for streams of such generators, nor behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.properties.building import needs_epochs
from tests.properties.specs import Step

__all__ = ["counts_epochs", "lifted"]


def counts_epochs(step: Step) -> bool:
    """Whether what a step sends depends on which epochs come, not only on the order of epochs and records."""
    by_epoch = ("alarm", "clock", "decay", "final", "flush", "roll", "tumble")
    return (
        step.kind in ("early_window", "expiring_table", "ttl_map")
        or (step.kind in ("stateful_op", "connect") and step.arg in by_epoch)
        or (step.kind == "stateless_op" and step.arg in ("announce", "hold"))
    )


def lifted(steps: Sequence[Step], which: Callable[[Step], bool]) -> frozenset[str]:
    """Return the steps of a kind whose generators meet others, of other sources, and all steps behind these."""
    carried, several = _generators(steps)
    found: set[str] = set()
    after: list[bool] = []
    for step in steps:
        own = frozenset({step.name}).union(*(carried[index] for index in step.inputs))
        is_lifted = which(step) and not own.isdisjoint(several)
        is_lifted = is_lifted or any(after[index] for index in step.inputs)
        after += [is_lifted] * step.outputs
        found |= {step.name} if is_lifted else set()
    return frozenset(found)


def _generators(steps: Sequence[Step]) -> tuple[list[frozenset[str]], frozenset[str]]:
    """Return the generators of each stream; and all that meet others, of other sources, also by way of third ones."""
    sources: list[frozenset[str]] = []
    carried: list[frozenset[str]] = []
    groups: list[tuple[frozenset[str], frozenset[frozenset[str]]]] = []
    for step in steps:
        upstream = frozenset[str]().union(*(sources[index] for index in step.inputs)) or frozenset({step.name})
        generators = frozenset[str]().union(*(carried[index] for index in step.inputs))
        if step.kind in ("assign_timestamps", "event_time"):  # epochs of the old time end here
            generators = frozenset()
        if step.kind in ("generate_epochs", "event_time") or (needs_epochs(step) and not generators):
            generators |= {step.name}
        met = [group for group in groups if group[0] & generators]
        groups = [group for group in groups if group not in met]
        groups.append((generators.union(*(it for it, _ in met)), frozenset({upstream}).union(*(it for _, it in met))))
        sources += [upstream] * step.outputs
        carried += [generators] * step.outputs
    return carried, frozenset[str]().union(*(generators for generators, found in groups if len(found) > 1))
