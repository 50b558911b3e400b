"""Learning curves from the log history of a Trainer."""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from hf_seqmodels.analysis.alignment_plots import FAINT, FONT_SIZE, INK, save

Curve = list[tuple[float, float]]

TRAIN_COLOR = "#9db8d2"
LOSS_COLOR = "#1f5a99"
METRIC_COLOR = "#d9772b"
# With losses this far apart, only a logarithmic axis shows the end of training.
LARGEST_LINEAR_RATIO = 20.0
# What a Trainer logs beside the scores.
NO_METRICS = ("eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
# Of several scores the first of these is drawn, or else the first that was logged.
PREFERRED = ("exact_match", "accuracy", "bleu", "chrf", "f1", "per", "wer", "cer", "error_rate")


def plot_learning_curve(
    log_history: Sequence[Mapping[str, Any]],
    path: str | PathLike | None = None,
    *,
    metric: str | None = None,
    title: str | None = None,
) -> Figure:
    """Draw training loss, evaluation loss and one evaluation score over the steps.

    Losses (nats per target token, as the Trainer logs them) are on the left axis, which is
    logarithmic where they span more than a factor of 20; the score is on the right. A step that was
    logged twice, as after a resumed run, counts with its last value; values that are not finite are
    left out.

    Args:
        log_history: `trainer.state.log_history`, or the `log_history` of a trainer_state.json.
        path: the picture; its ending chooses the format (.png, .svg, .pdf). The folder is made.
            None writes nothing.
        metric: the score, with or without "eval_"; None takes the first known one, or none where
            none was logged.
        title: text above the curves, or None.

    Returns:
        The figure, which a notebook shows.

    Raises:
        ValueError: if neither a loss nor the score was logged.
    """
    metric_key = find_metric(log_history, metric)
    train_loss = read_curve(log_history, "loss")
    eval_loss = read_curve(log_history, "eval_loss")
    score = read_curve(log_history, metric_key) if metric_key else []
    if not (train_loss or eval_loss or score):
        raise ValueError(
            "log_history must hold at least one step with 'loss', 'eval_loss' or a score, got "
            f"{len(log_history)} entries without. Lower logging_steps, or evaluate during training."
        )
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(7.0, 4.0), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_curve(axes, train_loss, TRAIN_COLOR, "training loss", marker="")
    draw_curve(axes, eval_loss, LOSS_COLOR, "evaluation loss", marker="o")
    style_axes(axes, [*train_loss, *eval_loss])
    handles = axes.get_lines()
    if score and metric_key:
        name = metric_key.removeprefix("eval_").replace("_", " ")
        right = axes.twinx()
        draw_curve(right, score, METRIC_COLOR, name, marker="s")
        right.set_ylabel(name, color=METRIC_COLOR, fontsize=FONT_SIZE + 0.5)
        right.tick_params(labelsize=FONT_SIZE, length=0, labelcolor=METRIC_COLOR)
        right.spines[:].set_visible(False)
        handles = [*handles, *right.get_lines()]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
    )
    if title:
        axes.set_title(title, loc="left", fontsize=FONT_SIZE + 2, color=INK, parse_math=False)
    if path is not None:
        save(figure, path)
    return figure


def find_metric(log_history: Sequence[Mapping[str, Any]], metric: str | None) -> str | None:
    """Return the key under which the score to draw was logged.

    Args:
        log_history: entries of a Trainer.
        metric: what the user wants, with or without "eval_", or None.

    Returns:
        A key such as "eval_bleu", or None where nothing was asked for and no score was logged.

    Raises:
        ValueError: if the score that was asked for was never logged.
    """
    logged = list(dict.fromkeys(key for entry in log_history for key in entry))
    scores = [
        key
        for key in logged
        if key.startswith("eval_") and key not in NO_METRICS and read_curve(log_history, key)
    ]
    if metric is None:
        preferred = [f"eval_{name}" for name in PREFERRED if f"eval_{name}" in scores]
        return next(iter([*preferred, *scores]), None)
    key = metric if metric.startswith("eval_") else f"eval_{metric}"
    if key == "eval_loss":
        return None
    if key not in scores:
        raise ValueError(
            f"metric must be one that was logged ({', '.join(scores) or 'none was'}), "
            f"got {metric!r}."
        )
    return key


def read_curve(log_history: Sequence[Mapping[str, Any]], key: str) -> Curve:
    """Return (step, value) of every finite value logged under a key, in order of the steps."""
    values: dict[float, float] = {}
    for entry in log_history:
        value = entry.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value) and "step" in entry:
            values[entry["step"]] = float(value)
    return sorted(values.items())


def draw_curve(axes: Axes, curve: Curve, color: str, name: str, *, marker: str) -> None:
    """Draw one curve, with its last value in the legend.

    Args:
        axes: where.
        curve: (step, value) in order; an empty one is not drawn.
        color: of the line.
        name: in the legend.
        marker: of the points; a curve of one point gets one anyway.
    """
    if not curve:
        return
    steps, values = zip(*curve, strict=True)
    axes.plot(
        steps,
        values,
        color=color,
        label=f"{name} (last {values[-1]:.4g})",
        marker=marker or ("o" if len(curve) == 1 else ""),
        markersize=3.5 if len(curve) <= 60 else 0,
        linewidth=1.6,
    )


def style_axes(axes: Axes, losses: Curve) -> None:
    """Label the axes of step and loss, and choose the scale of the losses.

    Args:
        axes: with the losses drawn.
        losses: everything on the left axis; without any the axis is hidden.
    """
    axes.set_xlabel("step", fontsize=FONT_SIZE + 0.5, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10]))
    axes.tick_params(labelsize=FONT_SIZE, length=0, labelcolor=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    if not losses:
        axes.yaxis.set_visible(False)
        return
    axes.set_ylabel("loss (nats per token)", fontsize=FONT_SIZE + 0.5, color=INK)
    smallest, largest = min(value for _, value in losses), max(value for _, value in losses)
    if smallest > 0 and largest / smallest > LARGEST_LINEAR_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
