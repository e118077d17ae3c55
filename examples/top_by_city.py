"""The best three players of each city, while players move and score: a table, grouped by a field that changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, StreamProvider, TableChange, limit_out_of_orderness
from malflow.sinks import StdOutSink
from malflow.sources import SingleIteratorSource

MOST = 3


class Player(NamedTuple):
    """A player's row."""

    name: str
    city: str
    points: int


NEWS = [
    Player("Ann", "Ulm", 7),
    Player("Bob", "Ulm", 9),
    Player("Cem", "Ulm", 4),
    Player("Dora", "Ulm", 5),
    Player("Bob", "Bonn", 9),  # moves, so that Cem is among the best of Ulm again
    Player("Ann", "Ulm", 3),
    Player("Bob", "Bonn", 9),  # no news: nothing is sent
]

Players = dict[str, Player]


def rank(player: Player) -> tuple[int, str]:
    """Order players by points, then by name."""
    return -player.points, player.name


def update(_city: str, change: TableChange[Player], players: Players) -> tuple[str, Players | None]:
    """Keep all players of a city, since each may become one of the best; return the best."""
    if change.before is not None:
        del players[change.before.name]
    if change.after is not None:
        players[change.after.name] = change.after
    best = sorted(players.values(), key=rank)[:MOST]
    return ", ".join(f"{it.name} {it.points}" for it in best), players or None


def build_dataflow(provider: StreamProvider) -> None:
    news = provider.new_stream().source("news", SingleIteratorSource(NEWS))
    on_time, _ = news.generate_epochs("epochs", limit_out_of_orderness(0))
    players = on_time.key_distribute("by name", by_name).to_table("players")
    in_order = players.grouped("by city", "city").sort("in order")  # players of a city come from several workers
    in_order.stateful_map("best", update, default=dict).changes("new best").sink("out", StdOutSink())


def by_name(message: Any) -> str:
    name: str = message.value.name
    return name


def main() -> None:
    SingleThreadRuntime(build_dataflow).execute()


if __name__ == "__main__":
    main()
