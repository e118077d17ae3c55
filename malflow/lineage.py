"""The lineage of a stream's timestamps: its sources without epochs, and the parts that its keys still distinguish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["Lineage", "Mixture", "keyed_anew", "merged", "read_from", "sent_by", "timed"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """The place where records of different parts merged into a stream that no longer distinguishes them.

    Attributes:
        operator: the operator that merged them.
        location: its line in the user's code; None if unknown.
        sources: the sources of the parts.
        is_merge: whether the operator merges streams; otherwise it sets keys.
        is_of_branches: whether it merges branches of one stream, whose records are then not in their order.
    """

    operator: str
    location: str | None
    sources: frozenset[str]
    is_merge: bool
    is_of_branches: bool = False

    def __str__(self) -> str:
        where = f" [{self.location}]" if self.location else ""
        if self.is_of_branches:
            return f"operator '{self.operator}'{where} merges branches of one stream"
        does = "merges streams" if self.is_merge else "sets keys in place of the parts"
        return f"operator '{self.operator}'{where} {does}"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The sources and parts that give the records of a stream their times.

    Attributes:
        parts: the source whose parts are the keys, or None.
        untimed: the sources whose records have passed no generator of epochs (watermarks).
        mixture: where their parts merged into one stream; None if they did not.
        sender: the last operator whose logic chooses the keys of the messages that it sends, or None.
    """

    parts: str | None = None
    untimed: frozenset[str] = frozenset()
    mixture: Mixture | None = None
    sender: str | None = None


def read_from(source: str, *, keyed: bool) -> Lineage:
    """Return the lineage of a source's records; `keyed` is whether their keys are its parts."""
    return Lineage(source if keyed else None, frozenset({source}))


def timed(lineage: Lineage) -> Lineage:
    """Return the lineage after a generator of epochs."""
    return Lineage(lineage.parts, sender=lineage.sender)


def sent_by(operator: str, lineage: Lineage) -> Lineage:
    """Return the lineage after an operator with logic that sends messages with keys of its choice."""
    return replace(lineage, sender=operator)


def keyed_anew(lineage: Lineage, operator: str, location: str | None) -> Lineage:
    """Return the lineage after an operator that sets keys."""
    mixture = lineage.mixture
    if mixture is None and lineage.parts in lineage.untimed:
        mixture = Mixture(operator, location, lineage.untimed, is_merge=False)
    return Lineage(None, lineage.untimed, mixture)


def merged(lineages: Sequence[Lineage], operator: str, location: str | None) -> Lineage:
    """Return the lineage after an operator that merges streams."""
    untimed = frozenset[str]().union(*(it.untimed for it in lineages))
    parts = {it.parts for it in lineages}
    mixture = next((it.mixture for it in lineages if it.mixture is not None), None)
    if mixture is None and untimed:
        are_branches = len(untimed) == 1 and len(parts) == 1
        mixture = Mixture(operator, location, untimed, is_merge=True, is_of_branches=are_branches)
    sender = next((it.sender for it in lineages if it.sender is not None), None)
    return Lineage(parts.pop() if len(parts) == 1 else None, untimed, mixture, sender)
