"""The classes of the script that starts a run: every process must find them where the script does, in ``__main__``."""

from __future__ import annotations

import pickle
import sys
from typing import Any

from malflow.errors import GraphError

__all__ = ["install_classes", "pickled_classes"]


def pickled_classes() -> bytes:
    """Pickle the classes of this process's script by value.

    Raises:
        GraphError: if one can't be pickled.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    main = vars(sys.modules["__main__"])
    classes = {name: kind for name, kind in main.items() if isinstance(kind, type) and kind.__module__ == "__main__"}
    try:
        data: bytes = cloudpickle.dumps(classes, 5)
    except Exception as error:
        raise GraphError(
            f"the script's classes ({', '.join(classes)}) can't be sent to Spark: {type(error).__name__}: {error}; put "
            "the one that can't into a module"
        ) from error
    return data


def install_classes(data: bytes) -> None:
    """Put the classes of a script into ``__main__``, so that their objects are pickled by name here, too."""
    main = sys.modules["__main__"]
    for name, kind in pickle.loads(data).items():  # noqa: S301 - the driver wrote it
        setattr(main, name, kind)
        if _has_lost_slots(kind):
            kind.__getstate__ = _state_of_slots


def _has_lost_slots(kind: type) -> bool:
    """Whether a class has slots only, and its copy has not: cloudpickle makes it without them."""
    parts = [vars(base) for base in kind.__mro__[:-1]]
    only = all("__slots__" in part and "__dict__" not in part["__slots__"] for part in parts)
    return only and bool(kind.__dictoffset__) and not any("__getstate__" in part for part in parts)


def _state_of_slots(value: Any) -> tuple[None, dict[str, Any]]:
    """Return the state as the class in the script pickles it, which can't read one that has attributes, too."""
    return None, dict(vars(value))
