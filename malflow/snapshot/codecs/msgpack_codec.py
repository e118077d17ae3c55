"""A codec for data only: loading never executes code."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from malflow.errors import GraphError, MissingDependency
from malflow.names import RESERVED, written_name
from malflow.operators.ttl import ExpireMap
from malflow.snapshot.codecs.classes import declared_class
from malflow.snapshot.codecs.contract import Codec
from malflow.snapshot.codecs.msgpack_types import (
    FORMS,
    RECORD,
    Form,
    Misfit,
    change_of_record,
    members,
    old_record,
    record_form,
)
from malflow.snapshot.codecs.shapes import Shape, form_of
from malflow.words import cut, error_line, short_repr

__all__ = ["MsgpackCodec"]

_DEEPEST = 400
"""Levels of a value. msgpack stops at 1,024, or at Python's recursion limit. More comes near it; less refuses more."""

_MOST_NESTED = 100
"""Extension types within each other: each takes several frames of Python's stack. Less refuses more values."""

_SMALL = 4096
"""Bytes up to which lengths are not checked: they can claim little memory. More: a greater risk; less: slower loads."""

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_BYTEARRAY: Final = next(form for form in FORMS if form.kind is bytearray)
_LONGEST_PATH = 200
"""Characters of the path to a faulty value. More: longer messages; less: the fault is harder to find."""

_SHOWN = 40
"""Characters of a key in a path. More: longer messages; fewer: similar keys look the same."""

_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


