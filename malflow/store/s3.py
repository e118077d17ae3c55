"""The outcome of an S3 request, and a client that sends each request once.

The outcome is read from the response's status and code; the class of the exception depends on the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from malflow.errors import StoreError
from malflow.store.contract import KeyExists, KeyMissing, Transient, UnknownOutcome
from malflow.words import error_line

__all__ = [
    "chain",
    "client_options",
    "hint_for",
    "hint_in",
    "is_empty_range",
    "reason_of",
    "time_limit",
    "verdict_on_read",
    "verdict_on_write",
    "with_hint",
]

_SLOWEST = 500_000
"""The bytes per second below which a connection counts as broken."""

_REFUSED = frozenset({301, 307, 400, 401, 403, 405, 411, 413, 501})
_REFUSED_FOR_NOW = frozenset(
    {"BadDigest", "ConditionalRequestConflict", "IncompleteBody", "OperationAborted", "RequestTimeout"}
)
_ACCESS = "check {keys}; if they are right, check that the endpoint is theirs: {endpoint}"
_DENIED = "allow it in the bucket's policy, or check {keys}"
_HINTS = {
    "AccessDenied": _DENIED,
    "ExpiredToken": "renew the credentials",
    "InvalidAccessKeyId": _ACCESS,
    "InvalidToken": _ACCESS,
    "NoSuchBucket": "create the bucket, or check its name and the endpoint: {endpoint}",
    "NotImplemented": "the server can't create objects exclusively",
    "RequestTimeTooSkewed": "set the clock",
    "SignatureDoesNotMatch": _ACCESS,
    "XAdminUserNotFound": _ACCESS,
}
"""The remedy for an error, by its code."""

_HINTS_BY_STATUS = {401: _ACCESS, 403: f"{_ACCESS}; or allow it in the bucket's policy"}
_OF_S3FS = {
    "keys": "key and secret in storage_options, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "endpoint": "endpoint_url in storage_options, or AWS_ENDPOINT_URL",
}
_OF_DELTALAKE = {"keys": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "endpoint": "AWS_ENDPOINT_URL"}
_CODE = re.compile(r"<Code>(\w+)</Code>")


def verdict_on_write(error: Exception) -> type[Exception]:
    """Return the outcome of a conditional PUT; `UnknownOutcome` unless the response is conclusive."""
    response = _response(error)
    if response is None:
        return StoreError if _was_never_sent(error) else UnknownOutcome
    status, code, _ = response
    if status == 412 or code == "PreconditionFailed":  # noqa: PLR2004 - an HTTP status is its own name
        return KeyExists
    if status == 409 or code in _REFUSED_FOR_NOW:  # noqa: PLR2004
        return Transient
    return StoreError if status in _REFUSED or code == "NoSuchBucket" else UnknownOutcome


def verdict_on_read(error: Exception) -> type[Exception]:
    """Return the outcome of any other request; these are idempotent."""
    response = _response(error)
    if response is None:
        return Transient if _is_of_the_network(error) else StoreError
    status, code, _ = response
    if status == 404 and code == "NoSuchKey":  # noqa: PLR2004
        return KeyMissing
    is_passing = status in (409, 429) or status >= 500 or code in (*_REFUSED_FOR_NOW, "SlowDown")  # noqa: PLR2004
    return Transient if is_passing and status != 501 else StoreError  # noqa: PLR2004


def is_empty_range(error: Exception) -> bool:
    """Whether the response says that the object is empty."""
    response = _response(error)
    return response is not None and response[0] == 416  # noqa: PLR2004


def reason_of(error: Exception) -> str:
    """Return the message of the server or, without a response, of the client."""
    response = _response(error)
    if response is None:
        return error_line(error)
    status, code, message = response
    return f"{code}: {message} (HTTP {status})" if code != str(status) else f"{message} (HTTP {status})"


def hint_for(error: Exception) -> str | None:
    """Return the remedy for an error, or None if unknown."""
    response = _response(error)
    if response is not None:
        hint = _HINTS.get(response[1]) or _HINTS_BY_STATUS.get(response[0])
        return None if hint is None else hint.format(**_OF_S3FS)
    if any(type(cause).__name__ in ("NoCredentialsError", "PartialCredentialsError") for cause in chain(error)):
        return "pass key and secret in storage_options, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return None


def with_hint(problem: str, error: Exception) -> str:
    """Return a problem, with the remedy for the error if known."""
    hint = hint_for(error)
    return problem if hint is None else f"{problem}; {hint}"


def hint_in(answer: str) -> str | None:
    """Return the remedy for an error of deltalake, or None if unknown. The error's text has the server's answer."""
    found = _CODE.search(answer)
    hint = None if found is None else _HINTS.get(found[1])
    return None if hint is None else hint.format(**_OF_DELTALAKE)


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return s3fs options for a client with timeouts and without retries; the user's options take precedence."""
    config = {
        "connect_timeout": 5,
        "read_timeout": 30,
        "retries": {"total_max_attempts": 1},
        "http_session_cls": _session_class(),
    }
    return {**options, "config_kwargs": {**config, **(options.get("config_kwargs") or {})}}


def time_limit(filesystem: Any, size: int) -> float | None:
    """Return the time limit in seconds of a request that transfers `size` bytes.

    The client's own timeouts only limit silence, start late, and are sometimes not applied by aiohttp.
    """
    waits = [filesystem.config_kwargs.get(name) for name in ("connect_timeout", "read_timeout")]
    return None if None in waits else sum(waits) + size / _SLOWEST


def _session_class() -> type:
    from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped] # noqa: PLC0415 - an extra

    class OneTrySession(AIOHTTPSession):  # type: ignore[misc] # it has no types
        """Keeps aiohttp from silently resending a PUT after the connection broke."""

        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False  # noqa: SLF001 - there is no other way
            return session

    return OneTrySession


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it was raised from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _response(error: Exception) -> tuple[int, str, str] | None:
    """Return status, code and message of the server's response; None if there was none."""
    for link in chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, Mapping) and "Error" in response:
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return int(status), str(response["Error"].get("Code", status)), str(response["Error"].get("Message", ""))
    return None


def _was_never_sent(error: Exception) -> bool:
    from botocore import exceptions  # type: ignore[import-untyped] # noqa: PLC0415 - an extra

    before_sending = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.ProfileNotFound,
        exceptions.SSOError,
        exceptions.ParamValidationError,
        exceptions.BaseEndpointResolverError,
        exceptions.EndpointProviderError,
        exceptions.InvalidEndpointConfigurationError,
    )
    return any(isinstance(link, before_sending) for link in chain(error))


def _is_of_the_network(error: Exception) -> bool:
    from aiohttp import ClientError  # noqa: PLC0415 - an extra
    from botocore import exceptions  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped] # noqa: PLC0415

    broken = (
        OSError,
        ClientError,
        ResponseParserError,
        exceptions.HTTPClientError,
        exceptions.ConnectionError,
        exceptions.IncompleteReadError,
        exceptions.ChecksumError,
        exceptions.FlexibleChecksumError,
    )
    return isinstance(error, broken)
