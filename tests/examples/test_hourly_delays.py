"""The example on a real server, compared with sums over the whole file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from examples import hourly_delays
from tests.servers.postgres import Postgres

START = datetime(2026, 1, 2, tzinfo=UTC)


def flight(number: int) -> dict[str, Any]:
    """Return one of the flights that leave every four minutes; each tenth is told of three hours later."""
    behind = 180 if number % 10 == 9 else 0
    at = START + timedelta(minutes=max(0, 4 * number - behind))
    return {"airport": ("JFK", "LGA")[number % 2], "landed": at.isoformat(), "delay": number * 7 % 60 - 10}


def closed_hours(flights: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of the hours that are over, ten minutes before the last flight."""
    delays: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for it in flights:
        delays[it["airport"], datetime.fromisoformat(it["landed"]).replace(minute=0)].append(it["delay"])
    reached = max(datetime.fromisoformat(it["landed"]) for it in flights) - timedelta(minutes=10)
    over = {key: its for key, its in delays.items() if key[1] + timedelta(hours=1) <= reached}
    return sorted((*key, len(its), sum(its) / len(its)) for key, its in over.items())


def test_hourly_delays(own_postgres: Callable[[], Postgres], tmp_path: Path) -> None:
    dsn, file = own_postgres().address, tmp_path / "flights.csv"
    file.write_text("airport,landed,delay\n")
    written: list[dict[str, Any]] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")
        for numbers in (range(50), range(50, 120), range(120, 200)):
            written.extend(map(flight, numbers))
            with file.open("a") as lines:
                lines.writelines(f"{','.join(map(str, flight(number).values()))}\n" for number in numbers)
            hourly_delays.main(dsn, str(file), str(tmp_path / "state"))
            hourly_delays.main(dsn, str(file), str(tmp_path / "state"))
            found = connection.execute("select airport, hour, flights, mean from delays order by 1, 2").fetchall()
            assert found == closed_hours(written)
    connection.close()