class MsgpackCodec:
    """Serialises plain data; loading untrusted bytes executes no code.

    It supports None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, deque,
    Counter, OrderedDict, defaultdict (of a builtin type), datetime, date, time, timedelta, Decimal, Fraction and UUID,
    the classes that malflow itself puts into states, and registered dataclasses, named tuples and enums. A value is
    restored with exactly its type; values of any other type, including subclasses, are rejected.

    An object referenced several times is written, and restored, several times. Records are restored without calling
    ``__init__`` or ``__post_init__``, as with pickle.

    Args:
        types: classes by names that must stay the same when a class is renamed or moved. Fields are stored by name:
            an added field takes its default, a removed one is an error. A class with several names is written under
            the first.

    Raises:
        GraphError: if a class can't be registered.
        MissingDependency: if msgpack is not installed.
    """

    name = "msgpack"
    executes = False

    def __init__(self, types: Mapping[str, type] = MappingProxyType({})) -> None:
        try:
            self._msgpack = import_module("msgpack")
        except ImportError as missing:
            raise MissingDependency("MsgpackCodec needs msgpack; pip install 'malflow[msgpack]'") from missing
        for name in types:
            if isinstance(name, str) and name.startswith(RESERVED):
                raise GraphError(
                    f"a type of MsgpackCodec can't be registered as '{name}': '{RESERVED}' is malflow's own"
                )
        self._types = dict(types)
        records = {name: record_form(name, kind) for name, kind in types.items()}
        self._forms = _Forms((*reversed(records.values()), *FORMS))
        self._names = {kind: name for name, kind in reversed(self._types.items())}
        self._kinds: set[type] = set()
        self._records = {name: form.read for name, form in records.items()}
        self._readers: dict[int, tuple[type, Callable[[Any], Any]]] = {
            form.code: (form.plain, form.read) for form in (*FORMS, Form(RECORD, object, list, list, self._record))
        }
        msgpack = self._msgpack
        self._hidden = frozenset({memoryview, msgpack.ExtType, msgpack.Timestamp})

    def dumps(self, value: Any) -> bytes:
        """Serialise a value.

        Raises:
            TypeError: if a part of it can't be serialised, with the path to that part.
        """
        try:
            return _Writing(self._msgpack, self._forms, self._hidden, self._kinds).pack(value)
        except Exception as error:
            if isinstance(error, _TooDeep | RecursionError):
                raise TypeError(f"the value: {_TooDeep()}") from error
            path, cause = self._blame(value, error)
            raise TypeError(f"{path}: {cause}") from cause

    def loads(self, data: bytes) -> Any:
        """Deserialise the output of `dumps`.

        Raises:
            TypeError: if it has a record of an unregistered or changed class.
            ValueError: if it is not the output of `dumps`.
        """
        return self._loads(data, self._readers)

    def noting(self, kinds: set[type]) -> Codec:
        """Return a codec with the same output that adds the classes it serialises to `kinds`."""
        if type(self).dumps is not MsgpackCodec.dumps:
            return self  # a subclass with its own format
        codec = MsgpackCodec.__new__(type(self))
        vars(codec).update(vars(self), _kinds=kinds)
        return codec

    def shape_of(self, kind: type) -> Shape | None:
        """Return the shape of a registered class; None for others."""
        form = form_of(kind) if kind in self._names else None
        return None if form is None else Shape(self._names[kind], *form)

    def change_of(self, shape: Shape, since: str) -> str | None:
        """Describe how a class has changed; None if its old states are still read correctly."""
        return change_of_record(shape, self._types.get(shape.name), since)

    def reader(self, shapes: Sequence[Shape], *, migrating: bool) -> Callable[[bytes], Any]:
        """Return a function that deserialises states with these shapes."""
        if not migrating or type(self).loads is not MsgpackCodec.loads:
            return self.loads
        known = {shape.name: shape for shape in shapes}

        def read(facts: list[Any]) -> Any:
            try:
                return self._record(facts)
            except (Misfit, *_DAMAGED):
                return old_record(facts[0], facts[1:], known)

        return partial(self._loads, readers={**self._readers, RECORD: (list, read)})

    def _loads(self, data: bytes, readers: Mapping[int, tuple[type, Callable[[Any], Any]]]) -> Any:
        try:
            return _Reading(self._msgpack, readers).unpack(data)
        except Misfit:
            raise
        except _DAMAGED as error:
            raise ValueError(f"it was not written by MsgpackCodec: {error_line(error)}") from error

    def _record(self, facts: list[Any]) -> Any:
        name, *content = facts
        if isinstance(name, str) and name not in self._records and (kind := declared_class(name)) is not None:
            self._records[name] = record_form(name, kind).read
        if not isinstance(name, str) or name not in self._records:
            raise Misfit(f"there is a record of type {name!r}; register its class: MsgpackCodec({{{name!r}: ...}})")
        return self._records[name](content)

    def _blame(self, value: Any, error: Exception) -> tuple[str, Exception]:
        """Return the path to the innermost value that can't be serialised, and its error."""
        path = ""
        while len(path) < _LONGEST_PATH:
            for step, child in self._parts(value):
                try:
                    _Writing(self._msgpack, self._forms, self._hidden, set()).pack(child)
                except Exception as inner:  # noqa: BLE001 - properties of the user may raise any
                    path, value, error = path + step, child, inner
                    break
            else:
                return path or "the value", error
        return f"{path[:_LONGEST_PATH]}...", error

    def _parts(self, value: Any) -> Iterator[tuple[str, Any]]:
        kind = type(value)
        if kind in (dict, defaultdict, OrderedDict, Counter):
            yield from ((" key", key) for key in value)
            yield from ((f"[{cut(short_repr(key), _SHOWN)}]", part) for key, part in value.items())
        elif kind in (list, tuple, deque):
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
        elif kind in (set, frozenset):
            yield from ((" element", part) for part in value)
        elif kind in self._forms and self._forms[kind].code == RECORD:
            yield from ((f".{name}", part) for name, part in members(self._forms[kind], value).items())
        elif kind is ExpireMap:
            yield from self._parts(value.__getstate__())

    def __repr__(self) -> str:
        return f"MsgpackCodec({', '.join(self._types)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return MsgpackCodec, (self._types,)


class _Forms(dict[type, Form]):
    """The forms by type; the forms of malflow's own classes are added when one is first written."""

    def __init__(self, forms: Iterable[Form]) -> None:
        super().__init__((form.kind, form) for form in forms if written_name(form.kind) is None)

    def of(self, kind: type) -> Form | None:
        """Return the form of a type; None if it can't be written."""
        name = None if kind in self else written_name(kind)
        if name is not None and declared_class(name) is kind:
            self[kind] = record_form(name, kind)
        return self.get(kind)


class _TooDeep(ValueError):
    def __init__(self) -> None:
        super().__init__("it is nested too deeply, or contains itself")


