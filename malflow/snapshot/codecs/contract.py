"""How states become bytes."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from operator import methodcaller
from typing import Any, Protocol, runtime_checkable

from malflow.errors import GraphError, require_methods
from malflow.snapshot.codecs import pickled_shapes
from malflow.snapshot.codecs.shapes import Shape

__all__ = ["Codec", "PickleCodec", "ShapedCodec", "codec_of", "dumps_dict"]

_NAMES = ("pickle", "msgpack")
_NOT_FOUND = ("Can't pickle", "Can't get local object")


class Codec(Protocol):
    """Writes states as bytes and reads them back, the same in every process.

    Only with one that is a `ShapedCodec`, too, a snapshot knows the classes in its states, and whether they changed.

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


@runtime_checkable
class ShapedCodec(Codec, Protocol):
    """A codec that knows the classes in what it writes, so that states of a changed class are not read wrong."""

    def noting(self, kinds: set[type]) -> Codec:
        """Return a codec that writes the same, and adds the classes of what it writes to `kinds`."""

    def shape_of(self, kind: type) -> Shape | None:
        """Return the form of a class; None where nothing is to be known of it."""

    def change_of(self, shape: Shape, since: str) -> str | None:
        """Say how a class differs from what it was; None where what was written of it is read right.

        Args:
            shape: what it was.
            since: when that was, for the sentence.
        """

    def reader(self, shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
        """Return what reads states with these shapes.

        Args:
            shapes: the classes in them.
            migrating: whether a record whose class has changed, or is gone, is read as its fields.
        """


class PickleCodec:
    """Python's own: any object whose class can be imported, which is not stored itself, so that code may change.

    Objects that several states share are shared again after loading only where they were written together.
    """

    name = "pickle"
    executes = True
    _kinds: set[type] | None = None

    def dumps(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            Exception: whatever the classes of the value raise.
            pickle.PicklingError: if a class or function in it can't be found by its name.
        """
        try:
            return pickle.dumps(value, protocol=5) if self._kinds is None else _dumps(value, self._kinds)
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

    def noting(self, kinds: set[type]) -> Codec:
        """Return a codec that writes the same, and adds the classes of what it writes to `kinds`."""
        if type(self).dumps is not PickleCodec.dumps:
            return self  # it writes in a way of its own
        codec = PickleCodec()
        codec._kinds = kinds
        return codec

    def shape_of(self, kind: type) -> Shape | None:
        """Return the form of a class; None where nothing is to be known of it."""
        return pickled_shapes.shape_of(kind)

    def change_of(self, shape: Shape, since: str) -> str | None:
        """Say how a class differs from what it was; None where what was written of it is read right."""
        return pickled_shapes.change_of(shape, since)

    def reader(self, shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
        """Return what reads states with these shapes; it executes whatever the bytes say."""
        if type(self).loads is not PickleCodec.loads:
            return self.loads
        return pickled_shapes.reader(shapes, migrating=migrating)

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
        from malflow.snapshot.codecs.msgpack_codec import MsgpackCodec  # noqa: PLC0415 - it needs an extra

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


_reduce = methodcaller("__reduce_ex__", 5)


class _Reducers(dict[type, Callable[[Any], Any]]):
    """How objects are taken apart, by their class: as pickle does it. A class is noted when it comes up first.

    What pickle knows by itself (None, numbers, text, lists, dicts, functions, ...) never comes here.
    """

    def __init__(self, kinds: set[type]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        reduce = copyreg.dispatch_table.get(kind)
        if reduce is None and issubclass(kind, type):
            raise KeyError(kind)  # a class is pickled by its name
        self._kinds.add(kind)
        self[kind] = reduce or _reduce
        return self[kind]


def _dumps(value: Any, kinds: set[type]) -> bytes:
    parts = _Parts()
    pickler = pickle.Pickler(parts, protocol=5)
    pickler.dispatch_table = _Reducers(kinds)
    pickler.dump(value)
    return b"".join(parts)


class _Parts(list[bytes]):
    """A file in memory, whose parts are not copied before the end."""

    write = list.append
