"""``malflow ps``: list the runs of this user on this machine."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from malflow.cli.live import write_document
from malflow.cli.options import output_options
from malflow.cli.output import Output
from malflow.cli.terminal import write_table
from malflow.cli.texts import age
from malflow.monitor import client
from malflow.monitor.documents import document

__all__ = ["ps"]

_COLUMNS = ["job", "run", ">pid", "runtime", "status", "started", ">workers", ">tick", ">records/s", "snapshot"]


@click.command(short_help="List the runs on this machine.")
@click.option("--all", "with_ended", is_flag=True, help="List those too that have ended within an hour.")
@output_options
def ps(with_ended: bool, output: Output) -> None:
    """List the runs of this user on this machine, the oldest first.

    Runs are found that `malflow run` has started, or that have a Monitor() among their listeners, or MALFLOW_CONTROL=1
    in their environment. A run that does not answer is silent; one in another container, of which nobody knows whether
    it lives, is unknown.
    """
    runs = client.recent_runs() if with_ended else client.live_runs()
    summaries = [client.summary(run) for run in runs]
    if output.json:
        for summary in summaries:
            write_document(document("run", summary))
    elif summaries:
        has_page = any(it["page"] for it in summaries)
        rows = [[*_row(it), *([_text(it["page"])] if has_page else [])] for it in summaries]
        write_table([*_COLUMNS, *(["page"] if has_page else [])], rows, output)
    else:
        output.say("no run of this user is found on this machine")


def _row(summary: dict[str, Any]) -> list[str]:
    snapshot, rate = summary["snapshot"], summary["polled_per_second"]
    return [
        summary["name"],
        summary["run"],
        _text(summary["pid"]),
        summary["runtime"],
        _text(summary["status"]),
        _ago(summary["started"]),
        _text(summary["parallelism"]),
        "-" if summary["tick"] is None else f"{summary['tick']:,}",
        "-" if rate is None else f"{rate:,.0f}",
        "-" if snapshot is None else f"{snapshot['id']}, {_ago(snapshot['at'])}",
    ]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _ago(moment: str | None) -> str:
    try:
        return age(None if moment is None else datetime.fromisoformat(moment)).replace(" old", " ago")
    except (ValueError, TypeError):
        return "-"
