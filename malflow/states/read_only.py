"""Dicts, lists and sets that refuse to be changed, and otherwise are what they are."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

__all__ = ["ReadOnlyDict", "read_only"]

_REFUSAL = (
    "rows of a broadcast are read only: all workers share them, and only the stream or table of rows may change them; "
    "make a copy first, such as dict(row) or [*row]"
)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError(_REFUSAL)


class ReadOnlyDict(dict[Any, Any]):
    """A dict that refuses to be changed; pickled and copied as a plain one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())


class ReadOnlyList(list[Any]):
    """A list that refuses to be changed; pickled and copied as a plain one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (), None, iter(self)


class ReadOnlySet(set[Any]):
    """A set that refuses to be changed; pickled and copied as a plain one."""

    __slots__ = ()
    __iand__ = __ior__ = __isub__ = __ixor__ = _refuse
    add = clear = difference_update = discard = intersection_update = pop = remove = _refuse
    symmetric_difference_update = update = _refuse

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return set, (list(self),)


def read_only(value: Any) -> Any:
    """Return a value with dicts, lists and sets that refuse changes, also within tuples and each other.

    >>> row = read_only({"limits": [1, 2]})
    >>> row == {"limits": [1, 2]}
    True
    >>> row["limits"].append(3)
    Traceback (most recent call last):
    TypeError: rows of a broadcast are read only: ...
    """
    kind = type(value)
    if kind is dict:
        return ReadOnlyDict({key: read_only(it) for key, it in value.items()})
    if kind is list:
        return ReadOnlyList(map(read_only, value))
    if kind is set:
        return ReadOnlySet(value)
    return tuple(map(read_only, value)) if kind is tuple else value
