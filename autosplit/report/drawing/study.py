"""Pictures of a whole study: how its trials converge, what each stage took, throughput against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autosplit.report.dashboard.plots import pareto
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.style import INK, PALETTE, Form, chart, colour, head, label, render
from autosplit.study.loop.verdict import rival_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 400
_BEST, _WAY, _DUEL = PALETTE[5], PALETTE[2], PALETTE[3]


def convergence(study: Study, *, form: Form = "png", width: int = 640) -> bytes:
    """Measured periods by trial with their intervals, the best so far, the best way without splitting, the lower bound.

    ``width`` is in pixels. Raises MachineError where matplotlib is missing.
    """
    figure, axes = chart(width, _HEIGHT, "trial", "time between two results, ms")
    known = [(t.number, t.period_ms) for t in _measured(study) if t.period_ms]
    x, y = [n for n, _ in known], [p.median for _, p in known]
    spread = [
        [max(0.0, p.median - p.low) for _, p in known],
        [max(0.0, p.high - p.median) for _, p in known],
    ]
    axes.errorbar(
        x,
        y,
        yerr=spread,
        fmt="o",
        color=colour(0),
        ecolor=colour(4),
        elinewidth=1.4,
        label="measured",
    )
    axes.step(
        x, [min(y[: i + 1]) for i in range(len(y))], where="post", color=_BEST, label="best so far"
    )
    again = [
        (t.number, study.duel[t.number].median) for t in _measured(study) if t.number in study.duel
    ]
    if again:
        x, y = [n for n, _ in again], [p for _, p in again]
        axes.plot(x, y, "D", color=_DUEL, markersize=7, label="final comparison")
    if study.baselines:
        way = rival_of(study.baselines)
        name = f"without splitting: {label(way.name, 30)}"
        axes.axhline(way.period_ms.median, color=_WAY, linestyle="-.", linewidth=1.4, label=name)
    if study.bound_ms is not None:
        axes.axhline(study.bound_ms, color=INK, linestyle="--", linewidth=1.2, label="lower bound")
    _whole_trials(axes)
    axes.set_ylim(bottom=0)
    head(figure, axes, "Convergence")
    return render(figure, form)


def stage_times(study: Study, *, form: Form = "png", width: int = 640) -> bytes:
    """The busy time of every stage in every trial, and the period, which the slowest stage decides.

    ``width`` is in pixels. Raises MachineError where matplotlib is missing.
    """
    figure, axes = chart(width, _HEIGHT, "trial", "ms an item")
    found = [t for t in _measured(study) if t.stage_ms]
    count = max((len(t.stage_ms) for t in found), default=0)
    for stage in range(count):
        own = [t for t in found if stage < len(t.stage_ms)]
        name = f"stage {stage}" + (
            f", {label(device, 24)}" if (device := study.device_of(stage)) else ""
        )
        aside = (stage + 0.5) / count - 0.5  # so that equal times do not hide each other
        x, y = [t.number + 0.4 * aside for t in own], [t.stage_ms[stage] for t in own]
        axes.plot(x, y, "o", color=colour(stage), markersize=7, label=name)
    known = [(t.number, t.period_ms.median) for t in _measured(study) if t.period_ms]
    axes.plot(
        [n for n, _ in known],
        [p for _, p in known],
        "_",
        color=INK,
        markersize=14,
        mew=2,
        label="period",
    )
    _whole_trials(axes)
    axes.set_ylim(bottom=0)
    head(figure, axes, "Stage times")
    return render(figure, form)


def throughput_latency(study: Study, *, form: Form = "png", width: int = 640) -> bytes:
    """Each trial and each way without splitting by its latency and throughput; the line is the Pareto front of the trials.

    ``width`` is in pixels. Raises MachineError where matplotlib is missing.
    """
    figure, axes = chart(width, _HEIGHT, "latency, ms", "results a second")
    points = [
        (t.latency_ms.median, 1000 / t.period_ms.median, str(t.number))
        for t in _measured(study)
        if t.latency_ms and t.period_ms and t.period_ms.median
    ]
    front = pareto(points)
    axes.step(
        [p[0] for p in front],
        [p[1] for p in front],
        where="post",
        color=_BEST,
        label="Pareto front of the trials",
    )
    axes.plot(
        [p[0] for p in points],
        [p[1] for p in points],
        "o",
        color=colour(0),
        markersize=7,
        label="trials",
    )
    for x, y, number in front:
        axes.annotate(
            number, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=INK
        )
    best = study.best()
    if (
        best
        and best.latency_ms
        and best.number in study.duel
        and (period := study.duel[best.number].median)
    ):
        axes.plot(
            best.latency_ms.median,
            1000 / period,
            "*",
            color=_DUEL,
            markersize=14,
            label="best, compared again",
        )
    for i, b in enumerate(
        b for b in study.baselines if b.period_ms.median and b.latency_ms.median > 0
    ):
        place = b.latency_ms.median, 1000 / b.period_ms.median
        axes.plot(*place, "sD^P"[i % 4], color=_WAY, markersize=8, label=label(b.name, 30))
    axes.margins(0.08)  # room for whole marks
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    head(figure, axes, "Throughput against latency")
    return render(figure, form)


def _measured(study: Study) -> list[Trial]:
    return [t for t in study.trials if t.state == "complete" and t.period_ms]


def _whole_trials(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
