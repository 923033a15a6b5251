"""Notes in Markdown on a study and on its trials.

Names come from model files and databases, so each is escaped before it enters a note.
"""

from __future__ import annotations

from collections.abc import Iterable

from autosplit.report.documents.record import Study, Trial
from autosplit.report.html import tables
from autosplit.report.html.tables import Table, plain, spread_text
from autosplit.units import milliseconds

_MARKUP = frozenset("\\`*_{}[]<>()#+-.!|~$&@^=\"'")
_STATES = {
    "fail": "failed",
    "interrupted": "was interrupted",
    "running": "is being measured",
    "waiting": "waits to be measured",
}


def escape(text: str, limit: int = 200) -> str:
    """Text as Markdown that shows it literally, on one line of at most ``limit`` characters."""
    text = "".join(f"&#{ord(c)};" if c in _MARKUP else c for c in plain(text, limit))
    # A colon is markup in addresses alone, and who edits a note sees it as it is written.
    return text.replace(":/", "&#58;/")


def trial_note(study: Study, trial: Trial, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """The note of one trial: headline, table of stages, pictures, other measurements.

    ``pictures`` are (alternative text, path) of images to show.
    """
    parts = [f"### {headline(study, trial)}"]
    if trial.error or trial.is_failed:
        outcome = "Failed" if trial.is_failed else "Interrupted"
        parts.append(f"**{outcome}:** {escape(trial.error or 'no reason was recorded', 2000)}")
    if trial.stages or trial.stage_ms:
        parts.append(markdown(tables.stages(study, trial, escape)))
    states = tables.states(study, trial, escape)
    if trial.stages and states.rows:
        parts.append(markdown(states))
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    facts = _facts(study, trial)
    if facts:
        parts.append("\n".join(f"- {fact}" for fact in facts))
    return "\n\n".join(parts) + "\n"


def headline(study: Study, trial: Trial) -> str:
    """One line: the period compared with the best trial before, or why there is none."""
    # A database may hold a complete trial without times, written by another program.
    if trial.state != "complete" or trial.period_ms is None:
        return f"Trial {trial.number} {_STATES.get(trial.state, 'has no measured period')}"
    text = f"Trial {trial.number}: a result every {spread_text(trial.period_ms)}"
    if study.objective == "throughput":
        text += _comparison(trial.period_ms.median, study.best(trial.number))
    return text + ("; the best of the study" if study.best() is trial else "")


def _comparison(period: float, before: Trial | None) -> str:
    """How a period compares with that of the best trial before it."""
    if before is None or before.period_ms is None:
        return ", the first measured"
    other, number = before.period_ms.median, before.number
    if period < other:
        return f", {_percent(other, period)} faster than the best so far (trial {number})"
    return f", {_percent(period, other)} slower than the best so far (trial {number})"


def study_note(study: Study, pictures: Iterable[tuple[str, str]] = ()) -> str:
    """The note of the study: question, verdict, baselines beside the best split, machine."""
    parts = [f"### {escape(tables.question(study, plain), 1000)}"]
    if study.verdict:
        parts.append(f"**Verdict:** {escape(study.verdict, 2000)}")
    elif study.trials:
        parts.append("**Verdict:** none yet; the study has not ended.")
    ways = tables.ways(study, escape, best="**{}**".format)
    if ways.rows:
        parts.append(markdown(ways))
    parts += [f"![{escape(text)}]({path})" for text, path in pictures]
    if study.bound:
        parts.append(f"Predicted bound of every split: {study.bound}.")
    if study.stopped:
        parts.append(f"Stopped: {escape(study.stopped)}.")
    rows = tuple((escape(key), escape(value)) for key, value in study.measured_on.items())
    if rows:
        parts.append("**Machine and model**\n\n" + markdown(Table(("what", "value"), rows)))
    return "\n\n".join(parts) + "\n"


def markdown(table: Table) -> str:
    """A table in Markdown; its cells must be escaped already."""
    # A colon on the right aligns a column of numbers.
    rule = tuple("---:" if i in table.right else "---" for i in range(len(table.columns)))
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.columns, rule, *table.rows))


def _facts(study: Study, trial: Trial) -> list[str]:
    facts = []
    if trial.searched_ms:
        before = spread_text(trial.searched_ms)
        facts.append(f"Measured in the final comparison; in the search before: {before}")
    if trial.latency_ms:
        facts.append(f"Latency of one item: {spread_text(trial.latency_ms)}")
    if trial.stage_ms and sum(trial.stage_ms) and not trial.replicas:
        # 1 is perfect; the number of stages means that one stage does everything.
        imbalance = max(trial.stage_ms) * len(trial.stage_ms) / sum(trial.stage_ms)
        facts.append(f"Imbalance: the slowest stage takes {imbalance:.2f} times the mean")
    if trial.predicted_ms is not None:
        measured = f", measured {milliseconds(trial.period_ms.median)}" if trial.period_ms else ""
        facts.append(f"Predicted: {milliseconds(trial.predicted_ms)}{measured}")
    if trial.period_ms and study.bound:
        facts.append(f"Predicted bound: {study.bound}")
    if trial.max_rel_error is not None:
        error = f"{trial.max_rel_error:.1e} of the output's scale"
        facts.append(f"Largest error against the reference: {error}")
    return facts


def _percent(slower: float, faster: float) -> str:
    return f"{(slower / faster - 1) * 100:.1f} %" if faster else "much"
