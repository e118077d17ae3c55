"""Chromium, from Debian's package, for the tests of the page; playwright drives it."""

from __future__ import annotations

import shutil
from typing import Final

from tests.servers.debian import require
from tests.servers.server import Program

__all__ = ["OPTIONS", "Chromium"]

OPTIONS: Final = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
"""Options to run in a container, without requests to other machines."""


class Chromium(Program):
    """The browser."""

    name = "Chromium"

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why it cannot be started, such as a missing package, or None."""
        return None if shutil.which("chromium") else "Debian's package chromium is not installed"

    @classmethod
    def install(cls) -> None:
        """Install Debian's package."""
        require("chromium", "chromium")

    @classmethod
    def path(cls) -> str:
        """Return its path."""
        return require("chromium", "chromium")
