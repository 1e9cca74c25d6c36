# SPDX-License-Identifier: Apache-2.0
"""The loss curves of the runs in one picture."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"float32": "#1b3a5c", "bf16-nearest": "#d1495b", "bf16-stochastic": "#2a9d8f"}


def smooth(values, weight=0.97):
    """An exponential mean without the bias towards its start."""
    result, mean, share = [], 0.0, 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        share = weight * share + (1 - weight)
        result.append(mean / share)
    return result


def draw(runs, bigram, path):
    fig, ax = plt.subplots(figsize=(9, 5.4), dpi=150)
    for run in runs:
        colour = COLOURS[run.name]
        millions = [tokens / 1e6 for tokens in run.tokens]
        ax.plot(millions, run.loss, color=colour, alpha=0.10, linewidth=0.6)
        ax.plot(millions, smooth(run.loss), color=colour, linewidth=1.8, label=run.title)
        points = [(tokens / 1e6, loss) for tokens, loss in run.held_out]
        points.append((millions[-1], run.summary["held_out"]))
        ax.plot(*zip(*points), "o", color=colour, markersize=4.5, markeredgecolor="white",
                markeredgewidth=0.7)
    ax.plot([], [], "o", color="#777777", markersize=4.5, label="held-out plays")
    ax.axhline(bigram, color="#777777", linewidth=1, linestyle=(0, (4, 3)))
    ax.annotate(f"bigram table {bigram:.2f}", (1, bigram), xycoords=("axes fraction", "data"),
                xytext=(-4, 4), textcoords="offset points", ha="right", color="#555555", fontsize=9)
    lowest = min(min(smooth(run.loss)) for run in runs)
    ax.set_ylim(lowest - 0.12, bigram + 0.75)
    ax.set_xlim(0, max(run.tokens[-1] for run in runs) / 1e6 * 1.01)
    ax.set_xlabel("characters seen (millions)")
    ax.set_ylabel("loss (nats per character)")
    first = runs[0].summary
    ax.set_title(f"A GPT of {first['parameters'] / 1e6:.2f} million parameters on Shakespeare, "
                 f"ZeRO-3 over {first['world']} workers", fontsize=12, loc="left")
    ax.grid(True, color="#e6e6e6", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))
    fig.tight_layout()
    fig.savefig(path)
    plt.close(fig)
