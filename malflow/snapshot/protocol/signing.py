"""HMAC-SHA256 signatures of a job's manifests, with key rotation."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Any, Final

from malflow.errors import GraphError, SnapshotError
from malflow.words import plural

__all__ = ["KEY_VARIABLE", "Signer"]

KEY_VARIABLE: Final = "MALFLOW_SIGNING_KEY"
"""The environment variable with the signing key, or several separated by commas; the first one signs."""

_SHORTEST = 16
"""Bytes of a key: 128 bits can't be guessed. Half could be; double would refuse safe keys."""

_MAC = re.compile(r"([0-9a-f]{8}):([0-9a-f]{64})")


class Signer:
    """Signs bytes with the first of its keys, and verifies with all of them.

    To rotate keys, put the new one first and keep the old one until nothing signed with it is retained. Keys appear
    neither in the repr nor in the pickle of a signer: an unpickled signer takes its keys from the environment variable
    `KEY_VARIABLE` of its process.

    Args:
        keys: at least one key, each of 16 bytes or more.

    Raises:
        GraphError: if there is no key, or one is too short.
    """

    __slots__ = ("_keys", "_missing")

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise GraphError("a signer needs at least one key; got none")
        self._keys = _by_id(keys)
        self._missing: str | None = None

    @classmethod
    def of(cls, signing_key: str | bytes | Sequence[str | bytes] | Signer | None = None) -> Signer | None:
        """Return a signer for one or several keys, the first of which signs; None means those in the environment.

        Returns:
            None if there is no key.

        Raises:
            GraphError: if a key is too short or of the wrong type.
        """
        if signing_key is None:
            found = _keys_in_environment()
            return cls(found) if found else None
        if isinstance(signing_key, Signer):
            return signing_key
        if isinstance(signing_key, str | bytes):
            return cls([_key_bytes(signing_key)])
        if not isinstance(signing_key, Sequence):
            raise GraphError(f"signing_key must be str, bytes or a list of them; got {type(signing_key).__name__}")
        keys: list[Any] = [_key_bytes(key) for key in signing_key]
        return cls(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys. They reveal nothing about the keys; the key that signs comes first."""
        return tuple(self._keys)

    def sign(self, data: bytes) -> str:
        """Return the signature of bytes, as ``keyid:hexmac``.

        Raises:
            SnapshotError: if the signer was unpickled, and its key is not in this process's environment.
        """
        key_id, key = next(iter(self._usable().items()))
        return f"{key_id}:{hmac_digest(key, data, sha256).hex()}"

    def verify(self, data: bytes, mac: str) -> bool:
        """Whether this is the signature of the bytes under one of the keys.

        Raises:
            SnapshotError: if the signer was unpickled, and its key is not in this process's environment.
        """
        keys = self._usable()
        parts = _MAC.fullmatch(mac)
        if parts is None or parts[1] not in keys:
            return False
        return compare_digest(hmac_digest(keys[parts[1]], data, sha256), bytes.fromhex(parts[2]))

    def _usable(self) -> dict[str, bytes]:
        if self._missing is not None:
            raise SnapshotError(
                f"the signing key {self._missing} is not known to this process; set {KEY_VARIABLE} in its environment"
            )
        return self._keys

    def __repr__(self) -> str:
        return f"Signer({', '.join(self._keys) or self._missing})"

    def __copy__(self) -> Signer:
        return self

    def __deepcopy__(self, _memo: Any) -> Signer:
        return self

    def __getstate__(self) -> str:
        """Return the id of the signing key; no key is pickled."""
        return self._missing or next(iter(self._keys))

    def __setstate__(self, key_id: str) -> None:
        """Take the keys from the environment; if the signing key is not there, every use is an error."""
        keys = _by_id(_keys_in_environment())
        self._missing = None if key_id in keys else key_id
        self._keys = {} if self._missing else {key_id: keys[key_id], **keys}


def _by_id(keys: Sequence[bytes]) -> dict[str, bytes]:
    for place, key in enumerate(keys, 1):
        if not isinstance(key, bytes):
            raise GraphError(f"signing key {place} must be str or bytes; got {type(key).__name__}")
        if len(key) < _SHORTEST:
            raise GraphError(
                f"signing key {place} has {plural(len(key), 'byte')}; it needs at least {_SHORTEST}; "
                "create one with python -c 'import secrets; print(secrets.token_hex(32))'"
            )
    return {hmac_digest(key, b"malflow: the id of this key", sha256)[:4].hex(): key for key in keys}


def _keys_in_environment() -> list[bytes]:
    return [_key_bytes(key.strip()) for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]


def _key_bytes(key: Any) -> Any:
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
