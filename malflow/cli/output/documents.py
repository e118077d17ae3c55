"""The JSON documents of the commands; keys are never renamed within a major version.

Times are in UTC, as `iso` writes them, sizes bytes, durations seconds; values of users are texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from malflow.cli.output.output import document_line
from malflow.snapshot.evolution import may_be_lost
from malflow.words import iso

if TYPE_CHECKING:
    from malflow.cli.commands.check import Finding
    from malflow.engine.plan import Program
    from malflow.snapshot.history import FsckReport, Snapshot
    from malflow.snapshot.protocol.manifest import Manifest

__all__ = ["KEYS", "check_document", "plugin_document", "snapshot_document", "verify_document"]


_LETTER: Final = (
    "operator",
    "id",
    "key",
    "value",
    "timestamp",
    "error",
    "message",
    "place",
    "attempts",
    "is_parked",
    "tick",
    "worker",
    "at",
)
_SNAPSHOT: Final = (
    "job",
    "id",
    "latest",
    "at",
    "tick",
    "increment",
    "keys",
    "bytes",
    "files",
    "parallelism",
    "codec",
    "writer",
)

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "run_started": ("flow", "at", "runtime", "parallelism", "persistence", "snapshot", "keys", "restarts"),
    "snapshot_committed": ("flow", "at", "snapshot", "tick"),
    "run_finished": (
        "flow",
        "at",
        "tick",
        "parallelism",
        "records",
        "late",
        "snapshot",
        "restarts",
        "stopped",
        "failed",
    ),
    "reload": ("flow", "at", "event", "changed", "message"),
    "record": ("operator", "tick", "output", "key", "value", "timestamp"),
    "log": ("level", "message"),
    "error": ("error",),
    "check": ("flow", "runtime", "operators", "stages", "findings"),
    "config": ("file", "profile", "settings", "warnings"),
    "config_check": ("faults",),
    "worker_parts": ("worker", "parts"),
    "graph": ("nodes", "edges", "stages", "width", "height"),
    "plan": (
        "flow",
        "runtime",
        "job",
        "persistence",
        "snapshot",
        "latest",
        "at",
        "tick",
        "keys",
        "bytes",
        "workers",
        "parallelism",
        "starts",
        "rows",
        "refusals",
        "unknown",
    ),
    "plugin": ("name", "type", "package", "version", "loads", "error"),
    "snapshot": _SNAPSHOT,
    "snapshot_details": (*_SNAPSHOT, "states", "stored"),
    "verify": ("snapshots", "problems", "notes", "unused"),
    "difference": ("operator", "added", "removed", "changed"),
    "change": ("operator", "key", "before", "after"),
    "restored": ("job", "snapshot"),
    "deleted": ("job", "snapshots"),
    "state": ("operator", "type", "version", "keys", "snapshot", "at"),
    "value": ("operator", "key", "value", "snapshot", "at"),
    "project": ("name", "folder", "template", "files"),
    "letter": _LETTER,
    "letter_details": (*_LETTER, "trace"),
    "pending": ("sink", "number", "released", "dropped", "content"),
    "released": ("sink", "transactions"),
    "dropped": ("sink", "transactions"),
    "run": (
        "run",
        "job",
        "name",
        "runtime",
        "pid",
        "started",
        "ended",
        "status",
        "script",
        "page",
        "tick",
        "parallelism",
        "polled_per_second",
        "snapshot",
    ),
    "progress": (
        "run",
        "job",
        "runtime",
        "pid",
        "status",
        "tick",
        "parallelism",
        "polled",
        "seconds",
        "restarts",
        "started",
        "at",
        "polled_per_second",
        "snapshot",
        "snapshot_failure",
        "snapshot_interval",
        "unfinished",
        "parts",
        "workers",
        "operators",
        "sinks",
        "running",
        "hot",
    ),
    "why": ("run", "job", "operator", "cause", "text", "stops_at", "is_fault", "facts"),
    "done": ("run", "job", "do", "snapshot", "parallelism"),
    "letters_done": ("run", "job", "operator", "do", "done", "late", "texts", "parked"),
    "accepted": ("run", "job", "do"),
    "stopped": ("run", "job", "status"),
}
"""The keys of each kind of document, besides ``malflow`` and ``kind``; a key may be added, and never changes."""


def check_document(flow: str, runtime: str, program: Program, found: Sequence[Finding]) -> str:
    """Return the document of a check."""
    findings = [
        {
            "level": it.level,
            "kind": it.kind,
            "operator": it.operator,
            "message": it.message,
            "location": it.location,
        }
        for it in found
    ]
    operators = list(dict.fromkeys(vertex.node.name for vertex in program.vertices))
    return document_line(
        "check", flow=flow, runtime=runtime, operators=operators, stages=len(program.stages), findings=findings
    )


def snapshot_document(manifest: Manifest, found: Snapshot, *, is_latest: bool, details: bool = False) -> str:
    """Return the document of a snapshot, with its states and files if details are wanted."""
    more: dict[str, Any] = {}
    if details:
        more["states"] = [
            {
                "operator": it.name,
                "type": it.kind,
                "version": it.version,
                "keys": it.keys,
                "placement": it.placement,
                "definition": it.definition,
            }
            for it in manifest.operators
            if not may_be_lost(it)
        ]
        more["stored"] = [{"name": it.name, "bytes": it.bytes, "base": it.base} for it in manifest.files]
    return document_line(
        "snapshot_details" if details else "snapshot",
        job=manifest.name,
        id=found.id,
        latest=is_latest,
        at=iso(found.time),
        tick=found.tick,
        increment=found.kind == "increment",
        keys=sum(found.operators.values()),
        bytes=found.bytes,
        files=found.files,
        parallelism=found.parallelism,
        codec=manifest.codec,
        writer=dict(manifest.writer),
        **more,
    )


def verify_document(report: FsckReport) -> str:
    """Return the document of a check of all snapshots."""
    return document_line(
        "verify",
        snapshots=report.snapshots,
        problems=list(report.problems),
        notes=list(report.notes),
        unused=list(report.unused),
    )


def plugin_document(row: Mapping[str, Any]) -> str:
    """Return the document of a connector or command."""
    return document_line("plugin", **row)
