"""Redis, from Debian's package, with every acknowledged write on disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress

from tests.servers.certificates import AUTHORITY, CERTIFICATE, KEY, PASSWORD, USER, write_certificates
from tests.servers.debian import require
from tests.servers.server import Server

__all__ = ["RedisServer"]


class RedisServer(Server):
    """A Redis server without a password, and with one on a port for TLS."""

    name = "Redis"
    ports = 2

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        return None if shutil.which("redis-server") else "Debian's package redis-server is not installed"

    @classmethod
    def install(cls) -> None:
        """Install Debian's package."""
        require("redis-server", "redis-server")

    @property
    def address(self) -> str:
        """The URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def secured(self) -> str:
        """The URL of the port for TLS, without the password."""
        return f"rediss://{USER}@127.0.0.1:{self.port + 1}/0"

    def configure(self) -> None:
        """Write the certificates."""
        write_certificates(self.folder)

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        own = ["--tls-cert-file", CERTIFICATE, "--tls-key-file", KEY, "--tls-ca-cert-file", AUTHORITY]
        secured = ["--tls-port", str(self.port + 1), *own, "--tls-auth-clients", "no"]
        who = ["--user", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all"]
        network = ["--bind", "127.0.0.1", "--port", str(self.port)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
        return ["redis-server", *network, *secured, *who, *durable, "--dir", str(self.folder), "--daemonize", "no"]

    def answers(self) -> bool:
        """Whether clients are served: not while it loads."""
        import redis  # noqa: PLC0415 - only the extra has it

        with redis.Redis(port=self.port) as client, suppress(redis.ConnectionError, redis.BusyLoadingError):
            return bool(client.ping())
        return False
