"""The process that owns something on disk, such as a run's folder, and whether it is known to have ended."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

__all__ = ["OWNER", "Owner"]

OWNER: Final = r"(?P<machine>[0-9a-f]{16})-(?P<pid>[1-9][0-9]{0,8})-(?P<started>[0-9]{1,18})"
"""The text of an owner, as a regular expression."""

_UNKNOWN = 16 * "0"
_ENDED = ("Z", "X")
"""States of processes that have ended and wait to be reaped (zombies)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns something on disk; as text, it can be part of a file name.

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
    def within(cls, name: str, pattern: re.Pattern[str]) -> Owner | None:
        """Return the owner in a name that matches a pattern with `OWNER` in it; None for any other name."""
        match = pattern.fullmatch(name)
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
