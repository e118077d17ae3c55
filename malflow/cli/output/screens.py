"""The screen of a run as lines of text, with progress bars, from the documents about the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Final

from malflow.cli.output.texts import age, aligned, bar, bytes_text, duration, sparkline
from malflow.drawing.text import fitted
from malflow.store.redaction import safe_line

__all__ = [
    "ASKED_EVERY",
    "RATES",
    "About",
    "Bars",
    "line_of",
    "screen_of",
]

ASKED_EVERY: Final = 3.0
"""The seconds between two requests for the cause and the time; the run answers them after a tick. Half of it asks the
run twice as often, double shows an older cause."""

RATES: Final = 60
"""The rates in the sparkline: a minute of them, one a second. Double shows a longer history in more columns."""

_MOST_WORKERS: Final = 8
"""The most workers that are listed with their parts; the others are counted."""

_OFTEN: Final = ["operator", ">in/s", ">out/s", "busy", ">keys", "epoch", ">late", ">failed", ">lag"]
_COLUMNS: Final = [*_OFTEN, ">rows made", ">demoted"]
"""The others are left out if they are empty: few jobs read columns of Arrow."""


_NAME: Final = 32
"""The columns for an operator's name: room for most names. Fewer cut names sooner, more push out columns of a narrow
terminal."""

_BUSY: Final = 8
"""The columns of a bar of the busy share: an eighth per column is enough beside the percentage."""

_SHOWN_SHARE: Final = 0.005
"""The least share with a percentage: a smaller one would round to 0 %."""

_BY_USE: Final = ("keys", "epoch", "late", "failed", "lag")
"""The columns that are left out if they are empty and the terminal is narrow."""


@dataclass(frozen=True, slots=True)
class About:
    """Facts about a run besides its progress.

    Attributes:
        rates: the records a second at the last looks, oldest first.
        why: the document that says why nothing comes out; None if nobody has asked.
        time: the document of its event time; None if nobody has asked.
        is_open: whether the whole text of `why` is shown.
        note: a remark on the last key; empty for none.
        keys: the keys that have an effect; empty if none has.
        width: the columns of the terminal.
        height: the lines of the terminal; None for no limit.
    """

    rates: Sequence[float] = ()
    why: Mapping[str, Any] | None = None
    time: Mapping[str, Any] | None = None
    is_open: bool = False
    note: str = ""
    keys: str = ""
    width: int = 120
    height: int | None = None


_NOTHING: Final = About()


def line_of(progress: Mapping[str, Any]) -> str:
    """Return the state of a run in a line."""
    workers = f"{progress['runtime']} x{progress['parallelism']}"
    parts = [
        f"{progress['job']}  {workers}  {progress['status']}{_lasting(progress)}",
        f"tick {progress['tick']:,} ({duration(progress['seconds'])})",
        "" if progress["polled_per_second"] is None else f"{progress['polled_per_second']:,.0f} records/s",
        _snapshot(progress["snapshot"]),
        f"{progress['restarts']} restarts" if progress["restarts"] else "",
    ]
    return safe_line("   ".join(part for part in parts if part))


def screen_of(progress: Mapping[str, Any], about: About = _NOTHING) -> list[str]:
    """Return the state of a run, with a line for each operator, and the cause below if nothing comes out.

    Args:
        progress: the document of its progress.
        about: other facts about the run.
    """
    head = [line_of(progress)]
    if len(about.rates) > 1:
        head.append(sparkline(about.rates[-about.width :]))
    below = [*_readers(progress), *_waiting(progress), *_cause(about)]
    if about.note:
        below.append(safe_line(about.note))
    if about.keys:
        below.append(about.keys)
    table = _table(progress, about)
    if about.height is not None:
        table = _first_lines(table, about.height - len(head) - len(below) - 2)
    return [fitted(line, about.width) for line in [*head, "", *table, *(["", *below] if below else [])]]


def _table(progress: Mapping[str, Any], about: About) -> list[str]:
    cause = about.why if about.why is not None and about.why["is_fault"] else None
    times = _times(about.time)
    rows = [
        [
            f"{fitted(it['name'], _NAME)}{' ◄' if cause is not None and cause['stops_at'] == it['name'] else ''}",
            _number(it["taken_per_second"]),
            _number(_total(it["given_per_second"])),
            _busy(it["busy_share"]),
            _number(it["keys"]),
            times.get(it["name"], "-"),
            _number(it["late"]),
            _number(it["failed"]),
            _number(it["lag"]),
            _number(it["rows_made"] or None),
            _number(it["demotions"] or None),
        ]
        for it in progress["operators"]
    ]
    columns = [at for at in range(len(_COLUMNS)) if at < len(_OFTEN) or any(row[at] != "-" for row in rows)]
    for name in reversed(_BY_USE):
        lines = _lines(columns, rows)
        if max(map(len, lines)) <= about.width:
            return lines
        at = next(at for at, column in enumerate(_COLUMNS) if column.removeprefix(">") == name)
        if all(row[at] == "-" for row in rows):
            columns.remove(at)
    return _lines(columns, rows)


def _readers(progress: Mapping[str, Any]) -> list[str]:
    """Return a table of the workers with their parts, the fastest first; empty where one worker has all."""
    workers = [it for it in progress["workers"] if it["parts"]]
    if len(progress["workers"]) < 2 or not workers:  # noqa: PLR2004 - a worker alone has all parts
        return []
    workers = sorted(progress["workers"], key=lambda it: -(it["per_second"] or 0))
    fastest: dict[int, str] = {}
    for it in sorted(progress["parts"], key=lambda it: -(it["per_second"] or 0)):
        if it["worker"] is not None and not it["is_finished"]:
            fastest.setdefault(it["worker"], f"{it['part']} of {it['source']}, {_number(it['per_second'])}/s")
    rows = [
        [f"worker {it['worker']}", _number(it["parts"]), _number(it["per_second"]), fastest.get(it["worker"], "-")]
        for it in workers[:_MOST_WORKERS]
    ]
    lines = aligned(["reads", ">parts", ">in/s", "the fastest"], [[safe_line(cell) for cell in row] for row in rows])
    more = len(workers) - _MOST_WORKERS
    return [*lines, *([f"and {more} more workers"] if more > 0 else []), ""]


def _lines(columns: Sequence[int], rows: Sequence[Sequence[str]]) -> list[str]:
    return aligned([_COLUMNS[at] for at in columns], [[safe_line(row[at]) for at in columns] for row in rows])


def _first_lines(lines: list[str], most: int) -> list[str]:
    """Return the first lines, and a line with the number of the others."""
    if len(lines) <= max(2, most):
        return lines
    kept = max(2, most - 1)
    return [*lines[:kept], f"and {len(lines) - kept} more operators"]


def _busy(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{bar(share, _BUSY)} {share:>4.0%}" if share >= _SHOWN_SHARE else bar(0.01, _BUSY)


def _times(time: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the event time of each operator that has one: its distance from the clock, or the time itself."""
    if time is None:
        return {}
    told = [(it["operator"], it["epoch"], it["behind"]) for it in time["epochs"]]
    told += [(it["operator"], it["frontier"], it["behind"]) for it in time["rows"]]
    return {name: _behind(epoch, behind) for name, epoch, behind in told if epoch is not None}


