"""Texts of files that refer to variables of the environment, and secrets that are written in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from malflow.store.redaction import is_secret_name, redacted

__all__ = ["Secret", "expanded", "is_secret", "is_written_secret", "referenced", "references"]

_REFERENCE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|\$\{")
_PASSWORD = re.compile(r"://[^/?#\s@:]*:[^/?#\s@]+@")
_PARAMETER = re.compile(r"[?&]([^=&]+)=[^&]+")
_OF_COLUMNS: Final = (("key",), ("decode_key",), ("encode_key",))
"""Options of connectors that are about the keys of records."""


class Secret(str):
    """A text that contains secrets. Its repr hides them.

    Attributes:
        secrets: the secret parts.
    """

    __slots__ = ("secrets",)
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, text: str, secrets: tuple[str, ...]) -> str:
        """Return a text with these secrets in it; a plain one if there are none."""
        if not any(secrets):
            return text
        made = cls(text)
        made.secrets = secrets
        return made

    def __repr__(self) -> str:
        return repr(redacted(str(self), self.secrets))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret.of, (str(self), self.secrets)


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Return a text of a file with the variables that it refers to; their values are not expanded again.

    Raises:
        ValueError: if a variable is missing, or a reference is malformed; with the reason, without the value.

    >>> expanded("kafka://${BROKERS:-localhost:9092}/${TOPIC}, 5 $$", {"TOPIC": "orders"})
    'kafka://localhost:9092/orders, 5 $'
    """
    secrets: list[str] = []

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found["name"]
        if name is None:
            raise ValueError("has a malformed '${'; write ${NAME}, ${NAME:-default}, or $$ for a dollar sign")
        if name not in env and found["default"] is None:
            raise ValueError(f"needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}")
        given = env.get(name) or found["default"] or ""
        if is_secret_name(name):
            secrets.append(given)
        return given

    return Secret.of(_REFERENCE.sub(value, text), tuple(secrets))


def referenced(value: Any) -> Iterator[str]:
    """Yield the variables to which the texts in a table or list refer.

    >>> sorted(referenced({"serve": {"token": "${TOKEN}"}, "urls": ["s3://${BUCKET:-b}", "$$"]}))
    ['BUCKET', 'TOKEN']
    """
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from referenced(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from referenced(inner)
    elif isinstance(value, str):
        yield from (found["name"] for found in _REFERENCE.finditer(value) if found["name"])


def references(text: str) -> bool:
    """Whether a text refers to a variable."""
    return any(found[0] != "$$" for found in _REFERENCE.finditer(text))


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether a setting holds a secret, by its name; the name of an operator is not one, nor are columns.

    >>> is_secret(("persistence", "signing_key")), is_secret(("operators", "auth", "options", "key"))
    (True, False)
    """
    if path[0] != "operators":
        return any(map(is_secret_name, path))
    return path[3:] not in _OF_COLUMNS and any(map(is_secret_name, path[2:]))


def is_written_secret(path: tuple[str, ...], text: str) -> bool:
    """Whether a text of a file, which refers to no variable, has a secret: by its name, or in a URL.

    >>> is_written_secret(("run", "persistence"), "s3://me:hush@host/x"), is_written_secret(("run", "job"), "hush")
    (True, False)
    """
    if is_secret(path):
        return bool(text)
    named = (found[1] for found in _PARAMETER.finditer(text) if (found[1],) not in _OF_COLUMNS)
    return "://" in text and (_PASSWORD.search(text) is not None or any(map(is_secret_name, named)))
