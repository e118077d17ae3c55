"""The flow that a command is about: a script, a module, or a function or runtime in one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from malflow.cli.exits import CommandError
from malflow.disk_names import LONGEST_JOB
from malflow.words import did_you_mean

__all__ = ["Target", "exists", "near_script", "parsed"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Target:
    """A flow: a file or a module, and perhaps a name in it.

    Attributes:
        text: as it was written.
        file: the script; None for a module.
        module: the dotted name of the module; None for a script.
        name: the function or runtime in it; None runs the whole script.
    """

    text: str
    file: Path | None
    module: str | None
    name: str | None

    @property
    def job(self) -> str:
        """The name of the job whose state the command keeps: that of the script or module, as far as a job can have it.

        >>> Target("a/daily totals.py", Path("a/daily totals.py"), None, None).job, Target("__", None, "__", None).job
        ('daily-totals', 'default')
        """
        name = self.file.stem if self.file is not None else (self.module or "").rpartition(".")[2]
        return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:LONGEST_JOB] or "default"

    @property
    def title(self) -> str:
        """The file or module, for messages."""
        return self.file.name if self.file is not None else self.module or self.text


def parsed(text: str) -> Target:
    """Parse ``flow.py``, ``flow.py:name``, ``package.module`` or ``package.module:name``.

    Raises:
        CommandError: if it names neither a script nor a module, or a file that can't be a script.
    """
    if _NAME.fullmatch(text) and exists(Path(text, "__main__.py")):
        return Target(text, None, text, None)
    if text and exists(Path(text)):
        return Target(text, _script(Path(text)), None, None)
    place, colon, name = text.rpartition(":")
    if not colon:
        place, name = text, ""
    elif not _NAME.fullmatch(name):
        raise CommandError(f"'{text}' is not a flow: after the colon, write the name of a function or a runtime")
    if place and exists(Path(place)):
        return Target(text, _script(Path(place)), None, name)
    if _NAME.fullmatch(place) and Path(place).suffix not in (".py", ".ipynb"):
        return Target(text, None, place, name or None)
    raise CommandError(f"there is no file '{place}'{near_script(Path(place))}")


def exists(path: Path | str) -> bool:
    """Whether there is a file or folder; False for a text that can't be a path."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # a name that is too long, a folder that is closed, a null byte
        return False


def _script(path: Path) -> Path:
    if path.is_dir():
        found = sorted(it.name for it in path.glob("*.py"))[:5]
        scripts = f" such as {path / found[0]}" if found else ""
        raise CommandError(f"'{path}' is a folder; name a script in it{scripts}, or a module: package.module")
    if path.suffix == ".ipynb":
        raise CommandError(
            f"'{path}' is a notebook; write `jupyter nbconvert --to script {path}` and run the script that it makes"
        )
    return path


def near_script(path: Path) -> str:
    """Return a hint: the script in that folder with the nearest name."""
    try:
        names = [it.name for it in path.parent.iterdir() if it.suffix == ".py"]
    except OSError:
        return f", and no folder '{path.parent}'"
    return did_you_mean(path.name, names, else_="", write=lambda it: f"'{path.parent / it}'")
