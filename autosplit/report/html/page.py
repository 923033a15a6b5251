"""A study as one page of HTML for people without the tool: question, verdict, pictures, trials, machine, how to do it again.

The page holds all it needs and runs nothing. Names and texts come from model files and databases: each is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template

from autosplit.files import atomic_write
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.charts import convergence, stage_times, throughput_latency
from autosplit.report.drawing.graph import split_graph
from autosplit.report.drawing.plot import plot
from autosplit.report.html import tables
from autosplit.report.html.inline_svg import inline
from autosplit.report.html.study_file import study_file
from autosplit.report.html.tables import Table, plain, rate, spread_text
from autosplit.study.loop.verdict import rival_of
from autosplit.units import milliseconds

_CHOICES = {"split": "Split.", "replicate": "Run replicas.", "leave": "Do not split."}
_STUDY_FILE = 20_000  # characters of a study file that are shown


def write(study: Study, file: Path) -> None:
    """Write the page. Raises MachineError where matplotlib is missing or the disk refuses."""
    text = page(study)
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(study: Study) -> str:
    """The page of a study. Raises MachineError where matplotlib is missing."""
    template = Template(
        files("autosplit.report.html").joinpath("page.html").read_text(encoding="utf-8")
    )
    made = f"autosplit {study.version}" if study.version else "autosplit"
    lead = f"Study {study.name}, {made}" + (f", measured {study.days}" if study.days else "")
    return template.substitute(
        title=_text(f"{study.name}: autosplit report", 200),
        lead=_text(lead, 400),
        question=_text(tables.question(study, plain), 2000),
        sections="\n".join(_sections(study)),
    )


def _sections(study: Study) -> Iterator[str]:
    best = study.best()
    yield _verdict(study, best)
    if best:
        yield from _best_split(study, best)
    ways = tables.ways(study, plain)
    if ways.rows:
        yield _section(
            "Against running it unsplit", _table(ways, marked=len(ways.rows) - 1 if best else None)
        )
    if best:
        yield _section("How the study went", f'<div class="charts">{"".join(_charts(study))}</div>')
    if study.trials:
        marked = next((i for i, t in enumerate(study.trials) if best is t), None)
        failed = frozenset(i for i, t in enumerate(study.trials) if t.error or t.state == "fail")
        yield _section(
            f"Trials ({len(study.trials)})", _table(tables.trials(study, plain), marked, failed)
        )
    if rows := tuple(study.measured_on.items()):
        yield _section("Machine, model and versions", _facts_table(rows))
    yield _section("How to do it again", _again(study))


def _verdict(study: Study, best: Trial | None) -> str:
    text = _text(study.verdict, 2000) or "None yet; the study has not ended."
    choice = _CHOICES.get(study.choice, "")
    # the sentence of a verdict may begin with what it chooses
    lead = (
        f"<strong>{choice}</strong> "
        if choice and not study.verdict.startswith(choice.rstrip("."))
        else ""
    )
    facts = "".join(
        f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in _figures(study, best)
    )
    stopped = f'<p class="soft">Stopped: {_text(study.stopped, 400)}</p>' if study.stopped else ""
    return f'<section class="card verdict"><p>{lead}{text}</p><dl class="facts">{facts}</dl>{stopped}</section>'


def _figures(study: Study, best: Trial | None) -> Iterator[tuple[str, str]]:
    period = study.period(best) if best else None
    if best and period:
        yield f"best split (trial {best.number})", spread_text(period)
        yield "its results a second", rate(period)
    if study.baselines:
        way = rival_of(study.baselines)
        yield f"without splitting ({way.name})", spread_text(way.period_ms)
    if study.bound_ms is not None:
        yield "lower bound for the measured op times", milliseconds(study.bound_ms)
    failed = sum(t.state == "fail" for t in study.trials)
    yield "trials", f"{len(study.trials)}" + (f", {failed} failed" if failed else "")


def _best_split(study: Study, best: Trial) -> Iterator[str]:
    parts = []
    devices = study.devices_of(best)
    if best.stages and study.graph:
        draw = partial(
            split_graph, study.graph, best.stages, names=devices, op_ms=study.profile_of(best)
        )
        about = "The fused graph from left to right, coloured by stage; on the cuts the live tensors with their sizes."
        parts.append(_figure("graph", draw, about, "wide"))
    parts.append(_table(tables.stages(study, best, plain)))
    if best.stage_ms:
        names = study.stage_names(best)
        period = best.period_ms.median if best.period_ms else None
        draw = partial(stage_balance, best.stage_ms, names, period, width=700)
        parts.append(
            _figure(
                "balance",
                draw,
                "Busy time of each stage for one item, up to the period of the trial.",
                "chart",
            )
        )
    yield _section(f"The best split: trial {best.number}", "\n".join(parts))


def _charts(study: Study) -> Iterator[str]:
    yield _figure(
        "convergence",
        partial(plot, convergence(study)),
        "The bound holds for the op times as measured.",
        "chart",
    )
    yield _figure(
        "stages",
        partial(plot, stage_times(study)),
        "The slowest stage decides the period.",
        "chart",
    )
    about = "Up and to the left is better; numbers are trials."
    yield _figure("pareto", partial(plot, throughput_latency(study)), about, "chart")


def _again(study: Study) -> str:
    name = study.name if re.fullmatch(r"\w[\w.-]*", study.name, re.ASCII) else "study"
    file = f"{name}.toml"
    steps = f"autosplit run {file}\nautosplit report {file} -o {name}.html\nautosplit export {file} -o {name}-split/"
    text = study_file(study.config)
    if not study.config or len(text) > _STUDY_FILE:
        return f"<p>The study file was not recorded; with it:</p><pre>{_code(steps)}</pre>"
    which = f"autosplit {study.version}" if study.version else "autosplit"
    return (
        f"<p>With {_text(which)} and the versions above, save this as <code>{_text(file)}</code>, with the files it "
        f"names beside it:</p><pre>{_code(text)}</pre><p>Then:</p><pre>{_code(steps)}</pre>"
    )


def _figure(name: str, draw: Callable[..., bytes], about: str, kind: str) -> str:
    picture = inline(draw(form="svg"), name, about)
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="picture: {name}">{picture}</div>'
    return f'<figure class="{kind}">{box}<figcaption>{_text(about)}</figcaption></figure>'


def _table(found: Table, marked: int | None = None, failed: frozenset[int] = frozenset()) -> str:
    """A table in a box of its own to scroll; ``marked`` is the row of the best, ``failed`` are those in red."""
    heads = "".join(_cell("th", column, i in found.right) for i, column in enumerate(found.columns))
    rows = []
    for number, row in enumerate(found.rows):
        kind = ' class="best"' if number == marked else ' class="fail"' if number in failed else ""
        cells = "".join(_cell("td", cell, i in found.right) for i, cell in enumerate(row))
        rows.append(f"<tr{kind}>{cells}</tr>")
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll table" tabindex="0" role="region" aria-label="table">{body}</div>'


def _facts_table(rows: tuple[tuple[str, str], ...]) -> str:
    lines = "".join(
        f"<tr><td>{_text(key)}</td><td>{_text(value, 2000)}</td></tr>" for key, value in rows
    )
    return f'<table class="facts-table card">{lines}</table>'


def _cell(tag: str, text: str, right: bool) -> str:
    place = ' class="right"' if right else ""
    return f"<{tag}{place}>{_text(text, 4000)}</{tag}>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{body}\n</section>"


def _text(text: str, limit: int = 200) -> str:
    return html.escape(plain(text, limit))


def _code(text: str) -> str:
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
