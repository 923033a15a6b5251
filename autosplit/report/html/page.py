"""A study as one HTML page for people without the tool: verdict, pictures, trials, machine, steps.

The page holds all it needs and runs nothing. Names and texts come from model files and databases:
each is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from autosplit.files import atomic_write
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.charts import convergence, stage_times, throughput_latency
from autosplit.report.drawing.graph import split_graph
from autosplit.report.drawing.plot import plot
from autosplit.report.html import tables
from autosplit.report.html.study_file import study_file
from autosplit.report.html.tables import Table, plain, rate, spread_text
from autosplit.study.loop.verdict import rival_of
from autosplit.units import milliseconds

_CHOICES = {"split": "Split.", "replicate": "Run replicas.", "leave": "Do not split."}
_XLINK = "{http://www.w3.org/1999/xlink}href"
# what matplotlib says of every element in a style sheet
_STYLE = "stroke-linejoin:round;stroke-linecap:butt"
_PIXELS_A_POINT = 100 / 72  # pictures are drawn at 100 pixels an inch, their files count points
_MIN_SCALE = 0.82  # text in a smaller picture is hard to read, so it scrolls instead
_MAX_STUDY_FILE = 20_000  # characters of a study file that are shown


def write(study: Study, file: Path) -> None:
    """Write the page. Raises MachineError without matplotlib, or if the disk refuses."""
    text = page(study)
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(study: Study) -> str:
    """The page of a study. Raises MachineError without matplotlib."""
    # string.Template, since braces are everywhere in the page's styles.
    file = Path(__file__).with_name("page.html")
    lead = f"Study {study.name}, autosplit {study.version}".rstrip()
    if study.days:
        lead += f", measured {study.days}"
    return Template(file.read_text(encoding="utf-8")).substitute(
        title=_text(f"{study.name}: autosplit report"),
        lead=_text(lead, 400),
        question=_text(tables.question(study, plain), 2000),
        sections="\n".join(_sections(study)),
    )


def _sections(study: Study) -> Iterator[str]:
    best = study.best()
    yield _verdict(study, best)
    if best:
        yield _section(f"The best split: trial {best.number}", _best_split(study, best))
    ways = tables.ways(study, plain)
    if ways.rows:
        marked = len(ways.rows) - 1 if best else None
        yield _section("Against running it unsplit", _table(ways, marked))
    if best:
        yield _section("How the study went", _charts(study))
    if study.trials:
        marked = next((i for i, t in enumerate(study.trials) if best is t), None)
        failed = frozenset(i for i, t in enumerate(study.trials) if t.error or t.state == "fail")
        table = _table(tables.trials(study, plain), marked, failed)
        yield _section(f"Trials ({len(study.trials)})", table)
    if study.measured_on:
        rows = (f"<tr>{_cell(k)}{_cell(v)}</tr>" for k, v in study.measured_on.items())
        table = f'<table class="facts-table card">{"".join(rows)}</table>'
        yield _section("Machine, model and versions", table)
    yield _section("How to do it again", _steps(study))


def _verdict(study: Study, best: Trial | None) -> str:
    text = _text(study.verdict, 2000) or "None yet; the study has not ended."
    choice = _CHOICES.get(study.choice, "")
    # the sentence of a verdict may begin with its choice
    if choice and not study.verdict.startswith(choice.rstrip(".")):
        text = f"<strong>{choice}</strong> {text}"
    facts = (
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in _figures(study, best)
    )
    body = f'<p>{text}</p><dl class="facts">{"".join(facts)}</dl>'
    if study.stopped:
        body += f'<p class="soft">Stopped: {_text(study.stopped, 400)}</p>'
    return f'<section class="card verdict">{body}</section>'


def _figures(study: Study, best: Trial | None) -> Iterator[tuple[str, str]]:
    period = study.period(best) if best else None
    if best and period:
        yield f"best split (trial {best.number})", spread_text(period)
        yield "its results a second", rate(period)
    if study.baselines:
        rival = rival_of(study.baselines)
        yield f"without splitting ({rival.name})", spread_text(rival.period_ms)
    if study.bound_ms is not None:
        yield "lower bound for the measured op times", milliseconds(study.bound_ms)
    failed = sum(t.state == "fail" for t in study.trials)
    yield "trials", f"{len(study.trials)}" + (f", {failed} failed" if failed else "")


def _best_split(study: Study, best: Trial) -> str:
    parts = []
    if best.stages and study.graph:
        names, op_ms = study.devices_of(best), study.profile_of(best)
        draw = partial(split_graph, study.graph, best.stages, names=names, op_ms=op_ms)
        about = (
            "The fused graph from left to right, coloured by stage; "
            "on the cuts the live tensors with their sizes."
        )
        parts.append(_figure("graph", draw, about, "wide"))
    parts.append(_table(tables.stages(study, best, plain)))
    if best.stage_ms:
        period = best.period_ms.median if best.period_ms else None
        names = study.stage_names(best)
        draw = partial(stage_balance, best.stage_ms, names, period, width=700)
        about = "Busy time of each stage for one item, up to the period of the trial."
        parts.append(_figure("balance", draw, about, "chart"))
    return "\n".join(parts)


def _charts(study: Study) -> str:
    charts = (
        ("convergence", convergence, "The bound holds for the op times as measured."),
        ("stages", stage_times, "The slowest stage decides the period."),
        ("pareto", throughput_latency, "Up and to the left is better; numbers are trials."),
    )
    figures = (
        _figure(name, partial(plot, chart(study)), about, "chart") for name, chart, about in charts
    )
    return f'<div class="charts">{"".join(figures)}</div>'


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


def _figure(name: str, draw: Callable[..., bytes], about: str, kind: str) -> str:
    picture = inline(draw(form="svg"), name, about)
    role = f'tabindex="0" role="region" aria-label="picture: {name}"'
    caption = f"<figcaption>{_text(about)}</figcaption>"
    return f'<figure class="{kind}"><div class="scroll" {role}>{picture}</div>{caption}</figure>'


def _table(table: Table, marked: int | None = None, failed: frozenset[int] = frozenset()) -> str:
    """A table in a box of its own to scroll, with the row of the best and failed rows marked."""
    heads = (_cell(c, "th", i in table.right) for i, c in enumerate(table.columns))
    rows = []
    for number, row in enumerate(table.rows):
        kind = ' class="fail"' if number in failed else ""
        if number == marked:
            kind = ' class="best"'
        cells = (_cell(text, "td", i in table.right) for i, text in enumerate(row))
        rows.append(f"<tr{kind}>{''.join(cells)}</tr>")
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    role = 'tabindex="0" role="region" aria-label="table"'
    body = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll table" {role}>{body}</div>'


def _cell(text: str, tag: str = "td", right: bool = False) -> str:
    place = ' class="right"' if right else ""
    return f"<{tag}{place}>{_text(text, 4000)}</{tag}>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{body}\n</section>"


def _text(text: str, limit: int = 200) -> str:
    return html.escape(plain(text, limit))


def _code(text: str) -> str:
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


def inline(svg: bytes, name: str, description: str) -> str:
    """The element for a page; ``name`` differs from picture to picture on the page.

    ``svg`` is a picture that this package drew. It fills its width, but stays readable.
    """
    # Parsed, although XML can be hostile: the picture was drawn by this program.
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local_name(child) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local_name(element)
        element.attrib = dict(_renamed(k, v, name) for k, v in element.attrib.items())
    box = root.attrib["viewBox"]
    width = float(box.split()[2]) * _PIXELS_A_POINT * _MIN_SCALE
    style = f"{_STYLE};min-width:{width:.0f}px"
    root.attrib = {"viewBox": box, "role": "img", "aria-label": description, "style": style}
    return ElementTree.tostring(root, encoding="unicode")


def _local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _renamed(key: str, value: str, name: str) -> tuple[str, str]:
    """An attribute with the picture's name before identities and references to them."""
    if key == "id":
        return key, f"{name}-{value}"
    if key == _XLINK:
        return "href", f"#{name}-{value.removeprefix('#')}"
    return key, re.sub(r"url\(#", f"url(#{name}-", value)
