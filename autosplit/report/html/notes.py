"""Notes in Markdown on a study: what a trial did and how it compares; what the study asked and found.

Names come from model files and databases, so each is escaped before it enters a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autosplit.report.documents.record import Study, Trial
from autosplit.report.html import tables
from autosplit.report.html.tables import plain, spread_text
from autosplit.units import milliseconds, size

_MARKUP = frozenset("\\`*_{}[]<>()#+-.!|~$&:@^=\"'")


def escape(text: str, limit: int = 200) -> str:
    """Text as Markdown that shows it literally, on one line and of at most ``limit`` characters."""
    return "".join(f"&#{ord(c)};" if c in _MARKUP else c for c in plain(text, limit))


def trial_note(study: Study, trial: Trial, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """The note of one trial: verdict against the best so far, table of stages, pictures, what else was measured.

    ``pictures`` are (alternative text, path) of images to show.
    """
    parts = [f"### {headline(study, trial)}"]
    if trial.error or trial.state == "fail":
        parts.append(f"**Failed:** {escape(trial.error or 'no reason was recorded', 2000)}")
    if trial.stages or trial.stage_ms:
        parts.append(_table(tables.stages(study, trial, escape)))
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    if facts := _facts(study, trial):
        parts.append("\n".join(f"- {fact}" for fact in facts))
    return "\n\n".join(parts) + "\n"


def headline(study: Study, trial: Trial) -> str:
    """One line: the period and how it stands against the best trial before it, or why there is none."""
    if trial.state != "complete" or trial.period_ms is None:
        words = {
            "fail": "failed",
            "running": "is being measured",
            "waiting": "waits to be measured",
        }
        return f"Trial {trial.number} {words.get(trial.state, 'has no measured period')}"
    period = trial.period_ms.median
    text = f"Trial {trial.number}: a result every {spread_text(trial.period_ms)}"
    if trial.memory_bytes is not None and "memory" in study.objectives:
        text += f", {size(trial.memory_bytes)} in the largest stage"
    if study.objectives != ("throughput",):
        return text + ("; the best of the study" if study.best() is trial else "")
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
    parts = [f"### {escape(tables.question(study, plain), 1000)}"]
    if study.verdict:
        parts.append(f"**Verdict:** {escape(study.verdict, 2000)}")
    elif study.trials:
        parts.append("**Verdict:** none yet; the study has not ended.")
    ways = tables.ways(study, escape, best="**{}**".format)
    parts.append(_table(ways) if ways.rows else "")
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    if study.bound_ms is not None:
        parts.append(
            f"Predicted bound of every split: {milliseconds(study.bound_ms)}, for the measured op times."
        )
    if study.stopped:
        parts.append(f"Stopped: {escape(study.stopped)}.")
    if rows := [(escape(k), escape(v)) for k, v in study.measured_on.items()]:
        parts.append("**Machine and model**\n\n" + table(("what", "value"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; cells must be escaped already, columns in ``right`` are right-aligned."""
    rule = ["---:" if i in right else "---" for i in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, rule, *rows))


def _facts(study: Study, trial: Trial) -> list[str]:
    facts = []
    if trial.number in study.final_comparison:
        facts.append(
            f"In the final comparison, in turns with the other best: {spread_text(study.final_comparison[trial.number])}"
        )
    if trial.latency_ms:
        facts.append(f"Latency of one item: {spread_text(trial.latency_ms)}")
    if trial.stage_ms and sum(trial.stage_ms):
        mean = sum(trial.stage_ms) / len(trial.stage_ms)
        facts.append(
            f"Imbalance: the slowest stage takes {max(trial.stage_ms) / mean:.2f} times the mean"
        )
    if trial.predicted_ms is not None:
        measured = f", measured {milliseconds(trial.period_ms.median)}" if trial.period_ms else ""
        facts.append(f"Predicted: {milliseconds(trial.predicted_ms)}{measured}")
    if trial.period_ms and study.bound_ms:
        facts.append(f"Lower bound for the measured op times: {milliseconds(study.bound_ms)}")
    if trial.max_rel_error is not None:
        facts.append(
            f"Largest error against the reference: {trial.max_rel_error:.1e} of the output's scale"
        )
    return facts


def _table(found: tables.Table) -> str:
    return table(found.columns, found.rows, found.right)


def _percent(slower: float, faster: float) -> str:
    return f"{(slower / faster - 1) * 100:.1f} %" if faster else "much"
