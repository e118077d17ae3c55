"""Signatures over a job's objects: HMAC-SHA256 with keys that can be rotated."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Any, Final

from malflow.errors import GraphError, SnapshotError

__all__ = ["KEY_VARIABLE", "Signer"]

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
