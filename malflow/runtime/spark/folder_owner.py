"""The process that owns a run's folder, encoded in its name, and whether it is known to have ended."""

from __future__ import annotations

import os
import platform
import re
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

__all__ = ["OF_QUERY", "OF_SCRATCH", "Owner", "run_name", "temporary_folder"]

OF_QUERY: Final = "malflow-query"
OF_SCRATCH: Final = "malflow-scratch"

_UNKNOWN = 16 * "0"
_OWNER = r"(?P<machine>[0-9a-f]{16})-(?P<pid>[1-9][0-9]{0,8})-(?P<started>[0-9]{1,18})"
_RUN = re.compile(rf"[0-9a-f]{{16}}-{_OWNER}")
_TEMPORARY = re.compile(rf"(?:{OF_QUERY}|{OF_SCRATCH})-{_OWNER}-[a-z0-9_]{{8}}")
_ENDED = ("Z", "X")
"""States of processes that have ended and wait to be reaped (zombies)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that owns a folder.

    Attributes:
        machine: a digest that identifies the scope of process ids: the machine's name, its boot id and the Linux
            namespaces, of which a container has its own. Zeros where these are unknown, as on macOS.
        pid: the process id.
        started: the start time in clock ticks since boot, since process ids are reused.
    """

    machine: str
    pid: int
    started: int

    @classmethod
    def here(cls) -> Owner:
        """Return this process as an owner."""
        found = _found(os.getpid())
        return cls(_machine() if found else _UNKNOWN, os.getpid(), found[1] if found else 0)

    @classmethod
    def of_run(cls, name: str) -> Owner | None:
        """Return the owner in the name of a run's folder below ``scratch=``; None for any other name."""
        return cls._named(_RUN.fullmatch(name))

    @classmethod
    def of_temporary(cls, name: str) -> Owner | None:
        """Return the owner in the name of a temporary folder; None for any other name."""
        return cls._named(_TEMPORARY.fullmatch(name))

    @classmethod
    def _named(cls, match: re.Match[str] | None) -> Owner | None:
        return None if match is None else cls(match["machine"], int(match["pid"]), int(match["started"]))

    @property
    def is_here(self) -> bool:
        """Whether the process runs or ran in this container or machine, since its last boot."""
        return self.machine != _UNKNOWN and self.machine == _machine()

    @property
    def is_dead(self) -> bool:
        """Whether the process is known to have ended; False for a process of another machine."""
        return self.is_here and not self._may_live()

    def _may_live(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's process
            pass
        found = _found(self.pid)
        return found is None or (found[0] not in _ENDED and found[1] == self.started)

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.started}"


def run_name() -> str:
    """Return a new run id that encodes its owner."""
    return f"{secrets.token_hex(8)}-{Owner.here()}"


def temporary_folder(kind: str) -> str:
    """Create a temporary folder whose name encodes its owner; return its path."""
    return tempfile.mkdtemp(prefix=f"{kind}-{Owner.here()}-")


def _found(pid: int) -> tuple[str, int] | None:
    """Return the state and start time of a process; None if the system does not report them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _machine() -> str:
    try:
        if _link("/proc/self") != str(os.getpid()):  # /proc is that of another container
            return _UNKNOWN
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        spaces = [_link("/proc/self/ns/pid")]
    except (OSError, ValueError):
        return _UNKNOWN
    with suppress(OSError):  # older kernels have none
        spaces.append(_link("/proc/self/ns/time"))
    return blake2b("\n".join([platform.node(), boot, *spaces]).encode(), digest_size=8).hexdigest()


def _link(path: str) -> str:
    return str(Path(path).readlink())
