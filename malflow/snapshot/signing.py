"""Signatures of what a store holds, and texts that tell no secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from malflow.errors import GraphError, SnapshotError

__all__ = ["KEY_VARIABLE", "Signer", "is_secret_name", "redacted", "secrets_in"]

KEY_VARIABLE: Final = "MALFLOW_SIGNING_KEY"
"""The environment variable that holds the signing key, or several with commas between them, the one in use first."""

_SHORTEST = 16
_MAC = re.compile(r"([0-9a-f]{8}):([0-9a-f]{64})")


class Signer:
    """Signs bytes by HMAC-SHA256 with the first of its keys, and verifies with each of them.

    A key that is to be replaced stays in the list, behind the new one, until nothing is left that it signed.
    No key shows in the text or the pickle of a signer: where one is unpickled, its keys come from the environment
    variable `KEY_VARIABLE` of that process.

    Args:
        keys: at least one, each of 16 bytes or more.

    Raises:
        GraphError: if there is none, or one is too short.
    """

    __slots__ = ("_keys", "_missing")

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise GraphError("a signer needs at least one key; got none")
        self._keys = _by_id(keys)
        self._missing: str | None = None

    @classmethod
    def of(cls, signing_key: str | bytes | Sequence[str | bytes] | None = None) -> Signer | None:
        """Make a signer of one key, or several with the one in use first; None means those in the environment.

        Returns:
            None where there is no key at all.

        Raises:
            GraphError: if a key is too short, or is no key.
        """
        if signing_key is None:
            found = _keys_in_environment()
            return cls(found) if found else None
        if isinstance(signing_key, str | bytes):
            return cls([_key_bytes(signing_key)])
        if not isinstance(signing_key, Sequence):
            raise GraphError(f"signing_key must be str, bytes or a list of them; got {type(signing_key).__name__}")
        keys: list[Any] = [_key_bytes(key) for key in signing_key]
        return cls(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """What tells the keys apart, and tells nothing about them; the one that signs comes first."""
        return tuple(self._keys)

    def sign(self, data: bytes) -> str:
        """Sign bytes: ``keyid:hexmac``.

        Raises:
            SnapshotError: if the signer came from another process, and its key is not in this one's environment.
        """
        key_id, key = next(iter(self._usable().items()))
        return f"{key_id}:{hmac_digest(key, data, sha256).hex()}"

    def verify(self, data: bytes, mac: str) -> bool:
        """Tell whether one of the keys signed these bytes so.

        Raises:
            SnapshotError: if the signer came from another process, and its key is not in this one's environment.
        """
        keys = self._usable()
        parts = _MAC.fullmatch(mac)
        if parts is None or parts[1] not in keys:
            return False
        return compare_digest(hmac_digest(keys[parts[1]], data, sha256), bytes.fromhex(parts[2]))

    def _usable(self) -> dict[str, bytes]:
        if self._missing is not None:
            raise SnapshotError(f"the signing key {self._missing} is not in this process; set {KEY_VARIABLE} in it")
        return self._keys

    def __repr__(self) -> str:
        return f"Signer({', '.join(self._keys) or self._missing})"

    def __copy__(self) -> Signer:
        return self

    def __deepcopy__(self, _memo: Any) -> Signer:
        return self

    def __getstate__(self) -> str:
        """Pickle the id of the key that signs, and no key."""
        return self._missing or next(iter(self._keys))

    def __setstate__(self, key_id: str) -> None:
        """Find the keys in this process's environment; without the one that signs, every use is an error."""
        keys = _by_id(_keys_in_environment())
        self._missing = None if key_id in keys else key_id
        self._keys = {} if self._missing else {key_id: keys[key_id], **keys}


def _by_id(keys: Sequence[bytes]) -> dict[str, bytes]:
    for place, key in enumerate(keys, 1):
        if not isinstance(key, bytes):
            raise GraphError(f"signing key {place} must be str or bytes; got {type(key).__name__}")
        if len(key) < _SHORTEST:
            raise GraphError(
                f"signing key {place} has {len(key)} bytes; it needs at least {_SHORTEST}; "
                "make one by python -c 'import secrets; print(secrets.token_hex(32))'"
            )
    return {hmac_digest(key, b"malflow: the id of this key", sha256)[:4].hex(): key for key in keys}


def _keys_in_environment() -> list[bytes]:
    return [_key_bytes(key.strip()) for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]


def _key_bytes(key: Any) -> Any:
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


_SECRET_NAME = re.compile(
    r"key|secret|token|passw|passphrase|pwd|credential|signature|auth|cookie|connection_?str|(?<![a-z])sas(?![a-z])",
    re.IGNORECASE,
)
_HIDDEN = "***"
_WHOLE_WORD = 4
_KEY_ID_LENGTH = 16

_PARAMETER = r"(?P<name>(?:sig|[\w.-]{0,64}(?:key|secret|token|passw|pwd|credential|signature|auth)[\w.-]{0,64})=)"
_FIELD = r"[\w.-]{0,64}(?:secret|token|passw|pwd|credential|signature|(?:access|account|private)[_-]?key)[\w.-]{0,64}"
_PATTERNS: Final = (  # each quantifier that may fail late is bounded, so that a long text takes linear time
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
    """Tell whether an option of this name holds something that no text may show.

    >>> is_secret_name("aws_secret_access_key"), is_secret_name("sas_token"), is_secret_name("endpoint_url")
    (True, True, False)
    """
    return _SECRET_NAME.search(name) is not None


def secrets_in(options: Mapping[str, Any], url: str = "") -> list[str]:
    """Collect the secrets in storage options, however deep, and in a URL, for `redacted`.

    >>> secrets_in({"key": "AKIA1234", "client_kwargs": {"password": "hush", "region": "eu"}}, "ftp://me:psst@host/x")
    ['AKIA1234', 'hush', 'psst']
    """
    found = [*_secrets_under(options, secret=False), *_secrets_of_url(url)]
    return list(dict.fromkeys(secret for secret in found if secret))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    r"""Take what is secret out of a text, and escape its control characters.

    Hidden are the given secrets, also quoted as URLs and texts quote them, and whatever looks like userinfo in a URL,
    a signature or token in a query, or an authorization header.

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


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    raw = secret.encode("utf-8", "surrogatepass")
    yield quote(raw)
    yield quote(raw, safe="")
    yield quote_plus(raw)


def _secrets_under(value: Any, *, secret: bool) -> Iterator[str]:
    """Give every text in a value if it is secret, and those below secret names otherwise."""
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
    """Give what stands before the host; also where a password with a slash in it was not quoted."""
    authority = path.partition("/")[0]
    before, at, _ = authority.rpartition("@")
    if at:
        return before
    _, colon, port = authority.partition(":")
    return path.rpartition("@")[0] if colon and not port.isdigit() else ""
