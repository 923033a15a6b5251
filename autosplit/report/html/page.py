"""A study as one HTML page for people without the tool: verdict, pictures, trials, machine, steps.

The page is self-contained. It runs only its own script, and shows all facts without scripts too.
Names and texts come from model files and databases, so the template escapes each of them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import jinja2
import markupsafe
import tomli_w
from pydantic import ValidationError

from autosplit.files import atomic_write
from autosplit.report.documents import study as documents
from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.canvas import STYLE, Canvas, escaped, label
from autosplit.report.drawing.charts import study_charts
from autosplit.report.drawing.graph import SplitGraph
from autosplit.report.drawing.timeline import timeline
from autosplit.study.config.study_file import StudyConfig
from autosplit.units import milliseconds

_FOLDER = Path(__file__).parent
_MAX_STUDY_FILE = 20_000  # characters of a study file that are shown
_MAX_TEXT = 4000  # characters of a text that are shown
_MAX_VALUE = 60  # characters of a fact about the machine; longer ones are collapsed
_DIGEST = re.compile(r"[0-9a-f]{64}")
SCRIPT = (_FOLDER / "page.js").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
# Nothing is loaded, and no script runs but the page's own, known by its digest.
POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
LIVE_POLICY = f"{POLICY}; connect-src 'self'; base-uri 'none'"


def write(study: Study, file: Path, trace: Path | None = None) -> None:
    """Write the page, with the timeline of a trace. Raises MachineError if the disk refuses."""
    text = page(study, shown=timeline(trace) if trace else None)
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(study: Study, live: str = "", shown: Canvas | None = None) -> str:
    """The page of a study; ``live`` is the URL of all trials, for a page that updates itself."""
    best = study.best()
    advice, *details = study.record.verdict.text.splitlines() or [""]
    return _template().render(
        study=study,
        best=best,
        advice=advice,
        details=details,
        live=live,
        status=status(study),
        policy=LIVE_POLICY if live else POLICY,
        style=STYLE,
        script=SCRIPT,
        question=documents.question(study),
        facts=tuple(_facts(study, best)),
        graph=_graph(study, best) if best else None,
        stages=documents.stage_table(study, best) if best else None,
        states=documents.state_table(study, best) if best else None,
        timeline=shown,
        cuts=documents.legal_cuts(study),
        cut_bits=[f"{cut:x}" for cut, _ in study.cut_periods],
        ways=documents.way_table(study),
        charts=[chart.draw() for chart in study_charts(study)] if best else [],
        trials=documents.trial_table(study),
        **_machine(study),
        **_steps(study),
    )


def status(study: Study) -> str:
    """What is measured now, in one line."""
    complete = sum(t.state == "complete" for t in study.trials)
    text = f"{complete} of {len(study.trials)} trials measured. "
    running = [t for t in study.trials if t.state == "running"]
    for trial in running:
        cuts = " | ".join(", ".join(cut) for cut in trial.record.cuts)
        predicted = trial.record.predicted_ms
        text += f"Trial {trial.number} is being measured{f', cut after {cuts}' if cuts else ''}"
        text += f", predicted {milliseconds(predicted)}. " if predicted is not None else ". "
    return text.rstrip() if running else f"{text}None is being measured now."


@cache
def _template() -> jinja2.Template:
    def shown(value: object) -> object:
        # Markup is a string too, but must not be shortened.
        return label(value, _MAX_TEXT) if type(value) is str else value

    def breakable(value: object) -> markupsafe.Markup:
        """A text in which the browser may break a line after separators, as in long names."""
        text = str(markupsafe.escape(label(str(value), _MAX_TEXT)))
        return markupsafe.Markup(re.sub(r"(?<=[/_.:])(?=[^\W\d])", "<wbr>", text))

    environment = jinja2.Environment(
        autoescape=True,
        finalize=shown,
        loader=jinja2.FileSystemLoader(_FOLDER),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["own"] = markupsafe.Markup  # for HTML that this package has written
    environment.filters["breakable"] = breakable
    environment.filters["code"] = lambda text: markupsafe.Markup(escaped(text))
    return environment.get_template("page.html")


def _facts(study: Study, best: Trial | None) -> Iterator[tuple[str, str]]:
    period = best.figures.period_ms if best else None
    if best and period:
        name = f"best {study.kind_of(best)} (trial {best.number}), measured"
        yield name, f"{documents.spread_text(period)} ms"
        if best.record.predicted_ms is not None:
            yield "predicted for it", milliseconds(best.record.predicted_ms)
        yield "throughput", f"{documents.rate(period)} items/s"
    if rival := study.rival:
        name = f"best baseline ({rival.name}), measured"
        yield name, f"{documents.spread_text(rival.period_ms)} ms"
    if study.bound:
        yield "predicted bound", study.bound
    failed = sum(t.state == "fail" for t in study.trials)
    yield "trials", f"{len(study.trials)}" + (f", {failed} failed" if failed else "")


def _graph(study: Study, trial: Trial) -> Canvas | None:
    if not (study.graph and trial.record.stages):
        return None
    names, times = study.stage_names(trial), study.profile_of(trial)
    return SplitGraph(study.graph, trial.record.stages, names, times).draw()


def _machine(study: Study) -> dict[str, Mapping[str, str]]:
    """The facts that all trials share; digests, targets and long values are collapsed."""
    record = study.record
    known = {"machine": record.machine, "measured": study.days, "autosplit": record.version}
    facts = {key: value for key, value in known.items() if value} | record.identity
    details = {k: v for k, v in facts.items() if len(v) > _MAX_VALUE or _DIGEST.search(v)}
    details |= {k: v for k, v in facts.items() if k.startswith("target")}
    return {"machine": {k: v for k, v in facts.items() if k not in details}, "digests": details}


def _steps(study: Study) -> dict[str, str]:
    """The study file and the commands to run the study again."""
    # The name goes into commands that are copied into a shell.
    name = study.name if re.fullmatch(r"\w[\w.-]*", study.name, re.ASCII) else "study"
    file, config = f"{name}.toml", study.record.config
    commands = f"run {file}", f"report {file} -o {name}.html", f"export {file} -o {name}-split/"
    steps = "\n".join(f"autosplit {command}" for command in commands)
    text = study_file(config)
    return {"steps": steps, "file": file, "study_file": text * (len(text) <= _MAX_STUDY_FILE)}


def study_file(config: Mapping[str, Any]) -> str:
    """The TOML text of a recorded configuration, with the files it names in the same folder.

    ``storage`` is left out, since a URL may hold a password, and so are defaults. The text is empty
    if this version cannot read the configuration.
    """
    try:
        known = StudyConfig.model_validate(config)
    except (ValidationError, RecursionError):
        return ""
    shared = known.model_dump(exclude={"storage"}, exclude_defaults=True)
    # Its default depends on the workload.
    shared["objective"] = known.objective
    load = shared.get("workload", {})
    for table, key in ((shared, "model"), (shared, "tuning"), (load, "arrivals")):
        if key in table:
            table[key] = PurePath(table[key]).name
    return tomli_w.dumps(shared)
