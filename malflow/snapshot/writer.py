"""What writes the snapshots: noted in each, for whoever has to find out why one can't be read."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from malflow.version import __version__

__all__ = ["WRITER"]


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


WRITER = {"malflow": __version__, "python": platform.python_version(), "lz4": _version_of("lz4")}
