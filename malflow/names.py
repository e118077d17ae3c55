"""Names: of a package whose modules load on first use, of malflow's own classes on disk, and of jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from malflow.errors import not_imported

__all__ = ["LONGEST_JOB", "RESERVED", "load_on_use", "thing_at", "written_as", "written_name"]

C = TypeVar("C", bound=type)

LONGEST_JOB = 63
"""The longest name of a job, in characters."""

RESERVED = "malflow."
"""The prefix of the names of malflow's own classes; users can't register names with it."""


def written_as(name: str) -> Callable[[C], C]:
    """Declare the name of a record class on disk. It stays the same when the class moves.

    The name starts with `RESERVED`; see `malflow.snapshot.codecs.classes`.

    >>> @written_as("malflow.Position")
    ... class Position: ...
    >>> written_name(Position), written_name(type("Derived", (Position,), {}))
    ('malflow.Position', None)
    """

    def declare(kind: C) -> C:
        kind.__msgpack_name__ = name  # type: ignore[attr-defined] # in the body of a NamedTuple it would be a field
        return kind

    return declare


def written_name(kind: type) -> str | None:
    """Return the name that a class declares itself, not one inherited from a base; else None."""
    name = vars(kind).get("__msgpack_name__")
    return name if isinstance(name, str) and name.startswith(RESERVED) else None


def load_on_use(package: str, modules: Mapping[str, str], library: str = "", extra: str = "") -> None:
    """Import each module of a package when one of its names is first used.

    So a program loads only the modules that it uses. The package shows the names to type checkers by imports under
    `TYPE_CHECKING`.

    Args:
        package: the name of the package.
        modules: the module of each name, or a module of that name itself; within the package if it begins with a dot.
        library: an optional library that the modules import.
        extra: the extra of malflow that installs the library.
    """
    room = sys.modules[package]

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(modules[name], package)
        except ModuleNotFoundError as error:
            if not library or error.name != library:
                raise
            raise not_imported(f"{package}.{name} needs {library}", extra, error) from error
        found = module if module.__name__ == f"{package}.{name}" else getattr(module, name)
        setattr(room, name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(room), *modules})

    vars(room).update(__getattr__=load, __dir__=names)


def thing_at(text: str) -> Any:
    """Return the object at a place such as ``module:name``; the running script is not imported again.

    Raises:
        ValueError: if the text has another form.
        Exception: of the import, if there is no such thing.

    >>> thing_at("math:pi") > 3
    True
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise ValueError(f"{text!r} is not module:name")
    script = sys.modules["__main__"]
    file = getattr(script, "__file__", None)
    is_script = isinstance(file, str) and Path(file).stem == module and module not in sys.modules
    thing: Any = script if is_script else import_module(module)
    for step in name.split("."):
        thing = getattr(thing, step)
    return thing
