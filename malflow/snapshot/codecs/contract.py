"""The contract of codecs, and the pickle codec."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any, Protocol, runtime_checkable

from malflow.errors import GraphError, check_methods
from malflow.snapshot.codecs import old_records as pickled_shapes
from malflow.snapshot.codecs.shapes import Shape
from malflow.words import did_you_mean

__all__ = ["Codec", "PickleCodec", "ShapedCodec", "codec_of", "dumps_dict"]

_NAMES = ("pickle", "msgpack")
_NOT_FOUND = ("Can't pickle", "Can't get local object")


class Codec(Protocol):
    """Serialises states, in the same way in every process.

    Only with a `ShapedCodec` do snapshots record the classes in their states and detect changes to them.

    Attributes:
        name: recorded in each file; only a codec of the same name reads it.
        executes: whether loading can execute code; the bytes must then come from a trusted source.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - above

    @property
    def executes(self) -> bool: ...  # noqa: D102 - above

    def dumps(self, value: Any) -> bytes:
        """Serialise a value; any exception means that it can't be serialised."""

    def loads(self, data: bytes) -> Any:
        """Deserialise a value; any exception means that it can't be."""


@runtime_checkable
class ShapedCodec(Codec, Protocol):
    """A codec that records the shapes of classes. States of a changed class are thus not misread."""

    def noting(self, kinds: set[type]) -> Codec:
        """Return a codec with the same output that adds the classes it serialises to `kinds`."""

    def shape_of(self, kind: type) -> Shape | None:
        """Return the shape of a class; None if it needs no check."""

    def change_of(self, shape: Shape, since: str) -> str | None:
        """Describe how a class has changed; None if its old states are still read correctly.

        Args:
            shape: its former shape.
            since: when it had that shape, for the message.
        """

    def reader(self, shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
        """Return a function that deserialises states with these shapes.

        Args:
            shapes: the shapes of the classes in them.
            migrating: whether a record of a changed or missing class is read as its fields.
        """


class PickleCodec:
    """Python's pickle: any object of an importable class. Code is not stored, so it may change.

    Objects shared by several states are shared again after loading only if they were serialised together.
    """

    name = "pickle"
    executes = True
    _kinds: set[type] | None = None

    def dumps(self, value: Any) -> bytes:
        """Serialise a value.

        Raises:
            Exception: any exception raised by the value's classes.
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
        """Deserialise the output of `dumps`; this can execute code."""
        return pickle.loads(data)  # noqa: S301 - the store is private or what it holds is signed, unless allowed

    def noting(self, kinds: set[type]) -> Codec:
        """Return a codec with the same output that adds the classes it serialises to `kinds`."""
        if type(self).dumps is not PickleCodec.dumps:
            return self  # a subclass with its own format
        codec = PickleCodec()
        codec._kinds = kinds
        return codec

    def shape_of(self, kind: type) -> Shape | None:
        """Return the shape of a class; None if it needs no check."""
        return pickled_shapes.shape_of(kind)

    def change_of(self, shape: Shape, since: str) -> str | None:
        """Describe how a class has changed; None if its old states are still read correctly."""
        return pickled_shapes.change_of(shape, since)

    def reader(self, shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
        """Return a function that deserialises states with these shapes; it can execute code."""
        if type(self).loads is not PickleCodec.loads:
            return self.loads
        return pickled_shapes.reader(shapes, migrating=migrating)

    def __repr__(self) -> str:
        return "PickleCodec()"


def codec_of(codec: str | Codec) -> Codec:
    """Return the codec of that name, or check a given codec.

    Raises:
        GraphError: if it is not a codec.
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
        hint = did_you_mean(codec, _NAMES, else_="")
        raise GraphError(f"codec must be 'pickle', 'msgpack' or an object with dumps and loads; got {codec!r}{hint}")
    check_methods(codec, "codec", ("dumps", "loads"))
    facts = getattr(codec, "name", None), getattr(codec, "executes", None)
    if not isinstance(facts[0], str) or not facts[0] or not isinstance(facts[1], bool):
        raise GraphError(f"codec needs a name (str) and executes (bool); got {facts[0]!r} and {facts[1]!r}")
    return codec


def dumps_dict(codec: Codec, items: Iterable[tuple[Any, Any]]) -> bytes:
    """Serialise items for `loads`, as a dict."""
    return codec.dumps(_Items(items) if isinstance(codec, PickleCodec) else dict(items))


class _Items:
    """Items that are pickled as a dict; building the dict first would take longer than pickling it."""

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self._items = items

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self._items)


_reduce = methodcaller("__reduce_ex__", 5)


class _Reducers(dict[type, Callable[[Any], Any]]):
    """Pickle's reducers by class; records each class at its first lookup.

    Types that pickle handles natively (None, numbers, text, lists, dicts, functions, ...) are never looked up.
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
    """A file in memory that joins its parts only at the end."""

    write = list.append
