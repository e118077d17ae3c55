"""Install the tests' servers and browser if they are missing: ``python -m tests.servers.install``."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.servers.chromium import Chromium
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.prometheus import Prometheus
from tests.servers.redis_server import RedisServer
from tests.servers.server import Program, ServerError
from tests.servers.versitygw import Versitygw

SERVERS: list[type[Program]] = [Postgres, MariaDB, RedisServer, Prometheus, Chromium, Kafka, Versitygw]


def install(server: type[Program]) -> bool:
    """Install one server; return whether it is there."""
    if server.missing() is None:
        return True
    started = time.monotonic()
    try:
        server.install()
    except ServerError as error:
        print(f"no {server.name}: {error}; the tests that need it are skipped", flush=True)
        return False
    print(f"{server.name}: installed in {time.monotonic() - started:.0f} s", flush=True)
    return True


def main() -> int:
    """Install all of them, at the same time; with CI=true a missing one is an error."""
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        complete = all(list(pool.map(install, SERVERS)))
    return int(not complete and os.environ.get("CI") == "true")


if __name__ == "__main__":
    sys.exit(main())
