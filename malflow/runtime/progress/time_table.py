"""The explanation of a run's event time: the operators that wait, and for which source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from malflow.drawing.text import table
from malflow.engine.plan import Program
from malflow.message import MAX, NoKey
from malflow.nodes import EpochsNode, Node, SourceNode
from malflow.operators.waiting import OperatorTime, Waiting
from malflow.words import plural, short_repr, value_text

__all__ = ["Reports", "TimeRow", "TimeTable", "explain", "explained"]

_WORTH_TELLING = timedelta(seconds=1)

Reports = Mapping[int, Mapping[int, OperatorTime]]
"""The time of each operator, by worker and vertex."""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """An operator that waits for an epoch (watermark), on the worker with the earliest time.

    Attributes:
        operator: its name.
        worker: the worker.
        what: the kind of its open results, such as ``windows``.
        open: the number of open results.
        frontier: its last epoch; None before the first one.
        until: the epoch that it waits for; None if unknown.
        generator: the `generate_epochs` that holds it back, or None.
        source: the source that feeds the generator.
        part: the part of the source; None for all of its parts.
        epoch: the epoch of the generator, or of the part.
        silence: how long the source, or the part, has emitted nothing; None if unknown.
        advances: whether the generator advances without input, by ``idle_after``.
    """

    operator: str
    worker: int
    what: str
    open: int
    frontier: Any = None
    until: Any = None
    generator: str | None = None
    source: str | None = None
    part: Any = None
    epoch: Any = None
    silence: timedelta | None = None
    advances: bool = False

    @property
    def goes_on(self) -> bool:
        """The former name of `advances`."""
        return self.advances

    def __str__(self) -> str:
        time = "it has had no epoch yet" if self.frontier is None else f"its time is {value_text(self.frontier)}"
        waits = "" if self.until is None else f" and waits for {value_text(self.until)}"
        open_ = Waiting(self.what, self.open)
        return "\n".join([f"operator '{self.operator}' has {open_} open{waits}; {time}.", *self._reason()])

    def _reason(self) -> list[str]:
        where = "no epoch yet" if self.epoch is None else f"its epoch is {value_text(self.epoch)}"
        cure = [] if self.advances else [f"  to continue without it, pass idle_after= to operator '{self.generator}'"]
        if self.source is None:
            ended = f"  it is held back by operator '{self.generator}' ({where}); all parts of its source have ended"
            return [] if self.generator is None else [ended, *cure]
        part = "" if self.part is None or self.part is NoKey else f", part {short_repr(self.part)}"
        is_silent = self.silence is not None and self.silence >= _WORTH_TELLING
        silence = (
            "" if self.silence is None or not is_silent else f", which has emitted nothing for {_seconds(self.silence)}"
        )
        if self.generator is None:
            return [f"  it gets no epochs: nothing generates them after source '{self.source}'"]
        return [f"  it is held back by source '{self.source}'{part}{silence} ({where}, at '{self.generator}')", *cure]


@dataclass(frozen=True, slots=True)
class TimeTable:
    """The operators of a run that wait for an epoch (watermark), and the late records so far. Prints as text.

    Attributes:
        now: when the last tick began.
        rows: the operators that wait.
        late: the number of late records at each `generate_epochs`.
        lateness: the greatest difference between the epoch and a late record, if timestamps can be subtracted.
        heard: when the tick began that read the last record of each unfinished part, by source; None for a part that
            has emitted none.
        epochs: the greatest epoch of each `generate_epochs` over all workers; generators without one are left out.
    """

    now: datetime | None = None
    rows: tuple[TimeRow, ...] = ()
    late: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, Any] = field(default_factory=dict)
    heard: dict[str, dict[Any, datetime | None]] = field(default_factory=dict)
    epochs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [*map(str, self.rows)] or ["no operator waits for an epoch."]
        counts = [
            f"{plural(count, 'record')} at '{name}'{self._at_most(name)}" for name, count in self.late.items() if count
        ]
        return "\n".join([*lines, f"late so far: {'; '.join(counts) or 'no records'}"])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the table for notebooks, as text and as HTML."""
        del include, exclude
        headings = ["operator", "open", "time", "waits for", "source", "part", "silent", "generator"]
        rows = [
            [
                row.operator,
                str(Waiting(row.what, row.open)),
                _cell(row.frontier),
                _cell(row.until),
                row.source,
                None if row.part is NoKey else _cell(row.part),
                None if row.silence is None else _seconds(row.silence),
                row.generator,
            ]
            for row in self.rows
        ]
        return {"text/plain": str(self), "text/html": table(headings, rows, str(self).splitlines()[-1])}

    def _at_most(self, name: str) -> str:
        return f", by at most {self.lateness[name]}" if name in self.lateness else ""


def explained(
    program: Program, reports: Reports, heard: Mapping[tuple[str, int], datetime], now: datetime
) -> TimeTable:
    """Return the explanation of a run's time, without its late records; see `explain`."""
    run = _Run(program, reports, heard, now)
    return TimeTable(now, explain(program, reports, heard, now), heard=run.parts(), epochs=run.epochs())


