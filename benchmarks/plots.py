"""The plots that go with the tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

__all__ = ["plot_patterns", "plot_snapshots", "plot_spark", "plot_windows"]

_WIDTH = 0.38
_WINDOW_PEERS = {"loop": "a hand-written loop", "bytewax": "bytewax"}
_COLOURS = ("#9aa5b1", "#2f6fb0", "#e07b39")
_FIVE_COLOURS = ("#c6ced6", "#7fb0dd", "#9aa5b1", "#2f6fb0", "#e07b39")


def plot_patterns(folder: Path, times: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw what a record costs the peers of each pattern."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(15, 4.2), layout="constrained")
    peers = list(dict.fromkeys(peer for by_peer in times.values() for peer in by_peer))
    width = 2 * _WIDTH / len(peers)
    for at, peer in enumerate(peers):
        heights = {place: median(its[peer]) for place, its in enumerate(times.values()) if peer in its}
        places = [place + (at - (len(peers) - 1) / 2) * width for place in heights]
        bars = axes.bar(places, heights.values(), width, label=peer, color=_FIVE_COLOURS[at % len(_FIVE_COLOURS)])
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=7)
    axes.set_xticks(range(len(times)), list(times), fontsize=8)
    axes.set(title="Cost of a record", ylabel="CPU ns, log", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, folder / "patterns.png")


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
        axes.legend(frameon=False, fontsize=8)
    _save(figure, folder / "snapshots.png")


def plot_spark(
    folder: Path, rates: Mapping[int, Mapping[str, Sequence[float]]], costs: Mapping[str, Mapping[int, Sequence[float]]]
) -> None:
    """Draw how fast the peers are, and what a record costs as workers and keys grow, as far as it was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    if rates:
        figure, axes = plt.subplots(figsize=(11, 4.2), layout="constrained")
        _rates(axes, rates)
        _save(figure, folder / "spark_peers.png")
    if costs:
        figure, both = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
        for axes, what in zip(both, ("workers", "keys"), strict=True):
            _costs(axes, what, costs)
        _save(figure, folder / "spark_growth.png")


def plot_windows(
    folder: Path, ratios: Mapping[str, Mapping[str, Sequence[float]]], targets: Mapping[str, Mapping[str, float]]
) -> None:
    """Draw how many times as fast as its peers malflow is at windows and joins, beside the targets."""
    folder.mkdir(parents=True, exist_ok=True)
    peers = list(dict.fromkeys(peer for by_peer in ratios.values() for peer in by_peer))
    figure, columns = plt.subplots(1, len(peers), figsize=(11, 3.8), layout="constrained", sharey=True)
    jobs = list(ratios)[::-1]
    for axes, peer, colour in zip(columns, peers, _COLOURS[1:], strict=True):
        middles = [median(ratios[job][peer]) for job in jobs]
        bars = axes.barh(range(len(jobs)), middles, 0.6, color=colour)
        axes.bar_label(bars, labels=[f" {middle:,.1f}" for middle in middles], fontsize=8)
        for at, job in enumerate(jobs):
            label = "target" if at == 0 else None
            axes.vlines(targets[job][peer], at - 0.4, at + 0.4, color="black", linestyle="--", linewidth=1, label=label)
        axes.set_yticks(range(len(jobs)), jobs, fontsize=8)
        axes.set(title=f"Times the speed of {_WINDOW_PEERS[peer]}", xlabel="log", xscale="log")
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    _save(figure, folder / "windows.png")


def _rates(axes: Any, rates: Mapping[int, Mapping[str, Sequence[float]]]) -> None:
    peers = list(dict.fromkeys(peer for by_peer in rates.values() for peer in by_peer))
    for at, (keys, by_peer) in enumerate(rates.items()):
        width = 2 * _WIDTH / len(rates)
        places = [place + (at - (len(rates) - 1) / 2) * width for place in range(len(peers))]
        heights = [median(by_peer[peer]) for peer in peers]
        bars = axes.bar(places, heights, width, label=f"{keys:,} keys", color=_COLOURS[at % len(_COLOURS)])
        axes.bar_label(bars, labels=[f"{height / 1e3:,.0f}k" for height in heights], fontsize=7)
    labels = [re.sub(r" ?(InPandas|With|by |in long)", r"\n\1", peer) for peer in peers]
    axes.set_xticks(range(len(peers)), labels, fontsize=8)
    axes.set(title="Running sum on two cores", ylabel="records a second", yscale="log")
    axes.legend(frameon=False, fontsize=8)


def _costs(axes: Any, what: str, costs: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    for at, (name, label) in enumerate(((what, "wall clock"), (f"CPU {what}", "processor time, all processes"))):
        counts, rounds = list(costs[name]), list(costs[name].values())
        middles = [median(its) for its in rounds]
        errors = [
            [middle - min(its) for middle, its in zip(middles, rounds, strict=True)],
            [max(its) - middle for middle, its in zip(middles, rounds, strict=True)],
        ]
        axes.errorbar(counts, middles, errors, marker="o", capsize=3, label=label, color=_COLOURS[at + 1])
    axes.set(title=f"Cost of a record as {what} grow", xlabel=f"{what}, log", ylabel="ns a record, log")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(list(costs[what]), [f"{count:,}" for count in costs[what]], fontsize=8)
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)


def _save(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    width = 2 * _WIDTH / len(series)
    for at, (name, heights) in enumerate(series.items()):
        places = [group + (at - (len(series) - 1) / 2) * width for group in range(len(groups))]
        bars = axes.bar(places, heights, width, label=name, color=_COLOURS[at])
        axes.bar_label(bars, fmt="{:,.3g}", fontsize=7)
    axes.set_xticks(range(len(groups)), groups, fontsize=8)
