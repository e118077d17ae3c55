"""Secrets in storage options and URLs, and their removal from messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from malflow.words import short_repr

__all__ = ["is_secret_name", "redacted", "safe_line", "safe_lines", "safe_repr", "secrets_in", "shown_path"]

_SECRET_NAME = re.compile(
    r"key|secret|token|passw|passphrase|pwd|credential|signature|auth|cookie|connection_?str|(?<![a-z])sas(?![a-z])",
    re.IGNORECASE,
)
_HIDDEN = "***"
_WHOLE_WORD = 4
"""The least characters of a secret to hide inside words too. Fewer would hide parts of ordinary words for a short
secret, more would show a secret within a longer text."""

_KEY_ID_LENGTH = 16
"""The least characters of a user name to hide like a password: ids of access keys, such as AWS's, have 16 and more.
Fewer hide ordinary names, more show ids."""

_LONGEST = 4000
"""The longest text that people are shown, in characters; user code may raise a megabyte."""

_PARAMETER = r"(?P<name>(?:sig|[\w.-]{0,64}(?:key|secret|token|passw|pwd|credential|signature|auth)[\w.-]{0,64})=)"
_FIELD = r"[\w.-]{0,64}(?:secret|token|passw|pwd|credential|signature|(?:access|account|private)[_-]?key)[\w.-]{0,64}"
_PATTERNS: Final = (  # quantifiers that may fail late are bounded: linear time on long texts
    (re.compile(r"(://)[^/?#\s\"'<>]{0,512}@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"(://)[^/?#\s\"'<>:]{0,512}:(?!\d+(?:[/?#\s]|$))[^\s\"'<>@]{0,512}@"), rf"\1{_HIDDEN}@"),
    (re.compile(rf"(?<=[?&;,\s]){_PARAMETER}[^&;,\s\"'<>#]+", re.IGNORECASE), rf"\g<name>{_HIDDEN}"),
    (re.compile(r"(authorization['\"]?\s?[:=]\s?(?:b?['\"])?)[^'\",\r\n]+", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (
        re.compile(rf"(?<![\w.-])({_FIELD}['\"]?\s?[:=]\s?b?)(?:'[^']*'|\"[^\"]*\")", re.IGNORECASE),
        rf"\1'{_HIDDEN}'",
    ),
)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def is_secret_name(name: str) -> bool:
    """Whether an option of this name holds a secret. No message may show it.

    >>> is_secret_name("aws_secret_access_key"), is_secret_name("sas_token"), is_secret_name("endpoint_url")
    (True, True, False)
    """
    return _SECRET_NAME.search(name) is not None


def secrets_in(options: Mapping[str, Any], url: str = "") -> list[str]:
    """Return the secrets in storage options, at any depth, and in a URL, for `redacted`.

    >>> secrets_in({"key": "AKIA1234", "client_kwargs": {"password": "hush", "region": "eu"}}, "ftp://me:psst@host/x")
    ['AKIA1234', 'hush', 'psst']
    """
    found = [*_secrets_under(options, secret=False), *_secrets_of_url(url)]
    return list(dict.fromkeys(secret for secret in found if secret))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    r"""Return a text with secrets replaced by ``***`` and control characters escaped.

    Replaced are the given secrets, also in their URL-quoted and `repr` forms, and anything that looks like userinfo in
    a URL, a signature or token in a query string, or an authorization header.

    >>> redacted("GET https://me:psst@host/x?X-Amz-Signature=0a1b&part=2 failed:\nhush", ["hush"])
    'GET https://***@host/x?X-Amz-Signature=***&part=2 failed:\\n***'
    """
    spellings = {spelling for secret in secrets if secret for spelling in _spellings(secret)}
    for spelling in sorted(spellings, key=len, reverse=True):
        if len(spelling) >= _WHOLE_WORD:
            text = text.replace(spelling, _HIDDEN)
            continue
        text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", _HIDDEN, text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def safe_line(text: str) -> str:
    r"""Return a text for people in one line, without secrets and control characters, shortened if it is very long.

    >>> safe_line("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return redacted(_shortened(text))


def safe_lines(text: str) -> str:
    r"""Return a text as `safe_line` does, but with its line breaks.

    >>> safe_lines("a\x1b[31mb\nc")
    'a\\x1b[31mb\nc'
    """
    return "\n".join(map(redacted, _shortened(text).split("\n")))


def safe_repr(value: object) -> str:
    """Return a value of a user as a short text without secrets and control characters; never raises.

    >>> safe_repr({"a": 1}), safe_repr("postgres://me:hush@host")
    ("{'a': 1}", "'postgres://***@host'")
    """
    return redacted(short_repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def shown_path(path: str) -> str:
    """Return a path or URL for messages, without the user, password and signature of a URL.

    >>> shown_path("ftp://me:hush@host/towns.csv"), shown_path("/data/me:hush@host.csv")
    ('ftp://***@host/towns.csv', '/data/me:hush@host.csv')
    """
    return redacted(path, secrets_in({}, path)) if "://" in path else path


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    raw = secret.encode("utf-8", "surrogatepass")
    yield quote(raw)
    yield quote(raw, safe="")
    yield quote_plus(raw)


def _secrets_under(value: Any, *, secret: bool) -> Iterator[str]:
    """Yield every text in a secret value; in any other value, the texts below secret names."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets_under(inner, secret=secret or is_secret_name(str(name)))
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _secrets_under(inner, secret=secret)
    elif isinstance(value, str):
        if secret:
            yield value
        elif "://" in value:
            yield from _secrets_of_url(value)
    elif secret and isinstance(value, bytes):
        yield value.decode("utf-8", "surrogateescape")
    elif secret and isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def _secrets_of_url(url: str) -> Iterator[str]:
    for part in url.split("::"):
        path, _, query = part.partition("://")[2].partition("?")
        user, _, password = _userinfo(path).partition(":")
        found = [password, user] if len(user) >= _KEY_ID_LENGTH or not password else [password]
        for parameter in query.partition("#")[0].split("&"):
            name, _, value = parameter.partition("=")
            if is_secret_name(name) or name == "sig":
                found.append(value)
        for secret in found:
            yield from (secret, unquote(secret))


def _userinfo(path: str) -> str:
    """Return the userinfo of a URL, even if a slash in its password was not quoted."""
    authority = path.partition("/")[0]
    before, at, _ = authority.rpartition("@")
    if at:
        return before
    _, colon, port = authority.partition(":")
    return path.rpartition("@")[0] if colon and not port.isdigit() else ""
