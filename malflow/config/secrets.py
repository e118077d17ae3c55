"""Secrets of a configuration: where files take them from, and the text that is shown in their place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from malflow.durations import span_text
from malflow.store.redaction import redacted, secrets_in
from malflow.store.references import Secret, is_secret
from malflow.words import short_repr

__all__ = ["HIDDEN", "read_secret", "shown"]

HIDDEN: Final = "***"

_LARGEST_SECRET = 65_536
"""The largest secret in bytes: a chain of certificates fits. The limit keeps a wrong path, such as a device without an
end, out of memory."""


def read_secret(name: str, folder: Path) -> str:
    """Return the content of a file with a secret, without the line break at its end.

    Raises:
        ValueError: if it can't be read, is too large, or is not text.
    """
    path = folder / name
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_SECRET + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"needs the file {short_repr(str(path))}, which can't be read: {reason}") from None
    if len(content) > _LARGEST_SECRET:
        raise ValueError(f"needs a secret of at most 64 kB; {short_repr(str(path))} is larger")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"needs text in UTF-8; {short_repr(str(path))} has other bytes") from None
    text = text.removesuffix("\n").removesuffix("\r")
    return Secret.of(text, (text,))


def shown(path: tuple[str, ...], value: Any) -> str:
    """Return a value as text without secrets.

    >>> shown(("run", "persistence"), "s3://me:hush@host/x"), shown(("serve", "token"), "hush")
    ("'s3://***@host/x'", '***')
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {shown((*path, str(name)), it)}' for name, it in value.items())}}}"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if path and is_secret(path):
        return HIDDEN
    if isinstance(value, str):
        secrets = value.secrets if isinstance(value, Secret) else ()
        return repr(redacted(str(value), (*secrets, *secrets_in({}, str(value)))))
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(path, it) for it in value)}]"
    if isinstance(value, timedelta):
        return span_text(value)
    if isinstance(value, date):
        return value.isoformat()
    return redacted(repr(value) if type(value).__module__.startswith("malflow.config") else short_repr(value))
