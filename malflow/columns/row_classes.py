"""Classes of rows that do nothing but hold their fields: rows of them can be made of columns at any time."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["MadeRows", "fields_of", "record_fields"]


class MadeRows(ABC):
    """Rows that are made of several columns together, such as results of windows. Equal ones make equal rows."""

    are_accumulators = False
    """Whether each row is an accumulator of several records."""

    @property
    @abstractmethod
    def fields(self) -> frozenset[str]:
        """The columns that are fields of the rows, by their names; others are parts of fields."""

    @property
    @abstractmethod
    def is_flat(self) -> bool:
        """Whether flat rows have the same columns: see `malflow.columns.flat_rows`."""

    @abstractmethod
    def rows(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Make the rows from the items of all columns."""


def fields_of(row: Any, names: list[str]) -> list[str] | None:
    """Return the names of the columns in a frame of such rows; None if the source must make the rows itself.

    A function is called once for each row, by the source. So is a class with code of its own: it may count, check or
    refuse.

    Args:
        row: `dict`, `tuple`, the name of a column, or a class.
        names: the names of the columns, in the order in which the class is called with them.

    >>> fields_of(dict, ["town", "people"]), fields_of(complex, ["real", "imag"])
    (['town', 'people'], None)
    """
    if not names:
        return None
    if row is dict or row is tuple or isinstance(row, str):
        return names
    fields = _of_named_tuple(row) if isinstance(row, type) else None
    if fields is None and isinstance(row, type):
        fields = _of_dataclass(row)
    if fields is None or len(fields) < len(names):
        return None
    return fields[: len(names)] if _is_enough(row, len(names), len(fields)) else None


@lru_cache(maxsize=64)
def record_fields(row: Any) -> list[str] | None:
    """Return the names of all fields of a class of records; None for other rows.

    >>> record_fields(tuple)
    """
    if not isinstance(row, type) or issubclass(row, Mapping):
        return None
    return _of_named_tuple(row) or _of_dataclass(row)


def _is_enough(row: Any, given: int, fields: int) -> bool:
    """Whether the fields without a column have defaults."""
    try:
        return given == fields or row(*[None] * given) is not None
    except TypeError:
        return False


def _of_named_tuple(row: type) -> list[str] | None:
    fields = getattr(row, "_fields", None)
    if not issubclass(row, tuple) or not isinstance(fields, tuple) or row.__bases__ != (tuple,):
        return None
    own = vars(row)
    is_plain = "__new__" in own and row.__new__.__module__.startswith("namedtuple_")
    return list(fields) if is_plain and not {"__init__", "__getattribute__", "__getattr__"} & own.keys() else None


def _of_dataclass(row: type) -> list[str] | None:
    """Return the fields of a dataclass with the generated ``__init__`` and no code of its own where fields are set."""
    parameters = getattr(row, "__dataclass_params__", None)
    if parameters is None or not parameters.init or "__dataclass_fields__" not in vars(row):
        return None
    for name in ("__post_init__", "__getattr__", "__getattribute__", "__setattr__", "__new__"):
        if name == "__setattr__" and parameters.frozen:
            continue
        if getattr(row, name, None) is not getattr(object, name, None):
            return None
    init = inspect.getattr_static(row, "__init__")
    if getattr(getattr(init, "__code__", None), "co_filename", "") != "<string>":  # written by hand, or by a base
        return None
    fields = dataclasses.fields(row)
    if any(not field.init or field.kw_only for field in fields) or _has_init_variables(row):
        return None
    return [field.name for field in fields]


def _has_init_variables(row: type) -> bool:
    kinds = [field._field_type for field in row.__dataclass_fields__.values()]  # type: ignore[attr-defined]  # noqa: SLF001
    return any(kind is dataclasses._FIELD_INITVAR for kind in kinds)  # type: ignore[attr-defined]  # noqa: SLF001
