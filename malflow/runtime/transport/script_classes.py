"""The classes of the script that starts a run, which every process needs in its own ``__main__``."""

from __future__ import annotations

import pickle
import sys
from typing import Any

from malflow.errors import GraphError
from malflow.runtime.transport.by_value import dumps_by_value

__all__ = ["install_classes", "pickled_classes"]


def pickled_classes() -> bytes:
    """Pickle the classes of the running script by value.

    Raises:
        GraphError: if a class can't be pickled.
    """
    main = vars(sys.modules["__main__"])
    classes = {name: kind for name, kind in main.items() if isinstance(kind, type) and kind.__module__ == "__main__"}
    try:
        return dumps_by_value(classes)
    except Exception as error:
        raise GraphError(
            f"the script's classes ({', '.join(classes)}) can't be sent to other processes: {type(error).__name__}: "
            f"{error}; move the class that can't be pickled into a module"
        ) from error


def install_classes(data: bytes) -> None:
    """Put the script's classes into ``__main__``, so that their objects are pickled by name here as well."""
    main = sys.modules["__main__"]
    for name, kind in pickle.loads(data).items():  # noqa: S301 - this run wrote it
        setattr(main, name, kind)
        if _has_lost_slots(kind):
            kind.__getstate__ = _state_of_slots


def _has_lost_slots(kind: type) -> bool:
    """Whether a class defines only slots but this copy of it has a ``__dict__``: cloudpickle drops the slots."""
    parts = [vars(base) for base in kind.__mro__[:-1]]
    only = all("__slots__" in part and "__dict__" not in part["__slots__"] for part in parts)
    return only and bool(kind.__dictoffset__) and not any("__getstate__" in part for part in parts)


def _state_of_slots(value: Any) -> tuple[None, dict[str, Any]]:
    """Return the state in the form of the script's own class, which can't load attributes from a ``__dict__``."""
    return None, dict(vars(value))
