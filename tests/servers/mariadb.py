"""MariaDB, from Debian's package without its service."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.debian import install_packages
from tests.servers.server import Server, run

__all__ = ["MariaDB"]


class MariaDB(Server):
    """A MariaDB server that takes any user and password; its data folder is made by the first start.

    It survives `kill`, as the data has reached the operating system; not a power cut.
    """

    name = "MariaDB"
    stop_signal = signal.SIGTERM

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why the server cannot be started, such as a missing package, or None."""
        return None if _program() else "Debian's package mariadb-server-core is not installed"

    @classmethod
    def install(cls) -> None:
        """Install Debian's package, which has no service."""
        if cls.missing():
            install_packages("mariadb-server-core")

    @property
    def address(self) -> str:
        """The URL of the server, without a database, as SQLAlchemy has it."""
        return f"mariadb+pymysql://malflow:malflow@127.0.0.1:{self.port}"

    def configure(self) -> None:
        """Make the data folder, and its files by a start that ends: only then does it survive a crash."""
        (self.folder / "data").mkdir()
        run(*self._program_and_folder(), "--bootstrap", folder=self.folder)

    def command(self) -> Sequence[str]:
        """Return the command that is the server, in the foreground."""
        memory = ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=2"]
        network = ["--bind-address=127.0.0.1", f"--port={self.port}", "--socket=server.sock"]
        return [*self._program_and_folder(), "--skip-grant-tables", *network, *memory]

    def _program_and_folder(self) -> Sequence[str]:
        user = ["--user=root"] if os.geteuid() == 0 else []
        log = "--innodb-log-file-size=8M"
        return [str(_program()), "--no-defaults", f"--datadir={self.folder / 'data'}", log, *user]

    def answers(self) -> bool:
        """Whether clients are served."""
        import pymysql  # noqa: PLC0415 - only the development extra has it

        with suppress(pymysql.MySQLError):
            pymysql.connect(host="127.0.0.1", port=self.port, user="malflow", connect_timeout=5).close()
            return True
        return False


def _program() -> str | None:
    return shutil.which("mariadbd", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path("/usr/sbin"))]))