class _Writing:
    """Serialises one value; extension values are packed separately and embedded in the data around them."""

    def __init__(self, msgpack: Any, forms: _Forms, hidden: frozenset[type], noted: set[type]) -> None:
        self._noted = noted
        self._msgpack = msgpack
        self._forms = forms
        self._hidden = hidden
        self._packers: list[Any] = []
        self._flat = self._packer(None).pack
        self._extension_of = msgpack.ExtType._make
        self._nested = 0
        self._depth = 0

    def pack(self, value: Any) -> bytes:
        """Pack a value; plain data is left to msgpack."""
        kinds, depth = _survey(value, _DEEPEST - self._depth)
        self._noted |= kinds
        refused = kinds & self._hidden  # msgpack would misinterpret them
        if refused:
            raise TypeError(f"{refused.pop().__name__} can't be written")
        if bytearray in kinds:
            value = self._without_bytearrays(value)
        if self._nested > _MOST_NESTED:
            raise _TooDeep
        if self._nested == len(self._packers):
            self._packers.append(self._packer(self._extension))
        packer = self._packers[self._nested]
        self._nested += 1
        self._depth += depth
        packed: bytes = packer.pack(value)
        self._nested -= 1
        self._depth -= depth
        return packed

    def _packer(self, default: Callable[[Any], Any] | None) -> Any:
        return self._msgpack.Packer(default=default, strict_types=True, unicode_errors="surrogatepass")

    def _extension(self, value: Any) -> Any:
        form = self._forms.of(type(value))
        if form is None:
            raise TypeError(_why_refused(value))
        plain = form.write(value)
        if type(plain) in _PLAIN or (type(plain) is list and _PLAIN.issuperset(map(type, plain))):
            try:
                return self._extension_of((form.code, self._flat(plain)))
            except OverflowError:
                pass  # a long integer in it is an extension itself
        return self._extension_of((form.code, self.pack(plain)))

    def _without_bytearrays(self, value: Any) -> Any:
        """Wrap the bytearrays in lists and dicts. msgpack would write them as bytes."""
        kind = type(value)
        if kind is bytearray:
            return self._msgpack.ExtType(_BYTEARRAY.code, self.pack(bytes(value)))
        if kind is list:
            return [self._without_bytearrays(part) for part in value]
        return {key: self._without_bytearrays(part) for key, part in value.items()} if kind is dict else value


class _Reading:
    """Deserialises one value."""

    def __init__(self, msgpack: Any, readers: Mapping[int, tuple[type, Callable[[Any], Any]]]) -> None:
        self._msgpack = msgpack
        self._readers = readers
        self._nested = 0

    def unpack(self, data: bytes) -> Any:
        """Unpack a value; no declared length may exceed the data."""
        if len(data) > _SMALL:
            self._check_lengths(data)
        return self._msgpack.unpackb(data, ext_hook=self._value, strict_map_key=False, unicode_errors="surrogatepass")

    def _value(self, code: int, data: bytes) -> Any:
        if code not in self._readers:
            raise ValueError(f"type {code} is unknown; a newer malflow may have written it")
        if self._nested > _MOST_NESTED:
            raise _TooDeep
        plain, read = self._readers[code]
        self._nested += 1
        facts = self.unpack(data)
        self._nested -= 1
        if type(facts) is not plain:
            raise ValueError(f"type {code} must be encoded as {plain.__name__}; got {type(facts).__name__}")
        return read(facts)

    def _check_lengths(self, data: bytes) -> None:
        """Skip over the data without allocating, to find declared lengths that exceed it."""
        unpacker = self._msgpack.Unpacker(max_buffer_size=len(data))
        unpacker.feed(data)
        try:
            unpacker.skip()
        except self._msgpack.OutOfData:
            raise ValueError("it is truncated") from None


def _survey(value: Any, deepest: int) -> tuple[set[type], int]:
    """Return the types in nested lists and dicts, and the number of levels."""
    level: list[Any] = [value]
    found: set[type] = set()
    depth = 0
    while True:
        kinds = set(map(type, level))
        found |= kinds
        if kinds.isdisjoint((list, dict)):
            return found, depth
        depth += 1
        if depth > deepest:
            raise _TooDeep
        lists, dicts = _those_of(level, kinds, list), _those_of(level, kinds, dict)
        found.update(map(type, chain.from_iterable(dicts)))
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]


def _those_of(level: list[Any], kinds: set[type], kind: type) -> list[Any]:
    """Return the values of a type, each once: repeats of self-containing values would grow exponentially."""
    if kind not in kinds:
        return []
    chosen = level if len(kinds) == 1 else [value for value in level if type(value) is kind]
    if len(set(map(id, chosen))) < len(chosen):
        return list({id(value): value for value in chosen}.values())
    return chosen


def _why_refused(value: Any) -> str:
    kind = type(value)
    base = next((base for base in kind.__mro__[1:-1] if base.__module__ == "builtins"), None)
    of = f", a subclass of {base.__name__}," if base is not None else ""
    hint = "; register its class: MsgpackCodec({'name': ...})" if _could_register(kind) else ""
    return f"{kind.__module__}.{kind.__qualname__}{of} can't be written{hint}"


def _could_register(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields") or hasattr(kind, "__members__")
