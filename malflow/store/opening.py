"""Open the store that a path or URL names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from malflow.errors import GraphError, MissingDependency
from malflow.store.contract import Store
from malflow.store.filesystem import filesystem_of
from malflow.store.local import LocalStore
from malflow.store.redaction import redacted, secrets_in
from malflow.store.remote import FsspecStore, protocols_of

__all__ = ["STORES", "checked_place", "is_private", "open_store"]

STORES: Final = "malflow.stores"
"""The group of entry points of stores: a scheme, and a function of a URL and `storage_options` that returns a store."""

_LOCAL = ("file", "local")
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VERSION = re.compile(r"\?versionId=", re.IGNORECASE)


def open_store(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    filesystem: Any = None,
    exclusive: bool = True,
    durable: bool = True,
    private: bool = False,
) -> Store:
    """Return the store for a folder; nothing is read or written yet.

    Args:
        url: a local path, ``memory://...``, ``s3://bucket/...`` or any other fsspec URL; with `filesystem`, a path in
            that file system.
        storage_options: passed to fsspec to open the file system.
        filesystem: an fsspec file system to use instead.
        exclusive: whether the file system can create objects exclusively; see `FsspecStore`.
        durable: whether writes to local disk must survive a power cut.
        private: whether to refuse local folders and files that other users may change.

    Raises:
        GraphError: if the URL or the file system can't be used for a store.
        MissingDependency: if the library for the protocol is not installed.
    """
    options = dict(storage_options or {})
    text = checked_place(url, options, filesystem)
    shown = redacted(text, secrets_in(options, text))
    make = None if filesystem is not None else _maker(get_protocol(text))
    if make is not None:
        made: Store = make(text, options)
        return made
    if filesystem is None and get_protocol(text) in _LOCAL:
        return _local_store(text, shown, options, durable=durable, private=private)
    if filesystem is None:
        options |= {"use_listings_cache": False, "skip_instance_cache": True}
        filesystem, root = filesystem_of(text, options)
    elif type(filesystem) is LocalFileSystem:
        return _local_store(text, shown, options, durable=durable, private=private)
    else:
        root = _root_in(filesystem, text)
    if not root.strip("/") and protocols_of(filesystem)[0] != "memory":
        raise GraphError(f"'{shown}' does not name a bucket or folder for a store; add one")
    return FsspecStore(filesystem, root, exclusive=exclusive, secrets=secrets_in(options, text))


def checked_place(url: str | os.PathLike[str] | None, options: Mapping[str, Any], filesystem: Any = None) -> str:
    """Check the spelling of the path or URL of a store.

    Returns:
        The path or URL as text; a local path is made absolute, to name the same folder in every process.
    """
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str) or not text.strip():
        raise GraphError(f"a store needs a path or URL; got {text!r}")
    shown = redacted(text, secrets_in(options, text))
    _check(text, shown, options, filesystem)
    if _is_local(text, filesystem):
        return _root_in(LocalFileSystem, text) or "/"
    _check_steps(text, shown)
    return text


def is_private(url: str | os.PathLike[str], filesystem: Any = None) -> bool:
    """Whether only users of this machine can reach the store: one on local disk or in memory."""
    if filesystem is not None:
        return not {*_LOCAL, "memory"}.isdisjoint(protocols_of(filesystem))
    return get_protocol(os.fspath(url)) in (*_LOCAL, "memory")


@lru_cache
def _maker(scheme: str) -> Callable[[str, dict[str, Any]], Store] | None:
    """Return the function that makes a store of a URL with a scheme of an entry point; None if there is none.

    Raises:
        MissingDependency: if its library is not installed.
    """
    found = [] if scheme in _LOCAL else [*entry_points(group=STORES, name=scheme)]
    if not found:
        return None
    try:
        maker: Callable[[str, dict[str, Any]], Store] = found[0].load()
    except ImportError as missing:
        extra = "redis" if found[0].value.startswith("malflow.") else ""
        cure = f"pip install 'malflow[{extra}]'" if extra else f"it is {found[0].value}"
        raise MissingDependency(f"a store at {scheme}:// can't be loaded: {missing}; {cure}") from missing
    return maker


def _check(text: str, shown: str, options: Mapping[str, Any], filesystem: Any) -> None:
    if _ONE_SLASH.match(text):
        raise GraphError(f"'{shown}' is neither a path nor a URL; write {shown.replace(':/', '://', 1)}")
    if "::" in text:
        raise GraphError(f"'{shown}' chains file systems; a store needs a plain URL such as s3://bucket/folder")
    if filesystem is not None and not isinstance(filesystem, AbstractFileSystem):
        raise GraphError(f"filesystem must be an fsspec file system; got {type(filesystem).__name__}")
    if filesystem is not None and options:
        raise GraphError("storage_options and filesystem are mutually exclusive; pass one of them")


def _is_local(text: str, filesystem: Any) -> bool:
    return get_protocol(text) in _LOCAL if filesystem is None else type(filesystem) is LocalFileSystem


def _check_steps(text: str, shown: str) -> None:
    """Refuse URLs that object store libraries would interpret differently from how they are written."""
    protocol, _, path = text.rpartition("://")
    if _CONTROL.search(text):
        raise GraphError(f"{shown!r} contains a line break or another control character; remove it")
    if _VERSION.search(path):
        raise GraphError(f"'{shown}' names a version of an object; a store needs a bucket or folder")
    if "//" in path.strip("/"):
        plain = re.sub("/{2,}", "/", shown.rpartition("://")[2])
        raise GraphError(f"'{shown}' has an empty path component; write {protocol}{'://' if protocol else ''}{plain}")


def _local_store(text: str, shown: str, options: Mapping[str, Any], *, durable: bool, private: bool) -> LocalStore:
    if options:
        raise GraphError(
            f"'{shown}' is a local folder, which takes no storage_options; got {', '.join(sorted(options))}; "
            "write s3://bucket/folder for a bucket on S3"
        )
    return LocalStore(Path(_root_in(LocalFileSystem, text)), durable=durable, private=private)


def _root_in(filesystem: Any, text: str) -> str:
    return str(filesystem._strip_protocol(text)).rstrip("/")  # noqa: SLF001 - callers within fsspec do the same
