"""Answers of a web server for look-ups: one request for all keys of a batch, or one for each key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, time
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import UUID

from malflow.checks import check_function, check_mapping, check_whole_number
from malflow.connectors.codecs.plain import Decode, decoder_of
from malflow.connectors.http.client import Client, HttpSinkError, checked_headers, target_of
from malflow.connectors.key_texts import json_key, number_text
from malflow.connectors.options import checked_timeout
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.lookups.contract import LookupTable
from malflow.store.redaction import redacted
from malflow.words import error_line, plural, short_repr

__all__ = ["HttpLookup", "HttpLookupError"]

_GONE = frozenset({404, 410})
_PLACE = "{}"
_SPELLED = (date, time, UUID)
_NO_SEGMENTS = ("", ".", "..")
"""Segments of paths that mean another path."""
_BODIES = ("json", "bytes", "text")


class HttpLookupError(MalflowError, OSError):
    """A server rejected a look-up, could not be reached, or its response is not one."""


class HttpLookup(LookupTable[Any, Any]):
    """Look up keys on a web server.

    If the URL contains ``{}``, each key has a URL of its own, in which the key replaces it, percent-encoded. It is
    requested by ``GET``; status 404 or 410 means that the key has no row. Several are requested at a time. A key is
    text, or a number, date, time or UUID; None has no row, and is not asked for. Keys that are equal, such as 1 and
    1.0, have one URL.

    Otherwise, one request by ``POST`` has all distinct keys of a batch of records, at most `batch`, as a JSON array.
    The response must be a JSON array of as many rows in the same order, with null where a key has none, or an object
    with the keys as text.

    Requests that fail for a while are repeated: connections that fail, and status 408, 425, 429, 500, 502, 503, 504.

    Args:
        url: such as ``https://example.org/users`` or ``https://example.org/users/{}``.
        decode: the decoder of a body: ``"json"``, ``"text"``, ``"bytes"``, a `Decoder`, or a function of the bytes. One
            request for several keys needs the default.
        encode: returns the body of a request for several keys, for a list of them.
        headers: headers of each request, such as ``{"Authorization": "Bearer ..."}``. Never shown.
        batch: the maximum number of keys in a request.
        at_once: how many requests of a batch of records are under way at a time.
        retries: how often to repeat a request.
        timeout: how long to wait for a connection, for the whole head of a response, and for its body.
        largest: the maximum size of a response in bytes.
        settings: arguments of `urllib3.PoolManager`, such as ``{"ca_certs": "ca.pem"}``. Never shown.

    Raises:
        GraphError: if an argument is invalid.

    >>> HttpLookup("https://me:hush@example.org/users/{}")
    HttpLookup('https://example.org/...')
    """

    def __init__(
        self,
        url: str,
        *,
        decode: Decode = "json",
        encode: Callable[[list[Any]], bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        batch: int = 1_000,
        at_once: int = 8,
        retries: int = 8,
        timeout: Duration = 30.0,
        largest: int = 64 << 20,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "HttpLookup"
        for option, count in (("batch", batch), ("at_once", at_once), ("largest", largest)):
            check_whole_number(me, option, count)
        check_whole_number(me, "retries", retries, least=0)
        seconds = checked_timeout(me, timeout)
        check_mapping(me, "settings", settings, "arguments of urllib3.PoolManager")
        if encode is not None:
            check_function(me, "encode", encode)
        self._by_url = isinstance(url, str) and _PLACE in url
        if self._by_url and encode is not None:
            raise GraphError(f"{me} whose URL has {_PLACE} requests each key by itself, without a body; remove encode=")
        kinds = {} if self._by_url else {"Content-Type": "application/json"}
        target = target_of(url, {**kinds, **checked_headers({} if headers is None else headers, me)}, me)
        self._url = target.url.replace(quote(_PLACE), _PLACE)
        self._shown, self._secrets = target.shown, target.secrets
        self._encode, self._decoder = encode or _as_json, decoder_of(decode, me)
        self._batch, self._at_once = (1 if self._by_url else batch), at_once
        self._options: dict[str, Any] = {
            "target": target,
            "method": "GET" if self._by_url else "POST",
            "retries": retries,
            "timeout": seconds,
            "settings": settings or {},
            "largest": largest,
            "asked_by": me,
        }
        self._clients = [Client(**self._options)]

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the rows of some keys.

        Raises:
            HttpLookupError: if the server rejects a request, has not accepted it after all retries, or its response is
                too large, does not fit the keys or can't be decoded.
        """
        keys = [key for key in keys if key is not None]
        if not keys:
            return {}
        parts = [keys[start : start + self._batch] for start in range(0, len(keys), self._batch)]
        if len(parts) == 1:
            return self._asked(parts[0])
        rows: dict[Any, Any] = {}
        with ThreadPoolExecutor(min(self._at_once, len(parts))) as pool:
            for found in pool.map(self._asked, parts):
                rows |= found
        return rows

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def _asked(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        try:
            client = self._clients.pop()
        except IndexError:
            client = Client(**self._options)
        try:
            return self._by_key(client, keys[0]) if self._by_url else self._together(client, list(keys))
        finally:
            self._clients.append(client)

    def _by_key(self, client: Client, key: Any) -> Mapping[Any, Any]:
        url = self._url_of(key)
        try:
            body = client.send(None, {}, url)
        except HttpSinkError as error:
            if error.status in _GONE:
                return {}
            raise self._failed(key, error.problem) from None
        return {key: self._decoded(key, body)}

    def _url_of(self, key: Any) -> str:
        """Return the URL of a key; a key that would change the path around it is refused."""
        try:
            text = _text_of(key)
            url = self._url.replace(_PLACE, quote(text, safe=""))
        except (TypeError, ValueError) as error:
            raise self._failed(key, f"can't be asked: the key has no place in a URL: {error}") from error
        if text in _NO_SEGMENTS and any(it == _PLACE for it in urlsplit(self._url).path.split("/")):
            raise self._failed(key, f"can't be asked: the path would be another one with the key {text!r}")
        return url

    def _together(self, client: Client, keys: list[Any]) -> Mapping[Any, Any]:
        try:
            asked = self._encode(keys)
        except Exception as error:
            raise self._failed(keys[0], f"the keys can't be encoded: {_told(error)}") from error
        try:
            body = client.send(asked, {})
        except HttpSinkError as error:
            raise self._failed(keys[0], error.problem) from None
        answer = self._decoded(keys[0], body)
        if isinstance(answer, list) and len(answer) == len(keys):
            return dict(zip(keys, answer, strict=True))
        if isinstance(answer, dict):
            by_text = {_name_of(key): key for key in keys}
            if len(by_text) < len(keys):
                raise self._failed(keys[0], "can't answer with an object: two keys have the same text")
            if answer.keys() <= by_text.keys():
                return {by_text[text]: row for text, row in answer.items()}
            unasked = next(text for text in answer if text not in by_text)
            raise self._failed(keys[0], f"answered with a row of {short_repr(unasked)}, which was not asked for")
        got = f"an array of {len(answer)}" if isinstance(answer, list) else short_repr(answer)
        raise self._failed(keys[0], f"must answer with an array of {plural(len(keys), 'row')}, or an object; got {got}")

    def _decoded(self, key: Any, body: bytes) -> Any:
        try:
            return self._decoder.decode(body)
        except Exception as error:
            raise self._failed(key, f"answered with a body that can't be decoded: {_told(error)}") from error

    def _failed(self, key: Any, problem: str) -> HttpLookupError:
        return HttpLookupError(redacted(f"{self._shown} {problem} (for key {short_repr(key)})", self._secrets))

    def __repr__(self) -> str:
        return f"HttpLookup({self._shown!r})"


def _as_json(keys: list[Any]) -> bytes:
    return json.dumps([json_key(key) for key in keys], allow_nan=False).encode()


def _text_of(key: Any) -> str:
    """Return the text of a key for a URL: the same for keys that are equal.

    Raises:
        TypeError: if the key is neither text nor a number, date, time or UUID.
    """
    if isinstance(key, str):
        return str.__str__(key)
    return str(key) if isinstance(key, _SPELLED) else number_text(key)


def _name_of(key: Any) -> str:
    """Return the name of a key in a JSON object."""
    return number_text(key) if isinstance(key, (int, float)) and not isinstance(key, bool) else str(key)


def _told(error: Exception) -> str:
    return error_line(error)