def _behind(epoch: str, behind: float | None) -> str:
    if behind is None:
        return fitted(epoch, 16)
    return f"{duration(abs(behind))} {'behind' if behind >= 0 else 'ahead'}"


def _cause(about: About) -> list[str]:
    if about.why is None or not (about.is_open or about.why["is_fault"]):
        return []
    text = safe_line(about.why["text"])
    mark = "! " if about.why["is_fault"] else ""
    if about.is_open:
        return wrap(f"{mark}{text}", max(20, about.width))
    hint = "  (w: why)" if "w" in about.keys else ""
    return [f"{fitted(f'{mark}{text}', max(20, about.width - len(hint)))}{hint}"]


def _waiting(progress: Mapping[str, Any]) -> list[str]:
    waits = ", ".join(progress["unfinished"])
    return [safe_line(f"waits for {waits}")] if progress["status"] == "resting" and waits else []


def _lasting(progress: Mapping[str, Any]) -> str:
    started, at = progress["started"], progress["at"]
    if started is None:
        return ""
    passed = datetime.fromisoformat(at) - datetime.fromisoformat(started)
    return f" {duration(max(0.0, passed.total_seconds()))}"


def _snapshot(snapshot: Mapping[str, Any] | None) -> str:
    if snapshot is None:
        return ""
    at = None if snapshot["at"] is None else datetime.fromisoformat(snapshot["at"])
    size = "" if snapshot["bytes"] is None else f", {bytes_text(snapshot['bytes'])}"
    taken = "" if snapshot["capture_seconds"] is None else f" ({duration(snapshot['capture_seconds'])})"
    return f"snapshot {snapshot['id']}, {age(at, datetime.now(UTC))}{size}{taken}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _total(values: list[float] | None) -> float | None:
    return sum(values) if values else None


