"""Notes in Markdown on a study: what a trial did and how it compares; what the study asked and found.

Names come from model files and databases, so each is escaped before it enters a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autosplit.hardware.results import Spread
from autosplit.report.pictures_style import milliseconds, size
from autosplit.report.record import Study, Trial

_BAR = 20  # characters of a full bar
_MARKUP = frozenset("\\`*_{}[]<>()#+-.!|~$&:@^=\"'")


def escape(text: str, limit: int = 200) -> str:
    """Text as Markdown that shows it literally, on one line and of at most ``limit`` characters."""
    text = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(f"&#{ord(c)};" if c in _MARKUP else c for c in text)


def trial_note(study: Study, trial: Trial, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """The note of one trial: verdict against the best so far, table of stages, pictures, what else was measured.

    ``pictures`` are (alternative text, path) of images to show.
    """
    parts = [f"### {headline(study, trial)}"]
    if trial.error or trial.state == "fail":
        parts.append(f"**Failed:** {escape(trial.error or 'no reason was recorded', 2000)}")
    if trial.stages or trial.stage_ms:
        parts.append(_stage_table(study, trial))
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    if facts := _facts(study, trial):
        parts.append("\n".join(f"- {fact}" for fact in facts))
    return "\n\n".join(parts) + "\n"


def headline(study: Study, trial: Trial) -> str:
    """One line: the period and how it stands against the best trial before it, or why there is none."""
    if trial.state != "complete" or trial.period_ms is None:
        words = {"fail": "failed", "running": "is being measured", "waiting": "waits to be measured"}
        return f"Trial {trial.number} {words.get(trial.state, 'has no measured period')}"
    period = trial.period_ms.median
    text = f"Trial {trial.number}: a result every {_spread(trial.period_ms)}"
    best = study.best()
    before = study.best(trial.number)
    if before is None or before.period_ms is None:
        text += ", the first measured"
    elif period < before.period_ms.median:
        text += f", {_percent(before.period_ms.median, period)} faster than the best so far (trial {before.number})"
    else:
        text += f", {_percent(period, before.period_ms.median)} slower than the best so far (trial {before.number})"
    return text + ("; the best of the study" if best is trial else "")


def study_note(study: Study, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """The note of the study: question, verdict, baselines beside the best split, machine."""
    parts = [f"### {escape(_question(study))}"]
    if study.verdict:
        parts.append(f"**Verdict:** {escape(study.verdict, 2000)}")
    elif study.trials:
        parts.append("**Verdict:** none yet; the study has not ended.")
    parts.append(_comparison(study))
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    if study.bound_ms is not None:
        parts.append(f"No split can be faster than {milliseconds(study.bound_ms)} for the op times that were measured.")
    if study.stopped:
        parts.append(f"Stopped: {escape(study.stopped)}.")
    if study.identity:
        rows = [(escape(k), escape(v)) for k, v in study.identity.items()]
        parts.append("**Machine and model**\n\n" + table(("what", "value"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; cells must be escaped already, columns in ``right`` are right-aligned."""
    rule = ["---:" if i in right else "---" for i in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, rule, *rows))


def _stage_table(study: Study, trial: Trial) -> str:
    most = max([*trial.stage_ms, *([trial.period_ms.median] if trial.period_ms else []), 1e-9])
    rows = []
    for i in range(max(len(trial.stages), len(trial.stage_ms))):
        ops = trial.stages[i] if i < len(trial.stages) else ()
        busy = trial.stage_ms[i] if i < len(trial.stage_ms) else None
        device = escape(study.devices[i]) if i < len(study.devices) else ""
        time = ("", "") if busy is None else (milliseconds(busy), "█" * max(1, round(busy / most * _BAR)))
        measured = time if trial.stage_ms else ()
        rows.append((str(i), device, str(len(ops)) if ops else "", *_ends(study, ops), *measured, _sent(trial, i)))
    times = ("busy", "of the period") if trial.stage_ms else ()
    columns = ("stage", "device", "ops", "first op", "last op", *times, "live tensors sent on")
    return table(columns, rows, right=(0, 2, 5) if trial.stage_ms else (0, 2))


def _ends(study: Study, ops: Sequence[int]) -> tuple[str, str]:
    if not ops:
        return "", ""
    first, last = min(ops), max(ops)
    if study.graph is None:
        return f"op {first}", f"op {last}"
    return escape(study.graph.ops[first].name, 60), escape(study.graph.ops[last].name, 60)


def _sent(trial: Trial, stage: int) -> str:
    if stage >= len(trial.live):
        return ""
    tensors = sorted(trial.live[stage], key=lambda pair: -pair[1])
    shown = ", ".join(f"{escape(name, 60)} ({size(count)})" for name, count in tensors[:4])
    more = f", {len(tensors) - 4} more ({size(sum(c for _, c in tensors[4:]))})" if len(tensors) > 4 else ""
    return shown + more


def _facts(study: Study, trial: Trial) -> list[str]:
    facts = []
    if trial.number in study.duel:
        facts.append(f"In the final comparison, in turns with the other best: {_spread(study.duel[trial.number])}")
    if trial.latency_ms:
        facts.append(f"Latency of one item: {_spread(trial.latency_ms)}")
    if trial.stage_ms and sum(trial.stage_ms):
        mean = sum(trial.stage_ms) / len(trial.stage_ms)
        facts.append(f"Imbalance: the slowest stage takes {max(trial.stage_ms) / mean:.2f} times the mean")
    if trial.predicted_ms is not None:
        measured = f", measured {milliseconds(trial.period_ms.median)}" if trial.period_ms else ""
        facts.append(f"Predicted: {milliseconds(trial.predicted_ms)}{measured}")
    if trial.period_ms and study.bound_ms:
        facts.append(f"Lower bound for the measured op times: {milliseconds(study.bound_ms)}")
    if trial.max_rel_error is not None:
        facts.append(f"Largest error against the reference: {trial.max_rel_error:.1e} of the output's scale")
    return facts


def _question(study: Study) -> str:
    net = study.graph.name if study.graph else study.name
    if not study.devices:
        return f"How is {net} best split?"
    return f"How is {net} best split into {len(study.devices)} stages on {', '.join(study.devices)}?"


def _comparison(study: Study) -> str:
    rows = [(escape(b.name), _spread(b.period_ms), _rate(b.period_ms), _spread(b.latency_ms)) for b in study.baselines]
    best = study.best()
    if best and (period := study.period(best)):
        latency = _spread(best.latency_ms) if best.latency_ms else ""
        rows.append((f"**best split (trial {best.number})**", _spread(period), _rate(period), latency))
    columns = ("way to run it", "time between two results", "results a second", "latency")
    return table(columns, rows, right=(2,)) if rows else ""


def _spread(spread: Spread) -> str:
    if math.isnan(spread.median):
        return ""
    if spread.low == spread.high:
        return milliseconds(spread.median)
    return f"{milliseconds(spread.median)} ({milliseconds(spread.low)} to {milliseconds(spread.high)})"


def _rate(period: Spread) -> str:
    return f"{1000 / period.median:.4g}" if period.median else ""


def _percent(slower: float, faster: float) -> str:
    return f"{(slower / faster - 1) * 100:.1f} %" if faster else "much"
