# SPDX-License-Identifier: Apache-2.0
"""The loss curves of the runs in one picture, and below it how far each is from the first."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ("#1b3a5c", "#d1495b", "#2a9d8f")
GREY = "#6b6b6b"


def smooth(values):
    """The mean over a window around each value, of a sixtieth of the run to either side; at the start, where
    the loss falls steeply, only as wide as it can be on both sides."""
    reach = max(1, len(values) // 60)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    result = []
    for i in range(len(values)):
        first, last = i - min(reach, i), min(len(values) - 1, i + min(reach, i))
        result.append((sums[last + 1] - sums[first]) / (last + 1 - first))
    return result


def style(ax):
    ax.grid(True, color="#e8e8e8", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def draw_losses(ax, runs, bigram):
    for run, colour in zip(runs, COLOURS):
        millions = [tokens / 1e6 for tokens in run.tokens]
        ax.plot(millions, run.loss, color=colour, alpha=0.08, linewidth=0.5)
        ax.plot(millions, smooth(run.loss), color=colour, linewidth=1.6, label=run.title)
        points = [(tokens / 1e6, loss) for tokens, loss in run.held_out if tokens < run.tokens[-1]]
        points.append((millions[-1], run.summary["held_out"]))  # measured on more text than the others
        ax.plot(*zip(*points), "o", color=colour, markersize=4.5, markeredgecolor="white",
                markeredgewidth=0.7)
    ax.plot([], [], "o", color=GREY, markersize=4.5, label="the same on held-out plays")
    ax.axhline(bigram, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"bigram table ({bigram:.2f})")
    ax.set_ylim(min(min(smooth(run.loss)) for run in runs) - 0.1, bigram + 0.7)
    ax.set_ylabel("loss, nats per character")
    ax.legend(frameon=False, loc="upper right")
    style(ax)


def draw_differences(ax, runs):
    for run, colour in list(zip(runs, COLOURS))[1:]:
        difference = smooth([a - b for a, b in zip(run.loss, runs[0].loss)])
        ax.plot([tokens / 1e6 for tokens in run.tokens], difference, color=colour, linewidth=1.4)
    ax.axhline(0, color=COLOURS[0], linewidth=1.4)
    ax.set_ylabel("difference\nto float32")
    ax.set_xlabel("characters seen, millions")
    style(ax)


def draw(runs, bigram, path):
    fig, (above, below) = plt.subplots(2, 1, figsize=(9, 6.6), dpi=150, sharex=True,
                                       gridspec_kw={"height_ratios": (3, 1)})
    draw_losses(above, runs, bigram)
    draw_differences(below, runs)
    first = runs[0].summary
    above.set_title(f"A GPT of {first['parameters'] / 1e6:.2f} million parameters reads Shakespeare: "
                    f"ZeRO-3 over {first['world']} workers", fontsize=12, loc="left")
    below.set_xlim(0, max(run.tokens[-1] for run in runs) / 1e6 * 1.01)
    fig.align_ylabels()
    fig.tight_layout()
    fig.savefig(path)
    plt.close(fig)
