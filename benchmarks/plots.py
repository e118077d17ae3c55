"""The plots that go with the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

__all__ = ["plot_snapshots"]

_WIDTH = 0.38
_COLOURS = ("#9aa5b1", "#2f6fb0", "#e07b39")


def plot_snapshots(folder: Path, costs: Mapping[str, Any], lost: Mapping[int, Sequence[float]]) -> None:
    """Draw what snapshots cost, how small they are, and what they take from the flow."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, (times, sizes, flow) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    kinds = list(costs)
    _bars(
        times,
        kinds,
        {
            "plain pickle + lz4": [1000 * costs[kind].plain for kind in kinds],
            "full snapshot": [1000 * costs[kind].full for kind in kinds],
            "1 % changed": [1000 * costs[kind].increment for kind in kinds],
        },
    )
    times.set(title="Time of a snapshot", ylabel="milliseconds", yscale="log")
    _bars(
        sizes,
        kinds,
        {
            "pickled": [costs[kind].raw / 1e6 for kind in kinds],
            "full snapshot": [costs[kind].full_bytes / 1e6 for kind in kinds],
            "1 % changed": [costs[kind].increment_bytes / 1e6 for kind in kinds],
        },
    )
    sizes.set(title="Size of a snapshot", ylabel="megabytes", yscale="log")
    flow.boxplot([[100 * share for share in lost[keys]] for keys in lost], tick_labels=[f"{keys:,}" for keys in lost])
    flow.axhline(10, color=_COLOURS[2], linestyle="--", linewidth=1, label="target for 1,000 keys: less than 10 %")
    flow.set(title="Throughput lost to a snapshot each second", xlabel="keys of the running sum", ylabel="percent")
    for axes in (times, sizes, flow):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(folder / "snapshots.png", dpi=110)
    plt.close(figure)


def _bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    width = 2 * _WIDTH / len(series)
    for at, (name, heights) in enumerate(series.items()):
        places = [group + (at - (len(series) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, heights, width, label=name, color=_COLOURS[at])
        axes.bar_label(bars, fmt="{:,.3g}", fontsize=7)
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