def explain(
    program: Program, reports: Reports, heard: Mapping[tuple[str, int], datetime], now: datetime
) -> tuple[TimeRow, ...]:
    """Return the operators that wait, each on the worker with the earliest time.

    Args:
        program: the program.
        reports: the time of each operator, by worker and vertex.
        heard: the start of the last tick in which a source emitted records on a worker, for parts without a report.
        now: when the last tick began.
    """
    run = _Run(program, reports, heard, now)
    rows: list[TimeRow] = []
    for vertex in range(len(program.vertices)):
        them = [
            run.row(vertex, worker)
            for worker, report in sorted(reports.items())
            if vertex in report and report[vertex].waiting is not None
        ]
        if them:
            rows.append(them[_least({at: row.frontier for at, row in enumerate(them)})])
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Run:
    """The facts about a run; walks upstream from an operator."""

    program: Program
    reports: Reports
    heard: Mapping[tuple[str, int], datetime]
    now: datetime

    def row(self, vertex: int, worker: int) -> TimeRow:
        """Return the row of an operator that waits."""
        own, name, at = self._time(vertex, worker), self._node(vertex).name, worker
        frontiers: list[Any] = []
        while not isinstance(self._node(vertex), (EpochsNode, SourceNode)):
            edges = self._time(vertex, worker).edges
            edge = 0
            if edges:
                edge = _least(edges)
                frontiers.append(edges[edge])
            if self._node(vertex).starts_stage:
                worker, edge = edge, 0
            vertex = self.program.vertices[vertex].inputs[edge].vertex
        frontiers.append(self._time(vertex, worker).epoch)
        waiting = own.waiting or Waiting("", 0)
        held_by = self._held_by(vertex, worker)
        return TimeRow(name, at, waiting.what, waiting.open, frontiers[0], waiting.until, **held_by)

    def parts(self) -> dict[str, dict[Any, datetime | None]]:
        """Return when each unfinished part of each source was last heard."""
        return {
            vertex.node.name: {part: when for on in self.reports for part, when in self._heard(at, on)}
            for at, vertex in enumerate(self.program.vertices)
            if isinstance(vertex.node, SourceNode)
        }

    def epochs(self) -> dict[str, Any]:
        """Return the greatest epoch of each generator that has any."""
        found: dict[str, Any] = {}
        for at, vertex in enumerate(self.program.vertices):
            known = [it for on in self.reports if (it := self._time(at, on).epoch) is not None and it is not MAX]
            if isinstance(vertex.node, EpochsNode) and known:
                found[vertex.node.name] = _greatest(known)
        return found

    def _heard(self, vertex: int, worker: int) -> list[tuple[Any, datetime | None]]:
        """Return the unfinished parts of a source on a worker, with the time of their last record."""
        parts = self._time(vertex, worker).heard
        alone = self.heard.get((self._node(vertex).name, worker)) if len(parts) == 1 else None
        return [(part, alone if when is None else when) for part, when in parts]

    def _held_by(self, vertex: int, worker: int) -> dict[str, Any]:
        """Return the time of an epoch generator, and its part that is behind the others."""
        node, time = self._node(vertex), self._time(vertex, worker)
        if not isinstance(node, EpochsNode):
            return {"source": node.name}
        facts: dict[str, Any] = {"generator": node.name, "advances": node.idle_after is not None, "epoch": time.epoch}
        parts = dict(time.parts)
        if parts:
            facts["part"] = _least(parts)
            facts["epoch"] = parts[facts["part"]]
        heard = [it for it in self._upstream(vertex, worker) if not parts or it[1] == facts["part"]]
        known = [at for _, _, at in heard if at is not None]
        if heard:
            facts |= {"source": heard[0][0], "silence": self.now - max(known) if known else None}
        elif parts:  # the parts that no worker has got yet
            facts["source"] = node.source
        return facts

    def _upstream(self, vertex: int, worker: int) -> list[tuple[str, Any, datetime | None]]:
        """Return the unfinished parts of the sources upstream, nearest first, with the time of their last record."""
        found = {vertex}
        for at in range(vertex, -1, -1):
            if at in found:
                found.update(port.vertex for port in self.program.vertices[at].inputs)
        is_local = not any(self._node(at).starts_stage for at in found)
        return [
            (self._node(at).name, part, when)
            for on in ([worker] if is_local else sorted(self.reports))
            for at in sorted(found)
            for part, when in self._heard(at, on)
        ]

    def _node(self, vertex: int) -> Node:
        return self.program.vertices[vertex].node

    def _time(self, vertex: int, worker: int) -> OperatorTime:
        return self.reports[worker].get(vertex, OperatorTime())


def _least(epochs: Mapping[Any, Any]) -> Any:
    """Return the key of the least epoch; a missing epoch is less than all others."""
    for key, epoch in epochs.items():
        if epoch is None:
            return key
    try:
        return min(epochs, key=epochs.__getitem__)
    except Exception:  # noqa: BLE001 - epochs that can't be compared fail the run elsewhere
        return next(iter(epochs))


def _greatest(epochs: Sequence[Any]) -> Any:
    try:
        return max(epochs)
    except Exception:  # noqa: BLE001 - epochs that can't be compared fail the run elsewhere
        return epochs[0]


def _cell(value: Any) -> str | None:
    return None if value is None else value_text(value)


def _seconds(silence: timedelta) -> str:
    return f"{silence.total_seconds():.0f} s"
