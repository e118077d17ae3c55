"""Packages of Debian, installed if permissions allow."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from tests.servers.server import INSTALLED, ServerError, run

__all__ = ["install_packages", "require"]


def require(program: str, package: str) -> str:
    """Return the path of a program, whose package is installed if it is missing.

    Raises:
        ServerError: if the package can't be installed.
    """
    if shutil.which(program) is None:
        install_packages(package)
    found = shutil.which(program)
    if found is None:
        raise ServerError(f"package {package} has no {program}")
    return found


def install_packages(*packages: str) -> None:
    """Install packages, one call at a time.

    Raises:
        ServerError: if this is no Debian, or the user isn't root.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerError(f"install {' '.join(packages)}: apt-get is for root, on Debian")
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / "apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install = ("apt-get", "install", "-y", "-q", "--no-install-recommends", *packages)
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        try:
            run(*install, environment=quiet)
        except ServerError:  # the lists may be old, or none
            run("apt-get", "update", "-q")
            run(*install, environment=quiet)


def no_cluster() -> None:
    """Keep the package of Postgres from making and starting a server of its own."""
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if os.geteuid() == 0 and not settings.exists():
        settings.parent.mkdir(exist_ok=True)
        settings.write_text("create_main_cluster = false\n", encoding="utf-8")
