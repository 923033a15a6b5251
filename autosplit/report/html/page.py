"""A study as one HTML page for people without the tool: verdict, pictures, trials, machine, steps.

The page holds all it needs. It runs its own script alone, and without scripts no fact is missing.
Names and texts come from model files and databases: each is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from autosplit.files import atomic_write
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.canvas import STYLE, Canvas
from autosplit.report.drawing.charts import study_charts
from autosplit.report.drawing.graph import SplitGraph
from autosplit.report.drawing.plot import plot
from autosplit.report.html import tables
from autosplit.report.html.study_file import study_file
from autosplit.report.html.tables import Table, plain, rate, spread_text

_MAX_STUDY_FILE = 20_000  # characters of a study file that are shown
_MAX_VALUE = 60  # characters of a fact about the machine that is shown without asking
_DIGEST = re.compile(r"[0-9a-f]{64}")
SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
# Nothing is loaded, and no script runs but the page's own, known by its digest.
POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
LIVE_POLICY = f"{POLICY}; connect-src 'self'; form-action 'self'; base-uri 'none'"


def write(study: Study, file: Path) -> None:
    """Write the page. Raises MachineError if the disk refuses."""
    text = page(study)
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(study: Study) -> str:
    """The page of a study."""
    lead = f"Study {study.name}, autosplit {study.version}".rstrip()
    if study.days:
        lead += f", measured {study.days}"
    question = tables.question(study, plain)
    return document(f"{study.name}: autosplit report", lead, question, sections(study))


def document(
    title: str, lead: str, heading: str, parts: Iterator[str], live: str = "", policy: str = POLICY
) -> str:
    """A page with the style and the script of a report; ``live`` and ``parts`` are HTML."""
    # string.Template, since braces are everywhere in the page's styles.
    file = Path(__file__).with_name("page.html")
    return Template(file.read_text(encoding="utf-8")).substitute(
        title=_text(title),
        lead=_text(lead, 400),
        question=_text(heading, 2000),
        live=live,
        sections="\n".join(parts),
        policy=policy,
        pictures=STYLE,
        script=SCRIPT,
    )


def sections(study: Study) -> Iterator[str]:
    """The parts of the page, the answer first."""
    best = study.best()
    yield _verdict(study, best)
    if best:
        yield section(f"The best split: trial {best.number}", "\n".join(_best_split(study, best)))
    ways = tables.ways(study, plain)
    if ways.rows:
        marked = len(ways.rows) - 1 if best else None
        caption = "Each baseline runs the model whole."
        yield section("Against running it unsplit", table(ways, caption, best=marked))
    if best:
        charts = (figure(plot(chart), chart.about, "chart") for chart in study_charts(study))
        yield section("How the study went", f'<div class="charts">{"".join(charts)}</div>')
    if study.trials:
        marked = next((i for i, t in enumerate(study.trials) if best is t), None)
        failed = frozenset(i for i, t in enumerate(study.trials) if t.is_failed)
        body = table(tables.trials(study, plain), "In the order of their numbers.", marked, failed)
        yield section(f"Trials ({len(study.trials)})", body)
    if study.measured_on:
        yield section("Machine, model and versions", _facts(study.measured_on))
    yield section("How to do it again", _steps(study))


def _verdict(study: Study, best: Trial | None) -> str:
    advice, _, figures = study.verdict.partition(". ")
    text = f"<strong>{_text(advice, 2000).removesuffix('.')}.</strong> {_text(figures, 2000)}"
    if not study.verdict:
        text = "None yet; the study has not ended."
    facts = (
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in _figures(study, best)
    )
    body = f'<p>{text}</p><dl class="facts">{"".join(facts)}</dl>'
    if study.stopped:
        body += f'<p class="soft">Stopped: {_text(study.stopped, 400)}</p>'
    return f'<section class="card verdict">{body}</section>'


def _figures(study: Study, best: Trial | None) -> Iterator[tuple[str, str]]:
    period = best.period_ms if best else None
    if best and period:
        yield f"best split (trial {best.number})", spread_text(period)
        yield "its results a second", rate(period)
    if study.baselines:
        rival = min(study.baselines, key=lambda b: b.period_ms.median)
        yield f"without splitting ({rival.name})", spread_text(rival.period_ms)
    if study.bound:
        yield "predicted bound", study.bound
    failed = sum(t.state == "fail" for t in study.trials)
    yield "trials", f"{len(study.trials)}" + (f", {failed} failed" if failed else "")


def _best_split(study: Study, best: Trial) -> Iterator[str]:
    if best.stages and study.graph:
        view = graph_of(study, best, "box")
        about = (
            "The fused graph from left to right, coloured by stage; on the cuts the live tensors "
            "with their sizes. Point at a box for its time, shapes and source nodes. A box with a "
            "dashed border holds several ops and opens."
        )
        yield graph_figure(view, about, _cuts(study))
    yield table(tables.stages(study, best, plain, bars=False), "The stages, in pipeline order.")
    states = tables.states(study, best, plain)
    if states.rows:
        yield table(states, "The states that a stream keeps, each inside one stage.")
    if best.stage_ms:
        yield balance_figure(study, best)


def graph_of(study: Study, trial: Trial, link: str = "") -> SplitGraph:
    """The split of a trial to draw; ``link`` begins the identities of its boxes on the page."""
    assert study.graph is not None
    names = study.stage_names(trial)
    # The picture numbers the stages itself.
    names = [name.partition(", ")[2] for name in names]
    return SplitGraph(study.graph, trial.stages, names, study.profile_of(trial), link)


def graph_figure(view: SplitGraph, about: str, cuts: str = "") -> str:
    """A graph that the page's script makes a viewer of; ``cuts`` is a table of legal cuts."""
    parts = "".join(
        f'<div id="{_text(link)}">{picture.inline(title)}</div>'
        for link, title, picture in view.parts()
    )
    if parts:
        summary = "The boxes with several ops, opened"
        parts = f'<details class="parts"><summary>{summary}</summary>{parts}</details>'
    body = f'<div class="frame">{view.draw().inline(about)}</div>'
    caption = f"<figcaption>{_text(about, 400)}</figcaption>"
    return f'<figure class="graph">{body}{parts}{cuts}{caption}</figure>'


