"""The names of folders of a run, which encode the process that owns them."""

from __future__ import annotations

import re
import secrets
import tempfile
from typing import Final

from malflow.runtime.owners import OWNER, Owner

__all__ = ["OF_QUERY", "OF_SCRATCH", "owner_of_run", "owner_of_temporary", "run_name", "temporary_folder"]

OF_QUERY: Final = "malflow-query"
OF_SCRATCH: Final = "malflow-scratch"

_RUN = re.compile(rf"[0-9a-f]{{16}}-{OWNER}")
_TEMPORARY = re.compile(rf"(?:{OF_QUERY}|{OF_SCRATCH})-{OWNER}-[a-z0-9_]{{8}}")


def owner_of_run(name: str) -> Owner | None:
    """Return the owner in the name of a run's folder below ``scratch=``; None for any other name."""
    return Owner.within(name, _RUN)


def owner_of_temporary(name: str) -> Owner | None:
    """Return the owner in the name of a temporary folder; None for any other name."""
    return Owner.within(name, _TEMPORARY)


def run_name() -> str:
    """Return a new run id that encodes its owner."""
    return f"{secrets.token_hex(8)}-{Owner.here()}"


def temporary_folder(kind: str) -> str:
    """Create a temporary folder with a name that encodes its owner; return its path."""
    return tempfile.mkdtemp(prefix=f"{kind}-{Owner.here()}-")
