"""The document of ``show``: trials, the best, baselines, the bound and the verdict of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosplit.report.documents.record import states_of, stored_graph
from autosplit.study.persistence.attributes import TrialAttributes, compared_baselines, spread_of
from autosplit.study.persistence.records import DISTURBED, SEARCHED, document_of
from autosplit.study.persistence.storage import redact_password, storage_errors
from autosplit.study.trials.results import best_trial, state_of
from autosplit.units import between, counted, digits, size

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

Table = tuple[str, tuple[str, ...], Sequence[tuple[object, ...]]]  # title, columns, rows

_STORED = ("cuts", "period_ms", "latency_ms", "stage_ms", "error", "predicted_ms", "memory_bytes")
# Where runtimes compete, in a study of deployments, and of a measurement that was disturbed.
_OPTIONAL = ("runtimes", "replicas", "threads", "kinds", DISTURBED)


def document(study: optuna.Study, url: str) -> dict[str, Any]:
    """The document of ``show -f json``, whose keys stay as they are."""
    with storage_errors(url):
        trials, attributes = study.get_trials(deepcopy=False), study.user_attrs
    best = best_trial(trials, attributes)
    config = _mapping(attributes.get("config"))
    graph = _mapping(attributes.get("graph"))
    cores = {} if config.get("cores") is None else {"cores": config["cores"]}
    paced = _mapping(attributes.get("duel")).get("real_time")
    return {
        "study": {
            **cores,
            "name": study.study_name,
            "storage": redact_password(url),
            "model": config.get("model") or config.get("zoo") or graph.get("name"),
            "stages": config.get("stages"),
            "devices": attributes.get("devices"),
            "objective": config.get("objective"),
            "sampler": _mapping(attributes.get("sampler")).get("name"),
            "stopped": attributes.get("stopped"),
        },
        "trials": [_trial(t) for t in trials],
        "best": None if best is None else _best(best[0], attributes),
        "baselines": [document_of(b) for b in compared_baselines(attributes)],
        "bound_ms": attributes.get("bound_ms"),
        "verdict": attributes.get("verdict"),
        **({"real_time": paced} if paced else {}),
    }


def _trial(trial: FrozenTrial) -> dict[str, Any]:
    attributes = trial.user_attrs
    stored = {key: attributes.get(key) for key in _STORED}
    stored |= {key: attributes[key] for key in _OPTIONAL if key in attributes}
    return {"number": trial.number, "state": state_of(trial).upper(), **stored}


def _best(trial: FrozenTrial, attributes: dict[str, Any]) -> dict[str, Any]:
    """The best trial with its stages and the tensors on its cuts.

    ``duel_ms`` is its period where it is that of the final comparison, None without one.
    """
    names = [op.get("name") for op in _mapping(attributes.get("graph")).get("ops", ())]
    stages = []
    for ops in trial.user_attrs.get("stages") or []:
        stages.append([names[i] if 0 <= i < len(names) else str(i) for i in ops])
    stored = TrialAttributes.model_validate(trial.user_attrs)
    keys = ("input", "output", "shape", "stage")
    rows = states_of(stored_graph(attributes.get("graph")), stored.stages)
    states = [dict(zip(keys, row, strict=True)) for row in rows]
    document = {**_trial(trial), "live": trial.user_attrs.get("live"), "stages": stages}
    document |= {"states": states} if states else {}
    compared = document["period_ms"] if SEARCHED in trial.user_attrs else None
    return {**document, "duel_ms": compared}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
    if not any(trial.get("runtimes") for trial in document["trials"]):
        del columns["runtimes"]
    if "cores" not in study:
        del columns["replicas x threads"]
    rows = []
    for trial in document["trials"]:
        cells = (cell(trial) for cell in columns.values())
        rows.append((*cells, _mark(document, trial)))
    return title, (*columns, "best"), rows


def _cut_table(best: Mapping[str, Any]) -> Table:
    period = _ms(best["duel_ms"] or best["period_ms"])
    title = f"best split: trial {best['number']}, {period} ms an item"
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
    if trial.get(DISTURBED):
        marks.append("disturbed")
    return " ".join(marks)


def _stage_times(trial: Mapping[str, Any]) -> str:
    return ", ".join(digits(t) if t else "-" for t in trial["stage_ms"] or ())


def _shapes(trial: Mapping[str, Any]) -> list[str]:
    pairs = zip(trial.get("replicas") or (), trial.get("threads") or (), strict=False)
    texts = [f"{replicas} x {threads}" for replicas, threads in pairs]
    kinds = [f" of kind {kind + 1}" for kind in trial.get("kinds") or ()] or [""] * len(texts)
    return list(map(str.__add__, texts, kinds))


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
    "runtimes": lambda trial: ", ".join(name or "-" for name in trial.get("runtimes") or ()),
    "cut after, or error": _cuts_or_error,
}