def balance_figure(study: Study, trial: Trial) -> str:
    """The busy time of each stage of a trial."""
    period = trial.period_ms.median if trial.period_ms else None
    picture = stage_balance(trial.stage_ms, study.stage_names(trial), period, width=560)
    about = f"Trial {trial.number}: busy time of each stage for one item, up to its period."
    return figure(picture, about, "chart")


def _cuts(study: Study) -> str:
    """The legal cuts, to be looked at on demand."""
    if not study.cut_periods:
        return ""
    least = min(period for _, period in study.cut_periods)
    best = next(i for i, (_, period) in enumerate(study.cut_periods) if period == least)
    marks = [f' data-cut="{cut:x}"' for cut, _ in study.cut_periods]
    best_with = "split that has the cut"
    if study.config.get("cores") is not None:
        best_with = "deployment of two stages with this cut"
    caption = f"The predicted period is that of the best {best_with}, for the op times as profiled."
    body = table(tables.legal_cuts(study, plain), caption, best, marks=marks)
    summary = f"All {len(study.cut_periods)} legal cuts with predicted periods"
    return f"<details><summary>{summary}</summary>{body}</details>"


def _facts(facts: Mapping[str, str]) -> str:
    """What can be read in a glance, and digests and compiler targets on demand."""
    long = {k: v for k, v in facts.items() if len(v) > _MAX_VALUE or _DIGEST.search(v)}
    long |= {k: v for k, v in facts.items() if k.startswith("target")}
    short = {k: v for k, v in facts.items() if k not in long}
    body = _key_table(short, "What all trials share.") if short else ""
    if long:
        table = _key_table(long, "As they are compared when a study goes on.")
        body += f"<details><summary>Digests and targets</summary>{table}</details>"
    return body


def _key_table(facts: Mapping[str, str], caption: str) -> str:
    rows = (
        f'<tr role="row"><th scope="row" role="rowheader">{_text(k)}</th>'
        f'<td role="cell">{_text(v, 4000)}</td></tr>'
        for k, v in facts.items()
    )
    return f'<table class="key" role="table"><caption>{caption}</caption>{"".join(rows)}</table>'


def _steps(study: Study) -> str:
    """The study file and the commands to run the study again."""
    # The name goes into commands that are copied into a shell.
    name = study.name if re.fullmatch(r"\w[\w.-]*", study.name, re.ASCII) else "study"
    file = f"{name}.toml"
    steps = "\n".join(
        (
            f"autosplit run {file}",
            f"autosplit report {file} -o {name}.html",
            f"autosplit export {file} -o {name}-split/",
        )
    )
    text = study_file(study.config)
    if not study.config or len(text) > _MAX_STUDY_FILE:
        return f"<p>The study file was not recorded; with it:</p><pre>{_code(steps)}</pre>"
    version = _text(f"autosplit {study.version}".rstrip())
    return (
        f"<p>With {version} and the versions above, save this as <code>{_text(file)}</code>, "
        f"with the files it names beside it:</p><pre>{_code(text)}</pre>"
        f"<p>Then:</p><pre>{_code(steps)}</pre>"
    )


def figure(picture: Canvas, about: str, kind: str) -> str:
    """A picture with its caption."""
    caption = f"<figcaption>{_text(about)}</figcaption>"
    return f'<figure class="{kind}">{picture.inline(about)}{caption}</figure>'


def table(
    content: Table,
    caption: str,
    best: int | None = None,
    failed: frozenset[int] = frozenset(),
    marks: Sequence[str] = (),
) -> str:
    """A table with the row of the best and failed rows marked; ``marks`` are attributes of rows.

    On a narrow screen a row is a list of its values with the names of their columns.
    """
    head = "".join(
        f'<th scope="col" role="columnheader"{_side(content, i)}>{_text(name)}</th>'
        for i, name in enumerate(content.columns)
    )
    rows = []
    for number, row in enumerate(content.rows):
        kind = ' class="fail"' if number in failed else ""
        if number == best:
            kind = ' class="best"'
        mark = marks[number] if marks else ""
        cells = "".join(_cell(content, i, text) for i, text in enumerate(row))
        # Roles, since a table that is laid out as a list is none to a screen reader any more.
        rows.append(f'<tr role="row"{kind}{mark}>{cells}</tr>')
    return (
        f'<table role="table"><caption>{_text(caption, 400)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )


def _cell(content: Table, column: int, text: str) -> str:
    tag, role = ("td", "cell") if column else ('th scope="row"', "rowheader")
    label = f'data-label="{_text(content.columns[column])}"'
    start = f'<{tag} role="{role}" {label}{_side(content, column)}>'
    return f"{start}{_text(text, 4000)}</{tag.split()[0]}>"


def _side(content: Table, column: int) -> str:
    return ' class="right"' if column in content.right else ""


def section(title: str, body: str) -> str:
    """A part of the page; ``body`` is HTML."""
    return f"<section><h2>{_text(title)}</h2>\n{body}\n</section>"


def _text(text: str, limit: int = 200) -> str:
    return html.escape(plain(text, limit))


def _code(text: str) -> str:
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
