"""Print the path of the newest Python beside this one, on the PATH or one of pyenv's; nothing if none is newer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["newest_python"]

NEWEST = 14
"""The newest minor version of Python 3 that is looked for."""


def newest_python(than: int = sys.version_info.minor) -> str | None:
    """Return the path of the newest Python whose minor version is larger, or None."""
    found = (path for minor in range(NEWEST, than, -1) for path in _named(f"python3.{minor}") if _runs(path))
    return next(found, None)


def _named(name: str) -> Iterator[str]:
    if (path := shutil.which(name)) is not None:
        yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/*/bin/{name}")))


def _runs(path: str) -> bool:
    # A command of pyenv's may be of a version that is not switched on, and one of Debian's may have no venv.
    return subprocess.run([path, "-c", "import ensurepip, ssl"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    print(newest_python() or "")
