"""The answer to the question why nothing comes out of an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

__all__ = ["FAULTS", "Cause", "Fact", "Found", "Why"]

Cause: TypeAlias = Literal[
    "silent_part",
    "silent_source",
    "silent_input",
    "unfinished_source",
    "filter",
    "all_late",
    "letters",
    "no_epochs",
    "reads_before",
    "bound",
    "units",
    "future_record",
    "pattern",
    "sink_waits",
    "snapshots_fail",
    "blocked",
    "long_tick",
    "breaker",
    "no_output",
    "other_output",
    "waits",
    "flows",
    "uneven_parts",
    "starting",
    "restarting",
    "failed",
    "ended",
]
"""Why nothing comes out, in a word; `Why` describes each."""

_HARMLESS = {"other_output", "waits", "flows", "uneven_parts", "starting", "restarting", "failed", "ended"}

FAULTS: frozenset[Cause] = frozenset(get_args(Cause)) - _HARMLESS
"""The causes for which nothing may ever come out."""

Fact: TypeAlias = str | int | float | Sequence[str] | None
"""A fact in an answer, ready for JSON."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why nothing comes out of an operator, or of the whole run. Prints as text.

    The causes are:

    - ``silent_source``: a source emits nothing.
    - ``silent_part``: a part of a source emits nothing, while others do, and holds the time of the stream back.
    - ``silent_input``: one input of a join or a union gets nothing, while another does.
    - ``unfinished_source``: a source has been read to its end, but is not finished, so that the run waits for more.
    - ``filter``: a filter drops all records.
    - ``all_late``: all records are late.
    - ``future_record``: all records are late, since a record that is ahead of the clock has advanced the time.
    - ``units``: the timestamps have another unit than the bound, such as seconds and milliseconds.
    - ``bound``: the bound for records out of order is longer than the time that the data covers.
    - ``no_epochs``: nothing generates epochs (watermarks) for the operator, or its generator returns none.
    - ``reads_before``: the same, but the stream that `generate_epochs` returned would have them.
    - ``pattern``: no match of a pattern was completed.
    - ``letters``: the function of an operator fails at all records, and ``on_error=`` lets it continue.
    - ``sink_waits``: a sink that commits with snapshots waits for one.
    - ``snapshots_fail``: the same, and the last snapshot failed.
    - ``blocked``: the run has stopped reading, since a sink has too many transactions that no snapshot has committed.
    - ``long_tick``: the tick takes long in the named operator.
    - ``breaker``: the same, since the breaker of a `map_async` is open and its calls wait.
    - ``no_output``: an operator has emitted nothing for the records that it received, for no reason that is known.

    Others are no faults: ``flows`` (records come out), ``uneven_parts`` (they do, but one worker has much more to read
    than the others, and its parts are named), ``waits`` (for the end of a window, a timer or the like),
    ``other_output`` (the records leave through another output of an operator), ``ended`` (the source or the run),
    ``failed``, ``starting`` and ``restarting``.

    Attributes:
        operator: the operator that was asked about; None for the whole run.
        cause: the cause, in a word.
        text: the cause in a few sentences, with what to pass or to change.
        stops_at: the operator at which records stop; None if they flow, or the run as a whole is the cause.
        facts: the numbers, names and times in the text, as text and numbers.
    """

    operator: str | None
    cause: Cause
    text: str
    stops_at: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        """Whether nothing may ever come out, unless something is changed."""
        return self.cause in FAULTS

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, Any]:
        """Return all of it as a dict that `json.dumps` accepts."""
        return asdict(self) | {"facts": dict(self.facts), "is_fault": self.is_fault}


class Found(NamedTuple):
    """What a search finds: the parts of a `Why` but the operator that was asked about."""

    cause: Cause
    stops_at: str | None
    text: str
    facts: Mapping[str, Fact]

    @property
    def is_fault(self) -> bool:
        """Whether nothing may ever come out, unless something is changed."""
        return self.cause in FAULTS
