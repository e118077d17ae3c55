"""The modules below a folder, watched for changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

__all__ = ["Seen", "changed_names", "modules_in"]

Seen: TypeAlias = Mapping[str, tuple[int, int, int]]
"""The modification time, the size and the inode number of each file."""

_OTHERS: Final = frozenset({"malflow.toml", "pyproject.toml"})
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_MOST: Final = 5_000
"""The most modules that are looked at; the folder of a flow hardly has more."""


def modules_in(folder: Path) -> Seen:
    """Return the modules and configurations below a folder; hidden folders and virtual environments are left out."""
    found: dict[str, tuple[int, int, int]] = {}
    for path in _modules(str(folder)):
        try:
            is_at = os.stat(path)  # noqa: PTH116 - of thousands of files, twice a second
        except OSError:  # it was removed meanwhile
            continue
        found[path] = is_at.st_mtime_ns, is_at.st_size, is_at.st_ino
        if len(found) == _MOST:
            break
    return found


def _modules(folder: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda it: it.name)
    except OSError:
        return
    if any(it.name == "pyvenv.cfg" for it in entries):
        return
    folders = []
    for it in entries:
        if it.is_dir(follow_symlinks=False):
            if not it.name.startswith(".") and it.name not in _LEFT_OUT:
                folders.append(it.path)
        elif it.name.endswith(".py") or it.name in _OTHERS:
            yield it.path
    for path in folders:
        yield from _modules(path)


def changed_names(before: Seen, now: Seen) -> list[str]:
    """Return the names of the files that differ, sorted."""
    return sorted({Path(it).name for it in before.keys() | now.keys() if before.get(it) != now.get(it)})
