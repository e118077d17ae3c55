"""The common part of the suites for connectors: laws by name, and errors that name the broken one."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NoReturn

from malflow.errors import GraphError
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.testing.likeness import likeness
from malflow.words import did_you_mean, error_line, short_repr

__all__ = ["Laws", "in_a_thread"]


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
