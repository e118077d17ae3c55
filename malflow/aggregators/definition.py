"""The definition of a state that consists of accumulators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from malflow.aggregators.contract import Aggregator, label
from malflow.aggregators.slots import Slot, slotted

__all__ = ["definition_of"]

_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")


def definition_of(aggregators: Sequence[Aggregator[Any, Any, Any]]) -> str:
    """Return a text that two programs share if their accumulators are interchangeable.

    The texts of the aggregators determine the slots, unless functions have the same name: two lambdas have two slots,
    one lambda used twice has one. The slots are then listed.

    >>> from malflow import agg
    >>> definition_of([agg.sum(len), agg.mean(len)])
    'agg.sum(len), agg.mean(len)'
    >>> definition_of([agg.sum(lambda text: len(text)), agg.mean(lambda text: len(text))])
    'agg.sum(<lambda>), agg.mean(<lambda>) in slots 0, 1 2'
    """
    text = _ADDRESS.sub("", ", ".join(map(repr, aggregators)))
    layout = _layout(aggregators, lambda slot: slot.identity)
    return text if layout == _layout(aggregators, _name) else f"{text} in slots {layout}"


def _layout(aggregators: Sequence[Aggregator[Any, Any, Any]], identity: Callable[[Slot], object]) -> str:
    """Return the numbers of the slots of each aggregator, where slots with the same identity are merged."""
    numbers: dict[object, int] = {}
    slots = [slotted(it).slots for it in aggregators]
    return ", ".join([" ".join([str(numbers.setdefault(identity(it), len(numbers))) for it in own]) for own in slots])


def _name(slot: Slot) -> object:
    """Return the description of a slot in the text of an aggregator."""
    return slot.skips, *[_text(it) for it in (slot.create, slot.add, slot.merge, slot.column)]


def _text(thing: Any) -> str:
    owner = repr(thing.__self__) if isinstance(thing, MethodType) else ""
    return _ADDRESS.sub("", f"{owner} {label(thing)}")
