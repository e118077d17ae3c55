"""The JSON documents of the commands; keys are never renamed within a major version.

Times are ISO 8601 in UTC, sizes bytes, durations seconds; values of users are texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from malflow.cli.findings import Finding
    from malflow.engine.plan import Program

__all__ = ["check_document", "document", "moment", "plugin_document"]


def document(kind: str, **content: Any) -> str:
    """Return a document as one line."""
    return json.dumps({"malflow": 1, "kind": kind, **content}, ensure_ascii=False)


def moment(time: datetime | None) -> str | None:
    """Return a time in UTC; None if it is unknown."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds")


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
    return document(
        "check", flow=flow, runtime=runtime, operators=operators, stages=len(program.stages), findings=findings
    )


def plugin_document(row: Mapping[str, Any]) -> str:
    """Return the document of a connector or command."""
    return document("plugin", **row)
