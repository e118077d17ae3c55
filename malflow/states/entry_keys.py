"""The keys of a state's entries, by the kind of the state, and the keys of records in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from malflow.errors import GraphError
from malflow.partitioners import check_key
from malflow.states.kinds import Movement, StateKind
from malflow.words import short_repr

__all__ = ["RECORD_KEYS", "WINDOWS", "check_entry_key", "check_record_key"]

WINDOWS: Final = (StateKind.WINDOW, StateKind.ROLLUP, StateKind.SESSION, StateKind.COUNT_WINDOW)
"""The kinds of states of windows."""

RECORD_KEYS: Final[Mapping[Movement, Callable[[Any], Any]]] = MappingProxyType(
    {
        Movement.BY_KEY: lambda key: key,
        Movement.EVERYWHERE: lambda key: key,
        Movement.BY_SLOT: lambda slot: slot[1],
        Movement.BY_ENTRY: lambda slot: slot[1][0],
    }
)
"""Return the key of a record from that of an entry; other states have nothing to do with records."""

_FORMS = {
    Movement.BY_SLOT: "(pane, key)",
    Movement.BY_ENTRY: "(pane, (key, id))",
    Movement.BY_LETTER: "(id, key)",
    Movement.EPOCHS: "(worker, name)",
    Movement.FRONTIER: "(worker, name)",
}
"""The keys of states that are not kept by key or part."""

_OF_WINDOWS = (StateKind.WINDOW, StateKind.ROLLUP)
_OF_JOINS = (
    "; left panes are even, right ones odd, and results are not kept: to_table() of them keeps the last of each key"
)
_PAIR = 2
"""Such keys have two parts: a pane, id or worker, and a key or name."""


def check_entry_key(name: str, kind: StateKind | None, key: Any, instead: str) -> None:
    """Check that a key may be one of a state's keys.

    Args:
        name: the name of the state.
        kind: its kind; None if it is not known.
        key: the key.
        instead: the function that takes the key of a window's records alone.
    """
    form = None if kind is None else _FORMS.get(kind.movement)
    first = str if form == _FORMS[Movement.BY_LETTER] else int
    pair = isinstance(key, tuple) and len(key) == _PAIR and isinstance(key[0], first)
    if form == _FORMS[Movement.BY_ENTRY]:
        pair = pair and isinstance(key[1], tuple) and len(key[1]) == _PAIR
    if kind is not None and form is not None and not pair:
        raise GraphError(
            f"operator '{name}' has states of kind '{kind.word}', whose keys are {form}; got key "
            f"{short_repr(key)}{_hint(kind, instead)}",
            operator=name,
        )
    check_record_key(name, key)


def _hint(kind: StateKind, instead: str) -> str:
    if kind is StateKind.JOIN:
        return _OF_JOINS
    return f"; {instead} takes the key alone" if kind in _OF_WINDOWS else ""


def check_record_key(name: str, key: Any) -> None:
    """Check that a key has a stable hash."""
    try:
        check_key(key)
    except (TypeError, ValueError) as error:
        raise GraphError(f"operator '{name}' can't be read by key: {error}", operator=name) from error
