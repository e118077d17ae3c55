"""The settings of the interpreter that functions of the user depend on, and that a script sets outside of them.

A script sets the precision of Decimals, say, before it starts a run. Its functions are called in another thread or
process all the same, where they must find what they find in the script.
"""

from __future__ import annotations

import decimal
import importlib
import locale
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Surroundings", "thread_with_context"]


def thread_with_context(target: Callable[[], None], name: str) -> threading.Thread:
    """Return a daemon thread with a copy of the context variables and of the decimal context of this thread."""
    context = copy_context()

    def run() -> None:
        decimal.setcontext(decimal.getcontext().copy())
        target()

    return threading.Thread(target=context.run, args=(run,), name=name, daemon=True)


def _copied(context: decimal.Context) -> decimal.Context:
    copied = context.copy()
    copied.clear_flags()
    return copied


def _numpy() -> Mapping[str, Any]:
    numpy = sys.modules.get("numpy")
    found: Mapping[str, Any] = {} if numpy is None else numpy.geterr()
    return {} if found == _USUAL else found


_USUAL = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""How numpy handles errors by default."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings of an interpreter and of a thread in it.

    Attributes:
        decimals: the decimal context.
        usual_decimals: the one of new threads.
        depth: the limit of recursion.
        digits: the most digits of an integer that is written as text.
        place: the locale.
        numpy: how numpy handles errors; empty if it does so as ever.
    """

    decimals: decimal.Context = field(default_factory=lambda: _copied(decimal.getcontext()))
    usual_decimals: decimal.Context = field(default_factory=lambda: _copied(decimal.DefaultContext))
    depth: int = field(default_factory=sys.getrecursionlimit)
    digits: int = field(default_factory=sys.get_int_max_str_digits)
    place: str = field(default_factory=lambda: locale.setlocale(locale.LC_ALL, None))
    numpy: Mapping[str, Any] = field(default_factory=_numpy)

    def install(self) -> None:
        """Set them for good, in a process that is the run's own."""
        usual = decimal.DefaultContext
        for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
            setattr(usual, name, getattr(self.usual_decimals, name))
        usual.traps.update(self.usual_decimals.traps)
        time.tzset()  # the environment has come with the process
        self._set()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set those that a thread or process of others can have for a while, and restore them at the end."""
        before = Surroundings()
        self._set()
        try:
            yield
        finally:
            before._set()

    def _set(self) -> None:
        decimal.setcontext(self.decimals.copy())
        with suppress(RecursionError):  # this thread is deeper than that by now
            sys.setrecursionlimit(self.depth)
        sys.set_int_max_str_digits(self.digits)
        if self.place != locale.setlocale(locale.LC_ALL, None):
            with suppress(locale.Error):  # another machine may lack it
                locale.setlocale(locale.LC_ALL, self.place)
        if self.numpy:
            with suppress(ImportError):
                importlib.import_module("numpy").seterr(**self.numpy)
