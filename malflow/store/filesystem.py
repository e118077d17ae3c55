"""Resolve paths and URLs to fsspec file systems."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec import available_protocols
from fsspec.core import url_to_fs
from fsspec.utils import get_protocol, infer_compression

from malflow.errors import GraphError, MissingDependency

__all__ = ["compression_of", "filesystem_of", "is_known", "is_local", "local_path"]

_USERINFO = re.compile(r"(://)[^/?#]*@")
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs"})
"""The protocols that treat text before an ``@`` as part of the bucket's name, and show it in messages."""


_LIBRARIES = {".zst": "zstandard", ".lz4": "lz4"}
"""The libraries of compressions that neither Python nor fsspec has, by the suffix of a file."""


def compression_of(path: str) -> str | None:
    """Return fsspec's name of the compression of a file by its suffix; None without one.

    Raises:
        MissingDependency: if its library is not installed.
    """
    found: str | None = infer_compression(path)
    library = _LIBRARIES.get(path[-4:].lower())
    if found is None and library is not None:
        raise MissingDependency(f"file '{path.rpartition('/')[2]}' needs {library}; pip install {library}")
    return found


def filesystem_of(path: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path inside it.

    Listings are not cached: a run must see the current files.

    Raises:
        MissingDependency: if the library for the protocol is not installed.
        GraphError: if the protocol is unknown, or the URL has credentials before the name of a bucket.
    """
    if path.startswith(os.sep):  # even if its name contains '://'
        return fsspec.filesystem("file", **{"use_listings_cache": False, **storage_options}), path
    protocol = get_protocol(path)
    shown = _USERINFO.sub(r"\1***@", path)
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as missing:
        install = "pip install 'malflow[s3]'" if protocol in ("s3", "s3a") else "install the named library"
        raise MissingDependency(f"cannot access '{shown}': {missing}; {install}") from missing
    except ValueError as unknown:
        raise GraphError(f"'{shown}' has a protocol unknown to fsspec: {protocol}") from unknown
    if protocol in _BUCKETS:
        _check_no_credentials(path, protocol)
    filesystem, inner = url_to_fs(path, **{"use_listings_cache": False, **storage_options})
    return filesystem, inner


def _check_no_credentials(path: str, protocol: str) -> None:
    bucket = path.partition("://")[2].partition("/")[0]
    if "@" in bucket or (":" in bucket and not bucket.startswith("arn:")):
        rest = path.rpartition("@")[2] if "@" in path else "..."
        raise GraphError(
            f"'{protocol}://***@{rest}': the URL of a bucket can't hold credentials; pass storage_options, such as "
            "{'key': ..., 'secret': ...}, or set them in the environment"
        )


def is_known(protocol: str) -> bool:
    """Whether a URL scheme belongs to a file system; its library need not be installed."""
    return protocol in available_protocols()


def is_local(path: str) -> bool:
    """Whether a path or URL names a local file; an absolute path always does."""
    return path.startswith(os.sep) or get_protocol(path) in ("file", "local")


def local_path(path: str) -> str:
    """Return the canonical path of a local file: absolute, without protocol, with links resolved.

    >>> local_path("file:///no/../where//a.txt")
    '/where/a.txt'
    """
    _, inner = filesystem_of(path, {})
    return str(os.path.realpath(inner))
