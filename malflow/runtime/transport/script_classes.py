"""The classes of the script that starts a run, which every process needs in its own ``__main__``.

A class that can't be pickled, for example since it holds a lock, stops a run only if the dataflow uses it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from malflow.errors import MissingDependency
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.words import error_line

__all__ = ["class_in_the_way", "install_classes", "pickled_classes"]


class _LeftOut(NamedTuple):
    """A class that could not be pickled.

    Attributes:
        why: the error.
    """

    why: str


def pickled_classes() -> bytes:
    """Pickle the classes of the running script by value; those that can't be pickled are left out."""
    classes = _script_classes()
    try:
        return dumps_by_value(classes)
    except MissingDependency:
        raise
    except Exception:  # noqa: BLE001 - classes of the user may raise any
        refused = _refused(classes)
        left_out = {name: _LeftOut(error_line(why)) for name, why in refused.items()}
        return dumps_by_value(classes | left_out)


def _script_classes() -> dict[str, Any]:
    main = vars(sys.modules["__main__"])
    return {name: kind for name, kind in main.items() if isinstance(kind, type) and kind.__module__ == "__main__"}


def _refused(classes: Mapping[str, type]) -> dict[str, Exception]:
    """Return the errors of the classes that can't be pickled, by name."""
    return dict(_errors(classes))


def _errors(classes: Mapping[str, type]) -> Iterator[tuple[str, Exception]]:
    for name, kind in classes.items():
        try:
            dumps_by_value(kind)
        except Exception as why:  # noqa: BLE001 - classes of the user may raise any
            yield name, why


def class_in_the_way(thing: object) -> str | None:
    """Return the name of the script's class for which an object can't be pickled; None if that is not the reason."""
    classes = _script_classes()
    refused = {name: classes[name] for name in _refused(classes)}
    for name, kind in refused.items():
        if not _is_picklable(kind, refused, but=kind) and _is_picklable(thing, refused):
            return name
    return None


def _is_picklable(thing: object, by_name: Mapping[str, type], but: type | None = None) -> bool:
    try:
        dumps_by_value(thing, by_name=[kind for kind in by_name.values() if kind is not but])
    except Exception:  # noqa: BLE001 - as above
        return False
    return True


def install_classes(data: bytes) -> None:
    """Put the script's classes into ``__main__``. Their objects are then pickled by name here as well."""
    main = sys.modules["__main__"]
    for name, kind in pickle.loads(data).items():  # noqa: S301 - this run wrote it
        if isinstance(kind, _LeftOut):
            setattr(main, name, _stand_in(name, kind.why))
            continue
        setattr(main, name, kind)
        if _has_lost_slots(kind):
            kind.__getstate__ = _state_of_slots


def _stand_in(name: str, why: str) -> type:
    """Return a class in place of one that was left out; an object of it can't be made."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"class '{name}' of the script can't be sent to other processes: {why}; move it into a module")

    return type(name, (), {"__new__": refuse, "__module__": "__main__"})


def _has_lost_slots(kind: type) -> bool:
    """Whether a class defines only slots but this copy of it has a ``__dict__``: cloudpickle drops the slots."""
    parts = [vars(base) for base in kind.__mro__[:-1]]
    only = all("__slots__" in part and "__dict__" not in part["__slots__"] for part in parts)
    return only and bool(kind.__dictoffset__) and not any("__getstate__" in part for part in parts)


def _state_of_slots(value: Any) -> tuple[None, dict[str, Any]]:
    """Return the state in the form of the script's own class. That class can't load attributes from a ``__dict__``."""
    return None, dict(vars(value))
