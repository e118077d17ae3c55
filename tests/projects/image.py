"""The image of a project without a container daemon: run its Dockerfile's steps in a read-only file system."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["UNPRIVILEGED", "can_isolate", "instructions", "isolated"]

UNPRIVILEGED = 10001
"""The user of the image."""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile, each with its arguments."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest


def can_isolate() -> bool:
    """Whether a process can have its own file system here: for root on Linux, if the kernel allows it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    return (
        subprocess.run([shutil.which("unshare") or "", "--mount", "true"], capture_output=True, check=False).returncode
        == 0
    )


def isolated(writable: list[Path], variables: dict[str, str], *command: str) -> list[str]:
    """Return a command that runs another one as an unprivileged user who can write only to these folders.

    The root is read-only. The user can enter root's home folder, as Python may be there.

    Args:
        writable: the folders.
        variables: its environment.
        command: the program and its arguments.
    """
    steps = ["set -e"]
    for folder in writable:
        place = shlex.quote(str(folder))
        steps += [f"chown {UNPRIVILEGED}:{UNPRIVILEGED} {place}", f"mount --bind {place} {place}"]
    base = Path(sys.base_prefix)
    if base.is_relative_to(Path.home()):
        kept, home, place = shlex.quote(f"{writable[0]}/.python"), shlex.quote(str(Path.home())), shlex.quote(str(base))
        steps += [
            f"mkdir {kept}",
            f"mount --bind {place} {kept}",
            f"mount -t tmpfs -o mode=755 none {home}",
            f"mkdir -p {place}",
            f"mount --move {kept} {place}",
            f"rmdir {kept}",
        ]
    steps.append("mount -o remount,bind,ro /")
    environment = [f"{name}={value}" for name, value in variables.items()]
    drop = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    steps.append(f"exec {shlex.join([*drop, 'env', '-i', *environment, *command])}")
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", "\n".join(steps)]
