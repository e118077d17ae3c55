"""The addresses of web servers: their texts, and whether other machines can reach them."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["Place", "check_token", "is_ip", "is_loopback", "place_of"]

_PLACE = re.compile(r"(?:(?P<name>[A-Za-z0-9_.-]*):|\[(?P<v6>[0-9A-Fa-f:.]+)\]:)?(?P<port>\d{1,5})", re.ASCII)
_MOST = 65_535
"""The highest port of TCP."""

_SHORTEST_TOKEN = 16
"""The least characters of a token: with random ones some 96 bits, beyond any guessing over a network. Half of it would
allow words, double refuses common secrets."""


class Place(NamedTuple):
    """Where a server listens.

    Attributes:
        host: the name or address of an interface of this machine.
        port: the port; 0 for any free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place_of(text: str) -> Place:
    """Return the place that a text names; the host is 127.0.0.1 if the text has none.

    >>> place_of("0.0.0.0:8642"), place_of("[::1]:80"), place_of("8642")
    (Place(host='0.0.0.0', port=8642), Place(host='::1', port=80), Place(host='127.0.0.1', port=8642))

    Raises:
        GraphError: if the text names no place.
    """
    found = _PLACE.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found["port"]) > _MOST:
        raise GraphError(f"address must be a host and a port, such as 127.0.0.1:8642; got {short_repr(text)}")
    return Place(found["name"] or found["v6"] or "127.0.0.1", int(found["port"]))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host."""
    return host == "localhost" or (is_ip(host) and ip_address(host).is_loopback)


def check_token(token: str | None) -> None:
    """Check a token that clients must send: it is long enough, and of printable ASCII."""
    if token is not None and not (
        isinstance(token, str) and len(token) >= _SHORTEST_TOKEN and all("!" <= it <= "~" for it in token)
    ):
        raise GraphError(
            f"token must have at least {_SHORTEST_TOKEN} characters, all of them printable ASCII without spaces"
        )


def is_ip(host: str) -> bool:
    """Whether a host is an address, and not a name.

    >>> is_ip("::1"), is_ip("localhost")
    (True, False)
    """
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
