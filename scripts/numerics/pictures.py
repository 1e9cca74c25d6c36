# SPDX-License-Identifier: Apache-2.0
"""The curves of the report: mean over seeds with a band, below it the difference to float32; and the two probes."""

import io
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from PIL import Image
from runs import rate_text
from variants import FLOAT32, NEAREST, VARIANTS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from picture import COLOURS as DEMO_COLOURS  # noqa: E402
from picture import GREY, style  # noqa: E402

COLOURS = dict(zip(VARIANTS, (*DEMO_COLOURS, "#e09f3e", "#7b5ea7", "#7a8b3c")))
DPI = 110


def centres(count: int, steps: int) -> list[float]:
    return [(k + 0.5) * steps / count for k in range(count)]


def over_seeds(curves: list[list[float]]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation at each point."""
    points = list(zip(*curves))
    return [fmean(point) for point in points], [stdev(point) for point in points]


def band(ax: Any, x: list[float], middle: list[float], reach: list[float], colour: str,
         width: float = 1.2) -> None:
    ax.fill_between(x, [m - r for m, r in zip(middle, reach)], [m + r for m, r in zip(middle, reach)], color=colour,
                    alpha=0.13, linewidth=0)
    ax.plot(x, middle, color=colour, linewidth=width)


def differences(play: dict[str, Any], name: str) -> tuple[list[float], list[float]]:
    """To float32 with the same seed: mean and standard error."""
    pairs = zip(play[name], play[FLOAT32])
    middle, deviation = over_seeds([[a - b for a, b in zip(one["curve"], other["curve"])] for one, other in pairs])
    return middle, [d / len(play[name]) ** 0.5 for d in deviation]


def draw_differences(ax: Any, play: dict[str, Any], x: list[float], names: list[str], noise: bool) -> None:
    highest = []
    for name in names:
        middle, error = differences(play, name)
        band(ax, x, middle, error, COLOURS[name])
        highest.append(max(abs(m) for m in middle[skipped(x):]))
    if noise:
        _, deviation = over_seeds([run["curve"] for run in play[FLOAT32]])
        ax.fill_between(x, [-d for d in deviation], deviation, color=GREY, alpha=0.18, linewidth=0)
    ax.axhline(0, color=COLOURS[FLOAT32], linewidth=1.2)
    ax.set_ylim(-1.15 * max(highest), 1.15 * max(highest))


def skipped(x: list[float]) -> int:
    """Points at the steep beginning, which must not set the scale."""
    return max(1, len(x) // 12)


def draw_play(axes: Any, play: dict[str, Any], steps: int, logarithmic: bool) -> None:
    above, between, below = axes
    x = centres(len(play[FLOAT32][0]["curve"]), steps)
    losses = []
    for name, colour in COLOURS.items():
        middle, deviation = over_seeds([run["curve"] for run in play[name]])
        # The others lie on float32's line, so that one is wide.
        band(above, x, middle, deviation, colour, 3.4 if name == FLOAT32 else 1.2)
        losses.append(middle)
    if logarithmic:
        above.set_yscale("log")
    else:
        lowest, highest = min(map(min, losses)), max(max(loss[skipped(x):]) for loss in losses)
        above.set_ylim(lowest - 0.05 * (highest - lowest), highest)
    others = [name for name in COLOURS if name != FLOAT32]
    draw_differences(between, play, x, others, noise=True)
    draw_differences(below, play, x, [name for name in others if name != NEAREST], noise=False)
    below.set_xlabel("steps")
    for ax in axes:
        ax.set_xlim(0, steps)
        style(ax)


def legend(fig: Any, bottom: float) -> None:
    """Below everything: inside a panel it would hide a curve."""
    handles = [Line2D([], [], color=COLOURS[name], linewidth=2) for name in COLOURS]
    fig.legend(handles, [VARIANTS[name].title for name in COLOURS], frameon=False, loc="lower center", ncol=3, fontsize=8)
    fig.tight_layout(rect=(0, bottom, 1, 1))


def draw_plays(path: Path, plays: list[tuple[str, dict[str, Any], int]], unit: str, logarithmic: bool = False) -> None:
    """plays: (title, play, steps), side by side."""
    fig, axes = plt.subplots(3, len(plays), figsize=(9, 7), dpi=DPI, sharex="col", squeeze=False,
                             gridspec_kw={"height_ratios": (2, 1, 1)})
    for (title, play, steps), column in zip(plays, zip(*axes)):
        draw_play(column, play, steps, logarithmic)
        column[0].set_title(title, fontsize=10, loc="left")
    for row, text in zip(axes, (unit, "difference to float32\n(grey: its σ)", "the same\nwithout nearest")):
        row[0].set_ylabel(text)
    fig.align_ylabels()
    legend(fig, bottom=0.06)
    save(fig, path)


def draw_probes(path: Path, results: dict[str, Any]) -> None:
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), dpi=DPI)
    settings = results["settings"]
    for ax, key in ((left, "second_moment"), (right, "constant_gradient")):
        every = settings[key]["every"]
        for k, (name, colour) in enumerate(COLOURS.items()):
            means = results[key][name]["means"]
            # Lines lie on one another: the later, the thinner.
            ax.plot([(i + 1) * every for i in range(len(means))], means, color=colour, linewidth=5 - 0.8 * k)
        ax.set_xlabel("steps")
        style(ax)
    left.axvline(settings["second_moment"]["before"], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    left.set_yscale("log")
    left.set_title(f"mean second moment; gradients shrink to {settings['second_moment']['shrink']:g}", fontsize=10, loc="left")
    right.set_title(f"mean weight, of 1; every update is {rate_text(settings['constant_gradient']['lr'])}", fontsize=10, loc="left")
    legend(fig, bottom=0.12)
    save(fig, path)


def save(fig: Any, path: Path) -> None:
    """With 256 colours a file is half as large, and looks the same."""
    memory = io.BytesIO()
    fig.savefig(memory, format="png")
    plt.close(fig)
    Image.open(memory).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def draw(folder: Path, results: dict[str, Any]) -> None:
    plays, settings = results["plays"], results["settings"]
    of_gpt, of_regression = settings["gpt"], settings["regression"]

    def tuned(play: str, of_play: dict[str, Any]) -> list[tuple[str, dict[str, Any], int]]:
        return [(f"fine-tuned at {rate_text(lr)}", plays[f"{play}-tuned-{lr:g}"], of_play["tuned"]["steps"])
                for lr in of_play["tuned"]["lrs"]]

    nats = "loss, nats per character"
    draw_plays(folder / "gpt-scratch.png",
               [("the GPT from scratch", plays["gpt-scratch"], of_gpt["scratch"]["steps"])], nats)
    draw_plays(folder / "gpt-tuned.png", tuned("gpt", of_gpt), nats)
    draw_plays(folder / "regression.png",
               [("the regression from scratch", plays["regression-scratch"], of_regression["scratch"]["steps"]),
                *tuned("regression", of_regression)], "mean square error", logarithmic=True)
    draw_probes(folder / "probes.png", results)
