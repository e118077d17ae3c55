"""Names of operators: state hangs on them, so they are taken from the text before any rule changes the plan.

A name is the catalogue's, then the target, view or query, then aliases and common tables down to the operator, then its
kind: `shop.hot.MaxBids.window`. A number is added only among siblings of one kind without a name of their own. What
belongs to an operator is named after it: `shop.hot.MaxBids.window.input`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from malflow.sql.text import Fault, SqlError

__all__ = ["Names"]


@dataclass
class _Given:
    """The names that were given.

    Attributes:
        counts: how often each was asked for.
        pins: the fault of a second equal one, where a hint pins a name.
        numbered: the names that a number tells from equal ones.
    """

    counts: dict[str, int] = field(default_factory=dict)
    pins: dict[str, Fault] = field(default_factory=dict)
    numbered: set[str] = field(default_factory=set)


class Names:
    """The names below a path; each is given once.

    Args:
        path: the names from the catalogue down to here.
        given: the names that were given.
        pin: the fault of a second equal name below a hint; None where numbers tell them apart.
    """

    def __init__(self, path: tuple[str, ...], given: _Given | None = None, pin: Fault | None = None) -> None:
        self._path = path
        self._given = _Given() if given is None else given
        self._pin = pin

    def __str__(self) -> str:
        return ".".join(self._path).replace("/", "_")

    def below(self, name: str) -> Names:
        """Return the names below one of these."""
        return Names((*self._path, name), self._given, self._pin)

    def copy(self) -> Names:
        """Return the same names, for use by EXPLAIN: it takes none, so it meets no pinned ones."""
        return Names(self._path, _Given({**self._given.counts}, {}, {*self._given.numbered}))

    def pinned(self, name: str, pin: Fault) -> Names:
        """Return the names below a name that a hint gives; two equal ones are a fault."""
        return Names((self._path[0], name), self._given, pin)

    def give(self, kind: str, of: str = "") -> str:
        """Return a name for an operator of a kind, or for what belongs to an operator.

        Raises:
            SqlError: if a hint has given the name before, or gives it now.
        """
        name = f"{of or self}.{kind}".replace("/", "_")
        number = self._given.counts[name] = self._given.counts.get(name, 0) + 1
        before = self._given.pins.get(name)
        if self._pin:
            self._given.pins[name] = self._pin
        if number == 1:
            return name
        if before or self._pin:
            pins = (it for it in (before, self._pin) if it)
            raise SqlError([replace(it, message=f"two operators are called {name!r}; {it.message}") for it in pins])
        self._given.numbered.add(found := self.give(f"{kind}{number}", of))
        return found

    def own(self, kind: str) -> str:
        """Return the path itself as a name; with a kind if it is taken, as by the sink of a table that is read."""
        if str(self) in self._given.counts:
            return self.give(kind)
        self._given.counts[str(self)] = 1
        return str(self)

    def is_numbered(self, name: str) -> bool:
        """Whether a number tells a name from an equal one: without the siblings before it, it would be another."""
        return name in self._given.numbered
