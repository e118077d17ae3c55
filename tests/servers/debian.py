"""Packages of Debian, installed if permissions allow."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.server import INSTALLED, ServerError, run

__all__ = ["install_packages", "no_cluster", "require"]

_POLICY = Path("/usr/sbin/policy-rc.d")
"""The script that Debian's packages ask whether a service may be started."""


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
        with _no_services():
            install = ("apt-get", "install", "-y", "-q", "--no-install-recommends", *packages)
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            try:
                run(*install, environment=quiet)
            except ServerError:  # the lists may be old or missing
                run("apt-get", "update", "-q")
                run(*install, environment=quiet)


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep packages from starting services within the context, unless the machine has its own policy."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def no_cluster() -> None:
    """Keep the package of Postgres from making and starting a server of its own."""
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if os.geteuid() == 0 and not settings.exists():
        settings.parent.mkdir(exist_ok=True)
        settings.write_text("create_main_cluster = false\n", encoding="utf-8")
