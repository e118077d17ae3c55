"""Reasons why a program can't continue from a snapshot: a start raises the first one, a plan collects all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from malflow.errors import MalflowError

__all__ = ["Refuse", "raised", "refusing"]

Refuse: TypeAlias = Callable[[str, MalflowError], object]
"""A function to call with the name of a state that can't be loaded and the error."""


def raised(_name: str, error: MalflowError) -> None:
    """Raise the error, as a start does.

    Raises:
        MalflowError: always.
    """
    raise error


@contextmanager
def refusing(refuse: Refuse, name: str) -> Iterator[None]:
    """Pass an error in the context to `refuse` instead of raising it."""
    try:
        yield
    except MalflowError as error:
        refuse(name, error)
