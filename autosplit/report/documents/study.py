"""A study as one JSON document: its trials, the best, the baselines, the bound and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosplit.planner.dominance import front
from autosplit.study.config.objectives import of_study
from autosplit.study.persistence.records import document_of, read_spread
from autosplit.study.persistence.storage import redact_password, storage_errors
from autosplit.study.trials.results import best_trial, compared_baselines
from autosplit.units import between, digits, size

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


def document(study: optuna.Study, url: str) -> dict[str, Any]:
    """What ``show -f json`` prints."""
    with storage_errors(url):
        trials, attributes = study.get_trials(deepcopy=False), study.user_attrs
    best = best_trial(trials, attributes)
    config = _mapping(attributes.get("config"))
    return {
        "study": {
            "name": study.study_name,
            "storage": redact_password(url),
            "model": config.get("model")
            or config.get("zoo")
            or _mapping(attributes.get("graph")).get("name"),
            "stages": config.get("stages"),
            "devices": attributes.get("devices"),
            "objective": config.get("objective"),
            "sampler": _mapping(attributes.get("sampler")).get("name"),
            "stopped": attributes.get("stopped"),
        },
        "trials": [_trial(t) for t in trials],
        "pareto": _pareto(trials, best[0] if best else None, attributes),
        "best": None if best is None else _best(best[0], attributes),
        "baselines": [document_of(b) for b in compared_baselines(attributes)],
        "bound_ms": attributes.get("bound_ms"),
        "verdict": attributes.get("verdict"),
    }


def _pareto(
    trials: Sequence[FrozenTrial], best: FrozenTrial | None, attributes: Mapping[str, Any]
) -> list[int]:
    """The numbers of the trials that no other dominates; with one objective that of the best."""
    if len(of_study(attributes)) == 1:
        return [best.number] if best else []
    told = [t for t in trials if t.state.name == "COMPLETE" and t.values]
    return [told[n].number for n in front([t.values for t in told])]


def _trial(trial: FrozenTrial) -> dict[str, Any]:
    stored = trial.user_attrs
    return {
        "number": trial.number,
        "state": trial.state.name,
        "cuts": stored.get("cuts"),
        "period_ms": stored.get("period_ms"),
        "latency_ms": stored.get("latency_ms"),
        "stage_ms": stored.get("stage_ms"),
        "error": stored.get("error"),
        "predicted_ms": stored.get("predicted_ms"),
        "memory_bytes": stored.get("memory_bytes"),
    }


def _best(trial: FrozenTrial, attributes: dict[str, Any]) -> dict[str, Any]:
    """The best trial with its stages and what crosses its cuts; ``duel_ms`` where it was compared once more."""
    names = [op.get("name") for op in _mapping(attributes.get("graph")).get("ops", ())]
    stages = trial.user_attrs.get("stages") or []
    entries = _mapping(attributes.get("duel")).get("entries", ())
    return {
        **_trial(trial),
        "live": trial.user_attrs.get("live"),
        "stages": [[names[i] if 0 <= i < len(names) else str(i) for i in ops] for ops in stages],
        "duel_ms": next(
            (e.get("period_ms") for e in entries if e.get("number") == trial.number), None
        ),
    }


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def tables(
    found: Mapping[str, Any],
) -> Iterator[tuple[str, tuple[str, ...], Sequence[tuple[object, ...]]]]:
    """The document of a study as tables: title, columns and rows."""
    study = found["study"]
    stopped = f"; {study['stopped']}" if study["stopped"] else ""
    best = found["best"]
    memory = ("memory MB",) if "memory" in (study["objective"] or ()) else ()
    yield (
        f"study {study['name']}: {study['model']}, {_stages(study)} stages{stopped}",
        (
            "trial",
            "state",
            "period ms",
            "latency ms",
            *memory,
            "stages ms",
            "cut after, or error",
            "best",
        ),
        [(*_row(t, bool(memory)), _mark(found, t["number"])) for t in found["trials"]],
    )
    if best:
        cuts = best["cuts"] or []
        live = best["live"] or [[]] * len(cuts)
        crossing = [
            (n, ", ".join(ops), _tensors(tensors))
            for n, (ops, tensors) in enumerate(zip(cuts, live, strict=False), 1)
        ]
        again = ", in the final comparison in turns" if best["duel_ms"] else ""
        title = f"best split: trial {best['number']}, {_ms(best['duel_ms'] or best['period_ms'])} ms an item{again}"
        yield title, ("cut", "after", "live tensors"), crossing
    unsplit = [
        (b["name"], _ms(b["period_ms"]), _ms(b["latency_ms"]), b["copies"])
        for b in found["baselines"]
    ]
    if found["bound_ms"] is not None:
        unsplit.append(("no split can beat, by the profile", digits(found["bound_ms"]), "", ""))
    yield "without splitting", ("baseline", "period ms", "latency ms", "copies"), unsplit


def _stages(study: Mapping[str, Any]) -> str:
    return (
        f"up to {len(study['devices'] or ())}"
        if study["stages"] == "auto"
        else str(study["stages"])
    )


def _mark(found: Mapping[str, Any], number: int) -> str:
    """What is said of a trial beside its row."""
    marks = ["*"] if found["best"] and found["best"]["number"] == number else []
    marks += ["front"] if len(found["pareto"]) > 1 and number in found["pareto"] else []
    return " ".join(marks)


def _row(trial: Mapping[str, Any], memory: bool) -> tuple[object, ...]:
    stages = ", ".join(digits(t) if t else "-" for t in trial["stage_ms"] or ())
    detail = trial["error"] or " | ".join(", ".join(ops) for ops in trial["cuts"] or ())
    held = trial["memory_bytes"]
    room = (digits(held / 1e6) if isinstance(held, int | float) else "",) if memory else ()
    times = _ms(trial["period_ms"]), _ms(trial["latency_ms"])
    return trial["number"], trial["state"].lower(), *times, *room, stages, detail


def _ms(document: object) -> str:
    spread = read_spread(document)
    if spread is None:
        return ""
    return digits(spread.median) + between(spread.low, spread.high)


def _tensors(live: Any) -> str:
    return ", ".join(f"{name} ({size(count)})" for name, count in live)
