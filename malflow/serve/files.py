"""The files of the page, read once. A request names one of them, never a path on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

__all__ = ["File", "page_files"]

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class File(NamedTuple):
    """A file of the page.

    Attributes:
        content: its bytes.
        kind: its media type.
    """

    content: bytes
    kind: str


@cache
def page_files() -> Mapping[str, File]:
    """Return the files of the page by their names below its folder, such as ``vendor/preact.js``."""
    return dict(_found(files("malflow.serve") / "page", ""))


def _found(folder: Traversable, before: str) -> Iterator[tuple[str, File]]:
    if not folder.is_dir():
        return
    for it in folder.iterdir():
        if it.is_dir():
            yield from _found(it, f"{before}{it.name}/")
        elif (kind := _TYPES.get(it.name.rpartition(".")[2])) is not None:
            yield f"{before}{it.name}", File(it.read_bytes(), kind)
