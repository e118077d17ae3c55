"""Postgres, from Debian's package, with logical replication and prepared transactions."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.certificates import CERTIFICATE, KEY, USER, write_certificates
from tests.servers.debian import install_packages, no_cluster
from tests.servers.server import Server, run

__all__ = ["Postgres"]

_REAPED_SECONDS = 5
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
max_prepared_transactions = 10
wal_sender_timeout = 10s
max_connections = 100
shared_buffers = 32MB
ssl = on
fsync = off
"""


class Postgres(Server):
    """A Postgres server; the superuser `malflow` needs no password.

    It survives `kill`, as the data has reached the operating system; not a power cut.
    """

    name = "Postgres"
    end_signal = signal.SIGQUIT  # its processes end, and its shared memory goes
    stop_signal = signal.SIGINT

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        return None if _binaries() else "Debian's package postgresql is not installed"

    @classmethod
    def install(cls) -> None:
        """Install Debian's package, without a service."""
        if cls.missing():
            no_cluster()
            install_packages("postgresql")

    @property
    def address(self) -> str:
        """A DSN of the database `postgres`."""
        return f"host=127.0.0.1 port={self.port} user=malflow dbname=postgres"

    @property
    def user(self) -> str | None:
        """The user who runs it: `initdb` refuses root."""
        return "postgres" if os.geteuid() == 0 else None

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        return [f"{_binaries()}/postgres", "-D", str(self._data), "-p", str(self.port)]

    def configure(self) -> None:
        """Make the data folder."""
        if self.user is not None:
            shutil.chown(self.folder, self.user)
            if not all(parent.stat().st_mode & 0o1 for parent in self.folder.parents):
                elsewhere = tempfile.mkdtemp(prefix="malflow-postgres-")
                shutil.chown(elsewhere, self.user)
                (self.folder / "data").symlink_to(elsewhere)
        make = ("-U", "malflow", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        run(f"{_binaries()}/initdb", "-D", str(self._data), *make, folder=self._data.parent, user=self.user)
        write_certificates(self.folder)
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"{_SETTINGS}ssl_cert_file = '{CERTIFICATE}'\nssl_key_file = '{KEY}'\n")
        for name in (CERTIFICATE, KEY):
            shutil.copy(self.folder / name, self._data)
            if self.user is not None:
                shutil.chown(self._data / name, self.user)
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"hostssl all {USER} all scram-sha-256\n{rules.read_text('utf-8')}", encoding="utf-8")

    def answers(self) -> bool:
        """Whether clients are served: not while it recovers."""
        import psycopg  # noqa: PLC0415 - only the extra has it

        with suppress(psycopg.OperationalError):
            psycopg.connect(self.address, connect_timeout=5).close()
            return True
        return False

    def processes(self, pid: int) -> Sequence[int]:
        """Return the postmaster and its processes, stopped: none of them writes or starts another."""
        os.kill(pid, signal.SIGSTOP)
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())]

    def kill(self) -> None:
        """Crash it: SIGKILL, without a chance to write anything."""
        super().kill()
        lock = self._data / "postmaster.pid"
        if lock.exists():
            # Postgres takes a zombie for a server that runs, and not everywhere is somebody who reaps it.
            postmaster = Path("/proc") / lock.read_text(encoding="utf-8").split()[0]
            deadline = time.monotonic() + _REAPED_SECONDS
            while postmaster.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            if postmaster.exists():
                lock.unlink()

    @property
    def _data(self) -> Path:
        return (self.folder / "data").resolve()


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None