_WIDTH: Final = 30
"""The widest bar in columns: a column is then about 3 % of the input. Half of it shows steps of 7 %; double fits only
terminals wider than 80 columns."""

_LEAST: Final = 5
"""The narrowest bar in columns; a shorter one shows less than the percentage beside it."""

_LABEL: Final = 24
"""The columns for a name: room for most names, and for a whole bar on a terminal of 80 columns. Fewer cut names sooner,
more shorten the bars."""

_MOST: Final = 8
"""The most bars that are drawn; other sources are only counted."""
_DAY: Final = 86_400.0
"""The seconds of a day: the pace so far says little about a longer time, so it is not shown."""


class Bars:
    """The progress bars of a run, with the time left, estimated from the pace since the first look."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, float]] = {}

    def lines(self, progress: Mapping[str, Any], seconds: float, width: int) -> list[str]:
        """Return a line for each source that knows the size of its input.

        Args:
            progress: the document of the run's progress.
            seconds: the time by a monotonic clock.
            width: the columns of the terminal.
        """
        found = list(self._shares(progress))
        lines = [self._line(name, share, seconds, width) for name, share in found[:_MOST]]
        return [*lines, f"and {len(found) - _MOST} more sources"] if len(found) > _MOST else lines

    def text(self, progress: Mapping[str, Any], seconds: float) -> str:
        """Return the shares in one line, without bars."""
        return "   ".join(
            safe_line(f"{name} {share:.0%}{self._left(name, share, seconds)}") for name, share in self._shares(progress)
        )

    @staticmethod
    def _shares(progress: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        for it in progress["operators"]:
            if it.get("share") is not None:
                read, whole = it["share"]
                yield it["name"], (read / whole if whole else 1.0)

    def _line(self, name: str, share: float, seconds: float, width: int) -> str:
        rest = f" {share:>4.0%}{self._left(name, share, seconds)}"
        label = fitted(safe_line(name), _LABEL)
        room = min(_WIDTH, width - len(label) - len(rest) - 1)
        return f"{label} {bar(share, room)}{rest}" if room >= _LEAST else f"{label}{rest}"

    def _left(self, name: str, share: float, seconds: float) -> str:
        """Return the time left as a text; empty if it can't be estimated."""
        at, before = self._first.setdefault(name, (seconds, share))
        passed, done = seconds - at, share - before
        if share >= 1 or passed < 1 or done <= 0:
            return ""
        left = passed / done * (1 - share)
        return "" if left > _DAY else f", {duration(left)} left"
