"""Patterns as text, and their shapes: the text without numbers and durations."""

from __future__ import annotations

import re
from typing import Any, assert_never

from malflow.patterns.tree import (
    Absence,
    Chain,
    Either,
    Gap,
    Repeated,
    Silenced,
    Single,
    Step,
    Together,
    Tree,
)

__all__ = ["printed", "shape"]

_PLAIN = re.compile(r"[^\W\d][\w-]*(?<!-)")
_WORDS = frozenset({"for", "not", "within"})
_ARROWS = {"then": "->", "next": "=>", "then_any": "~>"}


def printed(tree: Tree, span: Any = None, lead: Absence | None = None) -> str:
    """Return a pattern as text.

    Args:
        tree: the tree.
        span: the greatest distance of the first and the last event; None for no limit.
        lead: the absence before the first event, or None.
    """
    front = "" if lead is None else f"{_Text(durations=True).absence(lead)} -> "
    text = _Text(durations=True).tree(tree)
    if lead is not None and isinstance(tree, Either):
        text = f"({text})"
    return f"{front}{text}" + ("" if span is None else f" within {span}")


def shape(tree: Tree, lead: Absence | None = None) -> str:
    """Return the part of a pattern that determines its states: the names of its steps, and their connectors."""
    front = "" if lead is None else f"{_Text(durations=False).absence(lead)} -> "
    text = _Text(durations=False).tree(tree)
    return front + (f"({text})" if lead is not None and isinstance(tree, Either) else text)


class _Text:
    """Writes trees as text; `durations` is whether to include numbers and durations."""

    def __init__(self, *, durations: bool) -> None:
        self._durations = durations

    def tree(self, tree: Tree) -> str:
        match tree:
            case Single(step=step):
                return _name(step)
            case Chain(items=items, gaps=gaps):
                first = self.tree(items[0]) if isinstance(items[0], Silenced) else self._inner(items[0])
                others = map(self._inner, items[1:])
                return first + "".join(f" {self._arrow(gap)} {it}" for gap, it in zip(gaps, others, strict=True))
            case Either(items=items):
                return " | ".join(self._inner(item) for item in items)
            case Together(steps=steps):
                return " & ".join(map(_name, steps))
            case Repeated(item=item):
                return f"{self._inner(item)}{self._count(tree)}"
            case Silenced(item=item, absence=absence):
                before = self.tree(item) if isinstance(item, Chain) else self._inner(item)
                return f"{before} -> {self.absence(absence)}"
            case _:
                assert_never(tree)

    def _inner(self, tree: Tree) -> str:
        text = self.tree(tree)
        return text if isinstance(tree, (Single, Repeated)) else f"({text})"

    def absence(self, absence: Absence) -> str:
        timed = self._durations and absence.during is not None
        return f"not {_name(absence.step)}" + (f" for {absence.during}" if timed else "")

    def _arrow(self, gap: Gap) -> str:
        return f"{_ARROWS[gap.by]}{self._terms(gap)}"

    def _terms(self, gap: Gap, arrow: str = "") -> str:
        terms = [arrow] if arrow else []
        if gap.without is not None:
            terms.append(f"!{_name(gap.without)}")
        if gap.within is not None and self._durations:
            terms.append(f"within {gap.within}")
        return f"[{', '.join(terms)}]" if terms else ""

    def _count(self, tree: Repeated) -> str:
        terms = self._terms(tree.gap, "" if tree.gap.by == "then" else _ARROWS[tree.gap.by])
        low, high = tree.low, tree.high
        if not self._durations:
            return f"{{n}}{terms}"
        if (low, high) == (0, 1):
            return f"?{terms}"
        return f"{{{low}}}{terms}" if low == high else f"{{{low},{'' if high is None else high}}}{terms}"


def _name(step: Step) -> str:
    return step.name if _PLAIN.fullmatch(step.name) and step.name not in _WORDS else repr(step.name)
