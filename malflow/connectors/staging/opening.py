"""Open the place at a path or URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from malflow.connectors.staging.copied_place import CopiedPlace
from malflow.connectors.staging.places import LocalPlace, Place
from malflow.connectors.staging.s3_place import S3Place
from malflow.errors import GraphError
from malflow.store.filesystem import filesystem_of, is_local, local_path
from malflow.store.redaction import redacted, secrets_in
from malflow.store.remote import protocols_of, writes_whole
from malflow.store.retry import Retry

__all__ = ["open_place"]


def open_place(folder: str, storage_options: Mapping[str, Any], sub: str, retry: Retry) -> Place:
    """Return the place of a local folder, or of a folder on an object store.

    Args:
        folder: the path or URL.
        storage_options: options for the file system.
        sub: the folder for staged files of one sink, below `HIDDEN`.
        retry: how long to retry while a store can't be reached.

    Raises:
        GraphError: if the file system does not write files as a whole.
    """
    if is_local(folder):
        return LocalPlace(Path(local_path(folder)), sub)
    filesystem, inner = filesystem_of(folder, storage_options)
    secrets = secrets_in(storage_options, folder)
    if "s3" in protocols_of(filesystem):
        return S3Place(filesystem, inner, secrets, retry)
    if not writes_whole(filesystem) or not _copies(filesystem):
        raise GraphError(
            f"'{redacted(folder, secrets)}' is neither a local folder nor on an object store, where files become "
            "visible as a whole"
        )
    return CopiedPlace(filesystem, inner, sub, secrets, retry)


def _copies(filesystem: Any) -> bool:
    """Whether a file system copies files on the server."""
    return (
        type(filesystem)._cp_file is not AsyncFileSystem._cp_file  # noqa: SLF001 - fsspec asks implementations for it
        if isinstance(filesystem, AsyncFileSystem)
        else type(filesystem).cp_file is not AbstractFileSystem.cp_file
    )
