"""Make an environment without some libraries, and print the path of its Python.

``python -m tests.kit.bare_python FOLDER [LIBRARY ...]`` makes it in a second: it has links to all packages of this one
but these libraries, by default those of the extras `columns`, `delta` and `spark`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from importlib.metadata import distribution
from pathlib import Path

from tests.kit.extras import EXTRAS, libraries_of

__all__ = ["bare_python"]


def bare_python(folder: Path, without: Collection[str]) -> Path:
    """Make the environment anew, and return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages, bare = Path(sysconfig.get_path("purelib")), _packages_of(folder)
    left_out = {name for library in without for name in _names_of(library)}
    for entry in packages.iterdir():
        if entry.name not in left_out:
            (bare / entry.name).symlink_to(entry)
    _copy_commands(folder / "bin")
    return folder / "bin" / "python"


def _packages_of(folder: Path) -> Path:
    (found,) = (folder / "lib").glob("python*/site-packages")
    return found


def _names_of(library: str) -> set[str]:
    """Return the files and folders of a library, at the top of all packages."""
    return {file.parts[0] for file in distribution(library).files or () if file.parts[0] not in ("..", "__pycache__")}


def _copy_commands(folder: Path) -> None:
    """Copy commands of installed packages. Scripts name the Python that runs them in their first line."""
    for command in Path(sys.executable).parent.iterdir():
        if (folder / command.name).exists() or not command.is_file():
            continue
        content = command.read_bytes()
        first, _, rest = content.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            content = f"#!{folder.resolve()}/bin/python\n".encode() + rest
        (folder / command.name).write_bytes(content)
        (folder / command.name).chmod(0o755)


if __name__ == "__main__":
    print(bare_python(Path(sys.argv[1]), sys.argv[2:] or libraries_of(EXTRAS)))
