"""A small disk that fills up."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["make_room", "small_disk"]


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a disk on a new folder; skip the test where this user may not."""
    path.mkdir()
    if shutil.which("mount") is None or _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "malflow-test", str(path)):
        pytest.skip("this user may not mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)  # noqa: S607 - wherever it is


def make_room(disk: Path) -> None:
    """Enlarge a disk."""
    assert _mount("-o", "remount,size=16m", str(disk)) == 0


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode  # noqa: S607 - wherever it is
