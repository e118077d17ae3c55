"""The classes of the script that starts a run: keys, states and values, as its author defines them in the script.

They are in ``__main__`` of the process that builds a dataflow, and nowhere else: other processes have them only if
malflow sends them. So `of_script` finds them, and never makes them.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["define", "new", "of_script"]

_SCRIPT = '''
import dataclasses, enum, typing


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Place:
    """A key with fields, one of which is of another class of the script."""

    number: int
    color: Color


class Tag:
    """A key that says itself what it is."""

    def __init__(self, number):
        self.number = number

    def __stable_key__(self):
        return self.number

    def __eq__(self, other):
        return isinstance(other, Tag) and other.number == self.number

    def __hash__(self):
        return hash(self.number)


@dataclasses.dataclass(order=True)
class Item:
    """A part of a state that is emitted as well."""

    weight: int
    color: Color = Color.RED


@dataclasses.dataclass
class Cart:
    """A state that holds objects."""

    items: list = dataclasses.field(default_factory=list)

    def add(self, weight):
        self.items.append(Item(weight, list(Color)[weight % 3]))
        return self


class Meter:
    """A state with slots."""

    __slots__ = ("total", "colors")

    def __init__(self):
        self.total, self.colors = 0, set()

    def __eq__(self, other):
        return isinstance(other, Meter) and (other.total, other.colors) == (self.total, self.colors)

    __hash__ = None
'''


def define() -> None:
    """Define the classes in the running script, unless they are there."""
    script = vars(sys.modules["__main__"])
    if "Meter" not in script:
        exec(_SCRIPT, script)  # noqa: S102 - as if the script had defined them


def of_script(name: str) -> Any:
    """Return a class of the script."""
    return getattr(sys.modules["__main__"], name)


def new(name: str) -> Any:
    """Return a new object of a class of the script."""
    return of_script(name)()
