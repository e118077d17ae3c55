"""The common part of the suites for connectors: laws by name, and values compared by their contents."""

from __future__ import annotations

import pickle
import threading
from cmath import isnan
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

from malflow.errors import GraphError
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.states.keyed import ATOMIC_TYPES
from malflow.words import did_you_mean, error_line, short_repr

__all__ = [
    "Laws",
    "in_a_thread",
    "likeness",
]


def likeness(thing: Any) -> Hashable:
    """Return a hashable value that is equal for objects with equal contents, even if they define no ``__eq__``.

    Objects are alike if they pickle alike; dataclasses are compared by their comparison fields. Classes are compared
    by name. A class defined inside a function thus stays the same between calls. An object that cannot be inspected is
    like any other of its class.

    >>> likeness([1, {"a": {2}}]) == likeness([1, {"a": {2}}]), likeness([1]) == likeness((1,))
    (True, False)
    >>> likeness(float("nan")) == likeness(float("nan"))
    True
    """
    return _likeness(thing, ())


def _likeness(thing: Any, above: tuple[int, ...]) -> Hashable:
    kind = type(thing)
    if kind in ATOMIC_TYPES:
        return "NaN" if kind in (float, complex) and isnan(thing) else thing
    if isinstance(thing, type | FunctionType | BuiltinFunctionType):
        return ("name", thing.__module__, thing.__qualname__)
    if id(thing) in above:
        return ("again", len(above) - above.index(id(thing)))
    inside = (*above, id(thing))
    if isinstance(thing, list | tuple):
        return (_name(kind), *(_likeness(item, inside) for item in thing))
    if isinstance(thing, AbstractSet):
        return (_name(kind), frozenset(_likeness(item, inside) for item in thing))
    if isinstance(thing, Mapping):
        return (_name(kind), frozenset((_likeness(k, inside), _likeness(v, inside)) for k, v in thing.items()))
    if is_dataclass(thing):
        compared = (getattr(thing, field.name, None) for field in fields(thing) if field.compare)
        return (_name(kind), *(_likeness(value, inside) for value in compared))
    return (_name(kind), _pickled(thing, inside))


def _pickled(thing: Any, inside: tuple[int, ...]) -> Hashable:
    """Decompose an object as pickle does."""
    try:
        reduced = thing.__reduce_ex__(4)
        if isinstance(reduced, str):
            return reduced
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        parts = [arguments, state, list(items or ()), dict(pairs or ())]
    except Exception:  # noqa: BLE001 - classes that cannot be pickled raise any exception
        return "?"
    return (getattr(make, "__qualname__", "?"), *(_likeness(part, inside) for part in parts))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Laws:
    """The laws of a suite; each can be excluded.

    Args:
        suite: the name of the suite.
        known: the names of its laws.
        without: the names of excluded laws.
        secrets: texts that no repr, position or handle may contain.

    Raises:
        GraphError: if a law is unknown.
    """

    def __init__(self, suite: str, known: Sequence[str], without: Collection[str], secrets: Sequence[str]) -> None:
        self._suite = suite
        self._without = without
        self._secrets = secrets
        for law in without:
            if law not in known:
                raise GraphError(f"{suite} has no law {law!r}{did_you_mean(law, known)}")

    def has(self, law: str) -> bool:
        """Whether to check a law."""
        return law not in self._without

    def broken(self, law: str, what: str) -> NoReturn:
        """Raise the error for a broken law."""
        __tracebackhide__ = True
        raise AssertionError(f"{self._suite}: the law {law!r} is broken: {what}")

    @contextmanager
    def of(self, law: str) -> Iterator[None]:
        """Attribute errors of the connector in this context to a law."""
        __tracebackhide__ = True
        try:
            yield
        except AssertionError:
            raise
        except Exception as error:
            text = error_line(error)
            raise AssertionError(f"{self._suite}: the law {law!r} is broken: {text}") from error

    def pickled(self, law: str, thing: Any, what: str) -> Any:
        """Unpickle a copy of an object in another process and return it; check that it holds no secret."""
        loaded, data = self._again(law, thing, what)
        if likeness(loaded) != likeness(thing):
            self.broken(law, f"{what} changes when it is pickled: {short_repr(thing)} became {short_repr(loaded)}")
        self.hide(f"{what}, pickled,", data.decode("latin-1"))
        return loaded

    def copied(self, law: str, thing: Any, what: str) -> Any:
        """Return a copy of an object by pickle, with functions and classes by value, as another process has it."""
        return self._again(law, thing, what, dumps_by_value)[0]

    def _again(
        self, law: str, thing: Any, what: str, dumps: Callable[[Any], bytes] = pickle.dumps
    ) -> tuple[Any, bytes]:
        try:
            data = dumps(thing)
            return pickle.loads(data), data  # noqa: S301 - just written
        except Exception as error:  # noqa: BLE001 - classes of the user may raise any
            self.broken(law, f"{what} can't be pickled: {error_line(error)}")

    def hide(self, what: str, text: str) -> None:
        """Check that a text shows no secret."""
        for secret in self._secrets:
            if secret in text:
                self.broken("secrets", f"{what} shows one of the secrets")

    def alike(self, law: str, what: str, expected: Sequence[Any], got: Sequence[Any]) -> None:
        """Check that two sequences are equal by their contents."""
        here, there = [likeness(it) for it in expected], [likeness(it) for it in got]
        if here == there:
            return
        at = next(
            (at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there))
        )
        self.broken(
            law,
            f"{what}: expected {len(expected)}, got {len(got)}; at number {at + 1}, expected "
            f"{short_repr(expected[at]) if at < len(expected) else 'nothing'}, got "
            f"{short_repr(got[at]) if at < len(got) else 'nothing'}",
        )


def in_a_thread(call: Callable[[], object]) -> Future[object]:
    """Call a function on a thread for which nobody has to wait."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
