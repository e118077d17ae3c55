"""Names of operators: state hangs on them, so they are taken from the text before any rule changes the plan.

A name is the catalogue's, then the target, view or query, then aliases and common tables down to the operator, then its
kind: `shop.hot.MaxBids.window`. A number is added only among siblings of one kind without a name of their own.
"""

from __future__ import annotations

__all__ = ["Names"]


class Names:
    """The names below a path; each is given once.

    Args:
        path: the names from the catalogue down to here.
        taken: how often each name was given.
    """

    def __init__(self, path: tuple[str, ...], taken: dict[str, int] | None = None) -> None:
        self.path = path
        self._taken = {} if taken is None else taken

    def below(self, name: str) -> Names:
        """Return the names below one of these."""
        return Names((*self.path, name), self._taken)

    def give(self, kind: str) -> str:
        """Return a name for an operator of a kind."""
        name = ".".join((*self.path, kind)).replace("/", "_")
        number = self._taken[name] = self._taken.get(name, 0) + 1
        return name if number == 1 else f"{name}{number}"

    def own(self, kind: str) -> str:
        """Return the path itself as a name; with a kind if it is taken, as by the source of a table that is read."""
        name = ".".join(self.path).replace("/", "_")
        if name in self._taken:
            return self.give(kind)
        self._taken[name] = 1
        return name
