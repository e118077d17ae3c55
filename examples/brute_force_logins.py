"""Brute force: three failed logins in a row, and then one that succeeds, all within five minutes."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from malflow import SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.patterns import Match, step
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource


class Login(NamedTuple):
    """An attempt to log in."""

    user: str
    time: datetime
    ok: bool


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOGINS = [
    Login("ann", NOON, False),
    Login("bob", NOON + timedelta(seconds=5), False),
    Login("ann", NOON + timedelta(minutes=4), False),  # too long before her success: the next three count
    Login("bob", NOON + timedelta(minutes=4, seconds=5), True),
    Login("ann", NOON + timedelta(minutes=5), False),
    Login("ann", NOON + timedelta(minutes=6), False),
    Login("bob", NOON + timedelta(minutes=6, seconds=1), False),
    Login("ann", NOON + timedelta(minutes=6, seconds=30), True),
    Login("bob", NOON + timedelta(minutes=20), True),
]

failed = step("failed", Login, lambda login: not login.ok)
succeeded = step("succeeded", Login, lambda login: login.ok)
brute_force = failed.times(3, without=succeeded).then(succeeded).within(timedelta(minutes=5))


def alert(match: Match[str, Login, datetime]) -> str:
    """Return the text of an alert."""
    return f"{match.key}: {len(match['failed'])} failures from {match.start:%H:%M} on, success at {match.end:%H:%M}"


def build_dataflow(provider: StreamProvider, logins: Iterable[Login] = LOGINS) -> None:
    on_time, _late = (
        provider.new_stream()
        .source("logins", SingleIteratorSource(logins))
        .assign_timestamps("time", lambda msg: msg.value.time)
        .generate_epochs("epochs", limit_out_of_orderness(timedelta(minutes=1)))
    )
    found = on_time.key_distribute("user", lambda msg: msg.value.user).match("brute force", brute_force)
    found.matches.map("alert", alert).sink("stdout", StdOutSink())


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
