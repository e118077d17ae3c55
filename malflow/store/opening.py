"""The store behind a path or URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from malflow.errors import GraphError
from malflow.filesystem import filesystem_of
from malflow.store.contract import Store
from malflow.store.local import LocalStore
from malflow.store.redaction import redacted, secrets_in
from malflow.store.remote import FsspecStore, protocols_of

__all__ = ["check_place", "is_private", "open_store"]

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
    """Make the store for a folder; nothing is read or written yet.

    Args:
        url: a path on this machine, ``memory://...``, ``s3://bucket/...`` or what else fsspec knows; where
            `filesystem` is given, a path in it.
        storage_options: what fsspec needs to open it.
        filesystem: an fsspec file system to use instead.
        exclusive: whether the store creates objects exclusively; see `FsspecStore`.
        durable: whether what is written on this machine's disk must survive a power cut.
        private: whether folders and files on this machine's disk that other users may change are refused.

    Raises:
        GraphError: if the URL or the file system can't hold a store.
        MissingDependency: if the library for the protocol is not installed.
    """
    options = dict(storage_options or {})
    text = check_place(url, options, filesystem)
    shown = redacted(text, secrets_in(options, text))
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
        raise GraphError(f"'{shown}' names no place for a store; name a bucket or folder")
    return FsspecStore(filesystem, root, exclusive=exclusive, secrets=secrets_in(options, text))


def check_place(url: str | os.PathLike[str], options: Mapping[str, Any], filesystem: Any = None) -> str:
    """Check that a path or URL can name the place of a store, as far as its spelling tells.

    Returns:
        The text of it; a path on this machine is absolute, so that it names the same folder from everywhere.

    Raises:
        GraphError: if it can't.
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
    """Tell whether only this machine's users can reach a store: one on its disk or in this process's memory."""
    if filesystem is not None:
        return not {*_LOCAL, "memory"}.isdisjoint(protocols_of(filesystem))
    return get_protocol(os.fspath(url)) in (*_LOCAL, "memory")


def _check(text: str, shown: str, options: Mapping[str, Any], filesystem: Any) -> None:
    if _ONE_SLASH.match(text):
        raise GraphError(f"'{shown}' is neither a path nor a URL; write {shown.replace(':/', '://', 1)}")
    if "::" in text:
        raise GraphError(f"'{shown}' chains file systems; a store needs the place itself, such as s3://bucket/folder")
    if filesystem is not None and not isinstance(filesystem, AbstractFileSystem):
        raise GraphError(f"filesystem must be an fsspec file system; got {type(filesystem).__name__}")
    if filesystem is not None and options:
        raise GraphError("storage_options are for opening a file system; give either them or filesystem")


def _is_local(text: str, filesystem: Any) -> bool:
    return get_protocol(text) in _LOCAL if filesystem is None else type(filesystem) is LocalFileSystem


def _check_steps(text: str, shown: str) -> None:
    """Refuse what the libraries of object stores read otherwise than it is written."""
    protocol, _, path = text.rpartition("://")
    if _CONTROL.search(text):
        raise GraphError(f"{shown!r} has a line break or another control character; leave it out")
    if _VERSION.search(path):
        raise GraphError(f"'{shown}' names a version of an object; a store needs a bucket or folder")
    if "//" in path.strip("/"):
        plain = re.sub("/{2,}", "/", shown.rpartition("://")[2])
        raise GraphError(f"'{shown}' has an empty step in it; write {protocol}{'://' if protocol else ''}{plain}")


def _local_store(text: str, shown: str, options: Mapping[str, Any], *, durable: bool, private: bool) -> LocalStore:
    if options:
        raise GraphError(
            f"'{shown}' is a folder of this machine, which takes no storage_options; got {', '.join(sorted(options))}; "
            "write s3://bucket/folder for a place on S3"
        )
    return LocalStore(Path(_root_in(LocalFileSystem, text)), durable=durable, private=private)


def _root_in(filesystem: Any, text: str) -> str:
    return str(filesystem._strip_protocol(text)).rstrip("/")  # noqa: SLF001 - fsspec's own callers do so, too
