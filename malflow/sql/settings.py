"""The keys of SET: the ones that have a meaning here, and what to do instead of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow.sql.bind.hints import POLICIES
from malflow.sql.watermarks import read_span
from malflow.words import did_you_mean, resembling

__all__ = ["Settings"]

_ON_ERROR, _IDLE = "malflow.on-error", "table.exec.source.idle-timeout"
_NEW = "malflow.new-aggregates"
_ONLY = {
    "table.local-time-zone": ("UTC", "Etc/UTC", "GMT"),
    "execution.runtime-mode": ("streaming",),
    "table.sql-dialect": ("default",),
}
"""Keys with one value: what holds anyway."""

_ONLY_WHY = {
    "table.local-time-zone": "the time zone is UTC",
    "execution.runtime-mode": "rows are computed as they come",
    "table.sql-dialect": "the language is that of Flink",
}

_INSTEAD = {
    "table.dml-sync": "all INSERTs run together, until their inputs end",
    "pipeline.name": "name the job: malflow run --job NAME, or job in malflow.toml",
    "parallelism": "write malflow run --parallelism N, or parallelism in malflow.toml",
    "pipeline.max-parallelism": "state moves to any number of workers",
    "table.exec.state.ttl": "each state ends with its windows, or with its bounds in time",
    "table.exec.resource": "write malflow run --parallelism N; all operators have the same workers",
    "execution.checkpointing": "write malflow run --persistence URL --snapshots 10s",
    "execution.savepoint": "write malflow run --persistence URL --restore ID",
    "state": "write malflow run --persistence URL",
    "restart-strategy": "write restarts in malflow.toml",
    "table.exec.mini-batch": "rows are computed in batches as they come",
    "table.exec.async": "look-ups of Python call out at once",
    "table.optimizer": "there is no optimiser: a query has one plan",
    "table.plan": "there is no optimiser: a query has one plan",
    "sql-client": "malflow sql has options of its own",
    "pipeline": "malflow.toml has the settings of a run",
    "rest": "there is no cluster; malflow.toml has the settings of a run",
    "jobmanager": "there is no cluster; malflow.toml has the settings of a run",
    "taskmanager": "there is no cluster; malflow.toml has the settings of a run",
    "execution": "malflow.toml has the settings of a run",
}
"""Keys of Flink, or their beginnings, that have no meaning here."""

_OF_NEW = ("refuse", "from-now")
"""Whether a state that lacks an aggregate is refused, or begins it now: with NULL, or 0 of COUNT."""

_ALIKE = 0.85
"""How alike a key of Flink is to one of ours that was meant: one or two letters are others."""


class Settings:
    """What SET has set. The policy holds for the statements after it, the rest for all queries.

    Attributes:
        on_error: the policy for rows that fail.
        idle_after: the silence after which time advances without a source.
        is_read: whether a source with a watermark has been built.
        from_now: whether states may begin without aggregates and columns that a snapshot lacks.
        is_queried: whether a query has been read.
    """

    def __init__(self) -> None:
        self.on_error = "fail"
        self.idle_after: timedelta | None = None
        self.is_read = False
        self.from_now = False
        self.is_queried = False

    def set(self, key: str, value: str) -> str:
        """Set a key; return why that can't be, or an empty text."""
        if key == _ON_ERROR:
            return self._set_on_error(value)
        if key == _IDLE:
            return self._set_idle_after(value)
        if key == _NEW:
            return self._set_from_now(value)
        if key in _ONLY:
            known = _ONLY[key]
            return "" if value in known else f"{key} is {known[0]!r} only: {_ONLY_WHY[key]}; got {value!r}"
        keys = [_ON_ERROR, _IDLE, _NEW, *_ONLY]
        beginnings = [key.rsplit(".", count)[0] for count in range(key.count(".") + 1)]
        found = next((_INSTEAD[it] for it in beginnings if it in _INSTEAD), None)
        is_near = bool(resembling(key, keys, alike=_ALIKE))
        return f"there is no key {key!r}{f'; {found}' if found and not is_near else did_you_mean(key, keys)}"

    def idle_of(self, digits: int) -> dict[str, Any]:
        """Return the arguments of `event_time` for a source with timestamps of so many digits of a second."""
        self.is_read = True
        return {} if self.idle_after is None else {"idle_after": self.idle_after, "second": 10**digits}

    def _set_on_error(self, value: str) -> str:
        if value not in POLICIES:
            return f"{_ON_ERROR} is one of {', '.join(map(repr, POLICIES))}; got {value!r}"
        self.on_error = value
        return ""

    def _set_from_now(self, value: str) -> str:
        if value not in _OF_NEW:
            return f"{_NEW} is one of {', '.join(map(repr, _OF_NEW))}; got {value!r}"
        if self.is_queried:
            return f"{_NEW} is for the states of all queries; write it before the first one"
        self.from_now = value == _OF_NEW[1]
        return ""

    def _set_idle_after(self, value: str) -> str:
        span = read_span(value)
        if span is None:
            return f"{_IDLE} is a span with its unit, as in '10 s'; got {value!r}"
        if self.is_read:
            return f"{_IDLE} is for all sources; write it before the queries that read them"
        self.idle_after = span or None
        return ""
