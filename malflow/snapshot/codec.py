"""How states become bytes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Protocol

from malflow.errors import GraphError, require_methods

__all__ = ["Codec", "PickleCodec", "codec_of", "dumps_dict"]

_NAMES = ("pickle", "msgpack")
_NOT_FOUND = ("Can't pickle", "Can't get local object")


class Codec(Protocol):
    """Writes states as bytes and reads them back, the same in every process.

    Attributes:
        name: noted in each file; it is read by a codec of the same name only.
        executes: whether reading bytes may execute what they say, so that they must come from a trusted hand.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - above

    @property
    def executes(self) -> bool: ...  # noqa: D102 - above

    def dumps(self, value: Any) -> bytes:
        """Write a value; any exception says that it can't be written."""

    def loads(self, data: bytes) -> Any:
        """Read a value; any exception says that it can't be read."""


class PickleCodec:
    """Python's own: any object whose class can be imported, which is not stored itself, so that code may change.

    Objects that several states share are shared again after loading only where they were written together.
    """

    name = "pickle"
    executes = True

    def dumps(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            Exception: whatever the classes of the value raise.
            pickle.PicklingError: if a class or function in it can't be found by its name.
        """
        try:
            return pickle.dumps(value, protocol=5)
        except (pickle.PicklingError, AttributeError) as error:
            if not str(error).startswith(_NOT_FOUND):
                raise
            raise pickle.PicklingError(
                f"{error}; states are pickled by reference: define their classes and functions at the top level of a "
                "module"
            ) from error

    def loads(self, data: bytes) -> Any:
        """Read a value that `dumps` wrote; it executes whatever the bytes say."""
        return pickle.loads(data)  # noqa: S301 - the store is private or what it holds is signed, unless allowed

    def __repr__(self) -> str:
        return "PickleCodec()"


def codec_of(codec: str | Codec) -> Codec:
    """Find a codec by name, or check one.

    Raises:
        GraphError: if it is none.
        MissingDependency: if its library is not installed.

    >>> codec_of("pickle")
    PickleCodec()
    """
    if codec == "pickle":
        return PickleCodec()
    if codec == "msgpack":
        from malflow.snapshot.msgpack_codec import MsgpackCodec  # noqa: PLC0415 - it needs an extra

        return MsgpackCodec()
    if isinstance(codec, str):
        near = get_close_matches(codec, _NAMES, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise GraphError(f"codec is 'pickle', 'msgpack' or an object with dumps and loads; got {codec!r}{hint}")
    require_methods(codec, "codec", ("dumps", "loads"))
    facts = getattr(codec, "name", None), getattr(codec, "executes", None)
    if not isinstance(facts[0], str) or not facts[0] or not isinstance(facts[1], bool):
        raise GraphError(f"codec needs a name (str) and executes (bool); got {facts[0]!r} and {facts[1]!r}")
    return codec


def dumps_dict(codec: Codec, items: Iterable[tuple[Any, Any]]) -> bytes:
    """Write what `loads` makes a dict of these items of."""
    return codec.dumps(_Items(items) if isinstance(codec, PickleCodec) else dict(items))


class _Items:
    """Items that are pickled as a dict of them: making one first would take longer than to pickle it."""

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self._items = items

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self._items)
