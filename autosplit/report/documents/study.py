"""The document of ``show``: trials, the best, baselines, the bound and the verdict of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosplit.report.documents.record import states_of, stored_graph
from autosplit.study.documents import document_of
from autosplit.study.record import (
    COMPARISON,
    RECORD,
    RESULT,
    StudyRecord,
    mapping,
    spread_of,
    study_record,
)
from autosplit.study.results import BestTrial, best_trial, error_of, state_of
from autosplit.study.storage import redact_password, storage_errors
from autosplit.units import between, counted, digits, size

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

Table = tuple[str, tuple[str, ...], Sequence[tuple[object, ...]]]  # title, columns, rows

_STORED = ("cuts", "period_ms", "latency_ms", "stage_ms", "error", "predicted_ms", "memory_bytes")
# Where they are known, and of a measurement that was disturbed.
_OPTIONAL = ("runtimes", "replicas", "threads", "batch", "devices", "disturbed")


def document(study: optuna.Study, url: str) -> dict[str, Any]:
    """The document of ``show -f json``, whose keys stay as they are."""
    with storage_errors(url):
        trials, attributes = study.get_trials(deepcopy=False), study.user_attrs
    record = study_record(attributes)
    best = best_trial(trials, record)
    stored, config = mapping(attributes.get(RECORD)), record.config
    graph, result = mapping(stored.get("graph")), mapping(attributes.get(RESULT))
    cores = {} if config.get("cores") is None else {"cores": config["cores"]}
    compared = _compared(attributes)
    documents = [_trial(t, compared.get(t.number, {})) for t in trials]
    paced = record.final_comparison.real_time
    return {
        "study": {
            **cores,
            "name": study.study_name,
            "storage": redact_password(url),
            "model": config.get("model") or config.get("zoo") or graph.get("name"),
            "stages": config.get("stages"),
            "devices": stored.get("devices"),
            "objective": config.get("objective"),
            "sampler": mapping(stored.get("sampler")).get("name"),
            "stopped": result.get("stopped"),
        },
        "trials": documents,
        "best": None if best is None else _best(best, documents, record),
        "baselines": [document_of(b) for b in record.compared_baselines()],
        "bound_ms": stored.get("bound_ms"),
        "verdict": result.get("verdict"),
        **({"real_time": paced} if paced else {}),
    }


def _compared(attributes: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """What is stored of the trials in the final comparison, by their numbers."""
    entries = mapping(attributes.get(COMPARISON)).get("entries")
    documents = map(mapping, entries if isinstance(entries, list) else ())
    return {document.get("number"): document for document in documents}


def _trial(trial: FrozenTrial, compared: Mapping[str, Any]) -> dict[str, Any]:
    """A trial, with the figures of the final comparison in place of those of the search."""
    stored = {**mapping(trial.user_attrs.get(RECORD)), **compared}
    stored["error"] = error_of(trial) or None
    document = {key: stored.get(key) for key in _STORED}
    document |= {key: stored[key] for key in _OPTIONAL if key in stored}
    return {"number": trial.number, "state": state_of(trial).upper(), **document}


def _best(
    best: BestTrial, documents: Sequence[Mapping[str, Any]], study: StudyRecord
) -> dict[str, Any]:
    """The best trial with its stages and the tensors on its cuts.

    ``duel_ms`` is its period where it is that of the final comparison, None without one.
    """
    document = dict(next(d for d in documents if d["number"] == best.number))
    graph = stored_graph(study.graph)
    names = [op.name for op in graph.ops] if graph else []
    stages = []
    for ops in best.record.stages:
        stages.append([names[i] if i < len(names) else str(i) for i in ops])
    document |= {"live": best.record.live, "stages": stages}
    keys = ("input", "output", "shape", "stage")
    rows = states_of(graph, best.record.stages)
    states = [dict(zip(keys, row, strict=True)) for row in rows]
    document |= {"states": states} if states else {}
    is_compared = best.number in study.final_comparison.figures
    return {**document, "duel_ms": document["period_ms"] if is_compared else None}


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """The document of a study as tables."""
    yield _trial_table(document)
    if document["best"]:
        yield _cut_table(document["best"])
        states = [tuple(state.values()) for state in document["best"].get("states", ())]
        if states:
            yield "states, which a stream keeps", ("input", "output", "shape", "stage"), states
    rows = [
        (b["name"], _ms(b["period_ms"]), _ms(b["latency_ms"]), b["copies"])
        for b in document["baselines"]
    ]
    if rows:
        yield "baselines", ("baseline", "period ms", "latency ms", "copies"), rows


def _trial_table(document: Mapping[str, Any]) -> Table:
    study = document["study"]
    stages = study["stages"]
    if stages == "auto":
        stages = f"up to {len(study['devices'] or ())}"
    shape = f"{stages} stages" if stages else ""
    if "cores" in study:
        shape = f"deployments on cores {cores_text(study['cores'])}"
        if isinstance(study["cores"], int):
            shape = f"deployments on {counted(study['cores'], 'core')}"
    known = ", ".join(filter(None, (study["model"], shape))) or "nothing is stored yet"
    title = f"study {study['name']}: {known}"
    if study["stopped"]:
        title += f"; {study['stopped']}"
    columns = dict(_COLUMNS)
    # What is the same in all trials tells nothing.
    if len({name for trial in document["trials"] for name in trial.get("runtimes") or ()}) < 2:
        del columns["runtimes"]
    if not any(map(_is_deployment, document["trials"])):
        del columns["replicas x threads"]
    rows = []
    for trial in document["trials"]:
        cells = (cell(trial) for cell in columns.values())
        rows.append((*cells, _mark(document, trial)))
    return title, (*columns, "best"), rows


def _cut_table(best: Mapping[str, Any]) -> Table:
    period = _ms(best["duel_ms"] or best["period_ms"])
    noun = "deployment" if _is_deployment(best) else "split"
    title = f"best {noun}: trial {best['number']}, {period} ms an item"
    if best["duel_ms"]:
        title += ", in the final comparison"
    cuts = best["cuts"] or []
    live = best["live"] or [[]] * len(cuts)
    rows = []
    for number, (ops, tensors) in enumerate(zip(cuts, live, strict=False), 1):
        sizes = (f"{name} ({size(count)})" for name, count in tensors)
        rows.append((number, ", ".join(ops), ", ".join(sizes)))
    return title, ("cut", "after", "live tensors"), rows


def _mark(document: Mapping[str, Any], trial: Mapping[str, Any]) -> str:
    """The marks of a trial: the best, disturbed."""
    marks, number = [], trial["number"]
    if document["best"] and document["best"]["number"] == number:
        marks.append("*")
    if trial.get("disturbed"):
        marks.append("disturbed")
    return " ".join(marks)


def _stage_times(trial: Mapping[str, Any]) -> str:
    return ", ".join(digits(t) if t else "-" for t in trial["stage_ms"] or ())


def _shapes(trial: Mapping[str, Any]) -> list[str]:
    pairs = zip(trial.get("replicas") or (), trial.get("threads") or (), strict=False)
    return [f"{replicas} x {threads}" for replicas, threads in pairs]


def _is_deployment(trial: Mapping[str, Any]) -> bool:
    """Whether a trial is more than stages on a device each, or less than two of them."""
    shapes = _shapes(trial)
    return len(shapes) == 1 or any(shape != "1 x 1" for shape in shapes)


def cores_text(cores: Any) -> str:
    """The cores of a study file, which may be those of several kinds."""
    return " and ".join(map(str, cores)) if isinstance(cores, list) else str(cores)


def _cuts_or_error(trial: Mapping[str, Any]) -> str:
    cuts = (", ".join(ops) for ops in trial["cuts"] or ())
    return trial["error"] or " | ".join(cuts)


def _ms(document: object) -> str:
    spread = spread_of(document)
    return "" if spread is None else digits(spread.median) + between(spread.low, spread.high)


# The table of trials: title and cell of each column.
_COLUMNS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "trial": lambda trial: trial["number"],
    "state": lambda trial: trial["state"].lower(),
    "period ms": lambda trial: _ms(trial["period_ms"]),
    "latency ms": lambda trial: _ms(trial["latency_ms"]),
    "stages ms": _stage_times,
    "replicas x threads": lambda trial: ", ".join(_shapes(trial)),
    "runtimes": lambda trial: ", ".join(trial.get("runtimes") or ()),
    "cut after, or error": _cuts_or_error,
}
