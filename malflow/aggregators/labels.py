"""Names of functions in the definition of an aggregator."""

from __future__ import annotations

from functools import partial
from typing import Any

__all__ = ["call", "label"]


def label(thing: Any) -> str:
    """Return a text for a function or another argument that is the same in every run of a program.

    >>> label(len), label(lambda value: 1), label("amount"), label(partial(round, 1))
    ('len', '<lambda>', "'amount'", 'partial(round, 1)')
    """
    if isinstance(thing, partial):
        options = [f"{name}={label(it)}" for name, it in thing.keywords.items()]
        return f"partial({', '.join([label(thing.func), *map(label, thing.args), *options])})"
    name = getattr(thing, "__qualname__", None)
    if isinstance(name, str):
        return name.rpartition("<locals>.")[2]
    text = repr(thing)
    return type(thing).__qualname__ if " at 0x" in text else text


def call(function: str, *arguments: Any, **options: Any) -> str:
    """Return the text of a call without arguments that are None.

    >>> call("agg.sum", "amount"), call("agg.count", None), call("agg.variance", len, ddof=0)
    ("agg.sum('amount')", 'agg.count()', 'agg.variance(len, ddof=0)')
    """
    given = [label(it) for it in arguments if it is not None]
    named = [f"{name}={label(it)}" for name, it in options.items() if it is not None]
    return f"{function}({', '.join(given + named)})"
