"""Patterns of other engines in malflow's API; None for those that it can't express."""

from __future__ import annotations

import operator
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tests.patterns.specs import Both, Either, Silence, Spec, Step, Then, Times, Tree

__all__ = ["Unsaid", "pattern_of"]

AFTER = {"no_skip": "all", "to_next": "start", "past_last": "end"}
BY = {"next": "next", "followed_by": "then", "followed_by_any": "then_any"}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "startswith": lambda text, start: text.startswith(start),
}


class Unsaid(Exception):
    """The pattern has something that is not offered, which the text names."""


def pattern_of(case: dict[str, Any]) -> tuple[Spec, str]:
    """Return the pattern of a case, and which of its matches are told.

    Raises:
        Unsaid: if it can't be said.
    """
    if "flink" in case["expected"]:
        return _of_flink(case["spec"])
    return _of_siddhi(case["name"])


# -- Flink


def _of_flink(spec: dict[str, Any]) -> tuple[Spec, str]:
    return Spec(_chain(spec["steps"]), spec.get("within")), _after(spec)


def _after(spec: dict[str, Any]) -> str:
    skip, first = spec["skip"], spec["steps"][0]
    if skip["strategy"] in AFTER:
        return AFTER[skip["strategy"]]
    if skip == {"strategy": "to_first", "step": first["name"]} and not first.get("optional"):
        return "start"  # no other record of the match is its first one
    raise Unsaid("skip to a step")


def _chain(steps: list[dict[str, Any]]) -> Tree:
    tree = _item(steps[0])
    absent: Step | None = None
    for step in steps[1:]:
        if step["contiguity"] == "not_next":
            raise Unsaid("absence of the very next record")
        if step["contiguity"] == "not_followed_by":
            absent = _step(step)
            continue
        by = BY[step["contiguity"]]
        tree, absent = Then(tree, _item(step), by, step.get("within"), absent), None
    return tree if absent is None else Silence(tree, absent)


def _item(step: dict[str, Any]) -> Tree:
    item = _chain(step["group"]) if "group" in step else _step(step)
    if "times" in step:
        by = "next" if step.get("consecutive") else "then_any" if step.get("combinations") else "then"
        low, high = step["times"]
        until = _step({"name": "until", "where": step["until"]}) if "until" in step else None
        item = Times(item, low, high, by, None, until)
    return Times(item, 0, 1) if step.get("optional") else item


def _step(step: dict[str, Any]) -> Step:
    plain, later = _conditions(step["where"])
    if "until" in step:
        ends = _holds(step["until"])
        plain.append(lambda value: not ends(value))
    given = (lambda value, so_far: all(it(value, so_far) for it in later)) if later else None
    return Step(step["name"], lambda value: all(it(value) for it in plain), given)


def _conditions(where: Any) -> tuple[list[Callable[[Any], bool]], list[Callable[[Any, Any], bool]]]:
    """Return the conditions on a value, and those that look at the match so far as well."""
    several = where if isinstance(where, list) and isinstance(where[0], list) else [where]
    plain = [_holds(it) for it in several if isinstance(it, dict) or not isinstance(it[2], dict)]
    later = [_holds_so_far(it) for it in several if isinstance(it, list) and isinstance(it[2], dict)]
    return plain, later


def _holds(condition: Any) -> Callable[[Any], bool]:
    if isinstance(condition, dict):
        field, values = condition["in"]
        return lambda value: value[field] in values
    field, compare, operand = condition
    return lambda value: bool(OPERATORS[compare](value[field], operand))


def _holds_so_far(condition: Any) -> Callable[[Any, Any], bool]:
    field, compare, operand = condition

    def holds(value: Any, so_far: Any) -> bool:
        known = [it["v"] for it in so_far[operand["ref"]]] or [operand[it] for it in ("default",) if it in operand]
        if not known:
            return False
        look = max if "agg" in operand else itemgetter(0 if operand["at"] == "first" else -1)
        return bool(OPERATORS[compare](value[field], look(known) + operand.get("plus", 0)))

    return holds


# -- Siddhi


def _letter(name: str, letter: str = "") -> Step:
    return Step(name, lambda value: value["t"] == (letter or name))


_A, _B, _C, _N, _M = map(_letter, "abcnm")
_EITHER = Step("n or m", lambda value: value["t"] in "nm")
_SECOND = _letter("b", "a")

_SIDDHI: dict[str, tuple[Spec, str] | str] = {
    "pattern-absent-middle-for": (Spec(Then(Silence(_A, _N, 10), _B)), "start"),
    "pattern-absent-every": "an absence again and again",
    "pattern-absent-first-new-key": (Spec(_B, None, (_N, 10)), "start"),
    "pattern-absent-or": (Spec(Either(Silence(_A, _N, 10), Then(_A, _B))), "start"),
    "pattern-and": (Spec(Then(_A, Both((_B, _C)))), "start"),
    "pattern-or": (Spec(Then(_A, Either(_B, _C))), "start"),
    "pattern-every-in-the-middle": (Spec(Then(_A, _B, "then_any")), "all"),
    "pattern-every-and": (Spec(Both((_A, _B))), "end"),
    "pattern-every-block-then": "`every` around a part",
    "pattern-and-within": (Spec(Then(Both((_A, _B)), _C), 10), "end"),
    "pattern-absent-repeats": "an absence again and again",
    "pattern-absent-both": (Spec(Silence(_A, _EITHER, 10)), "start"),
    "pattern-absent-either": (Spec(Either(Silence(_A, _N, 10), Silence(_A, _M, 10))), "start"),
    "pattern-counts-both": (Spec(Then(Times(_A, 2, 2), Times(_SECOND, 2, 2)), 30), "end"),
    "pattern-sequence-star-last": (Spec(Then(_A, Times(_B, 0, None, "next"), "next")), "start"),
}
"""By the case: the pattern and which of its matches are told, or what is not offered."""


def _of_siddhi(name: str) -> tuple[Spec, str]:
    said = _SIDDHI[name]
    if isinstance(said, str):
        raise Unsaid(said)
    return said
