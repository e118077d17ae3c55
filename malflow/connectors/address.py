"""The parsed URL of a source or sink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from malflow.errors import GraphError
from malflow.store.redaction import redacted, secrets_in

__all__ = ["Address"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_USERINFO = re.compile(r"^[^@]*:[^@]*@")
_QUERY = re.compile(r"(.*)\?([^?=&/]+=[^?]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL without its options; ``str()`` shows it without secrets.

    Attributes:
        scheme: the scheme in lower case; empty for a plain path.
        user, password: the user and password before the ``@``, unquoted; None if missing.
        netloc: everything between user and path, such as ``"a:9092,b:9092"``.
        path: the path, unquoted, without the slash before it. Without a scheme, the path as it was written.
        url: the URL as it was written, without the options.
        query: the options in the URL, after the ``?``.
    """

    scheme: str
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)
    netloc: str
    path: str
    url: str = field(repr=False)
    query: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        shown = self.url if self.scheme else _USERINFO.sub("***@", self.url)
        return redacted(shown, secrets_in({}, self.url))

    @property
    def host(self) -> str:
        """The host, without a port; the first if there are several."""
        return self.netloc.partition(",")[0].rpartition("]:" if self.netloc.startswith("[") else ":")[0] or self.netloc

    @property
    def authority(self) -> str:
        """Everything between the scheme and the path, as it was written, with user and password."""
        return self.url.partition("://")[2].partition("/")[0]

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse a URL. The part after a ``?`` has options only if they have the form ``name=value``.

        Raises:
            GraphError: if it is empty, has an option twice, or a password is not quoted.
        """
        if not isinstance(url, str) or not url:
            raise GraphError(f"connect needs a URL or a path; got {type(url).__name__}{'' if url else ', empty'}")
        scheme, rest = "", url
        if found := _SCHEME.fullmatch(url):
            scheme, rest = found[1].lower(), found[2]
        query: dict[str, str] = {}
        if found := _QUERY.fullmatch(rest):
            rest, query = found[1], _options(found[2])
        base = f"{url[: url.index('://')]}://{rest}" if scheme else rest
        if not scheme:
            return cls("", None, None, "", rest, base, query)
        authority, _, path = rest.partition("/")
        _check_quoted(authority, path + "".join(query) + "".join(query.values()))
        userinfo, at, netloc = authority.rpartition("@")
        user, colon, password = userinfo.partition(":")
        return cls(
            scheme,
            unquote(user) if at else None,
            unquote(password) if colon else None,
            netloc,
            unquote(path),
            base,
            query,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an Address is not pickled: it may hold a password")


def _check_quoted(authority: str, rest: str) -> None:
    """Refuse an authority that ends within a password, before the ``@``."""
    _, colon, port = authority.rpartition(":")
    if colon and port and "@" not in authority and "@" in rest and not port.isdigit() and not port.endswith("]"):
        raise GraphError(
            "connect got a URL whose password has a character that must be quoted: write %2F for a slash, %3F for a "
            "question mark"
        )


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise GraphError(f"option '{name}' is in the URL twice; write each option once")
        options[name] = value
    return options
