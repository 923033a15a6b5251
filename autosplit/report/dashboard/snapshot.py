"""A study made ready for the dashboard: a copy in memory, with notes and pictures."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from autosplit.report.documents.record import Study, Trial
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.html.notes import study_note, trial_note
from autosplit.report.html.page import graph_of
from autosplit.study.config.sections import METRICS, objective_of
from autosplit.study.record import (
    RECORD,
    RESULT,
    FinalComparison,
    TrialRecord,
    mapping,
    record_of,
    study_record,
)

if TYPE_CHECKING:
    import optuna

Draw = Callable[[], bytes]
Picture = tuple[str, str, Draw]  # alternative text, identity and how to draw it

_ENDED = ("complete", "fail", "interrupted", "pruned")
_MAX_ATTRIBUTE = 2000  # characters; notes show longer ones better


class Pictures(dict[str, Draw]):
    """Pictures by identity, as an artifact store: each is drawn when somebody looks."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The bytes of a picture. Raises KeyError for an unknown identity."""
        return io.BytesIO(self[artifact_id]())


def copy(study: optuna.Study) -> optuna.Study:
    """The study in memory: trials, numbers and short attributes.

    Notes and artifacts stay behind: they may come from anybody. The same trials always get the same
    identities, so that a page stays valid when the copy is made again.
    """
    import optuna

    record = study_record(study.user_attrs)
    storage = optuna.storages.InMemoryStorage()
    _skip_zero(storage)
    target = optuna.create_study(
        study_name=study.study_name, directions=study.directions, storage=storage
    )
    if len(study.directions) == 1:
        target.set_metric_names([METRICS[objective_of(record.config)]])
    for document in (study.user_attrs.get(RECORD), study.user_attrs.get(RESULT)):
        for key, value in _short(mapping(document)).items():
            target.set_user_attr(key, value)
    for trial in study.get_trials(deepcopy=False):
        target.add_trial(_bare(trial, record.final_comparison))
    return target


def decorate(target: optuna.Study, record: Study, pictures: Pictures) -> None:
    """Add notes to a copy, and pictures, which ``pictures`` gets too."""
    from optuna_dashboard._note import save_note_with_version

    def save_note(trial_id: int | None, body: str) -> None:
        # The public function takes no trial that has ended.
        save_note_with_version(target._storage, target._study_id, trial_id, 1, body)

    ids = {t.number: t._trial_id for t in target.get_trials(deepcopy=False)}
    paths: dict[int, list[tuple[str, str]]] = {}
    for trial in record.trials:
        if trial.number in ids and trial.state in _ENDED:
            trial_id = ids[trial.number]
            offered = _trial_pictures(record, trial)
            paths[trial.number] = _offer(target, trial_id, offered, pictures)
            save_note(trial_id, trial_note(record, trial, paths[trial.number]))
    best = record.best()
    of_best = paths.get(best.number, []) if best else []
    save_note(None, study_note(record, of_best))


def fingerprint(study: optuna.Study) -> str:
    """Changes when a trial begins or ends, or the study's attributes change."""
    trials = [
        (t.state.name, str(t.datetime_complete), len(mapping(t.user_attrs.get(RECORD))))
        for t in study.get_trials(deepcopy=False)
    ]
    text = json.dumps([study.study_name, trials, study.user_attrs], sort_keys=True, default=str)
    return _digest(text)


def _trial_pictures(record: Study, trial: Trial) -> Iterator[Picture]:
    if trial.stage_ms:
        names = record.stage_names(trial)
        period = trial.period_ms.median if trial.period_ms else None
        title = f"Busy time of each stage, trial {trial.number}"
        key = _digest("balance", trial.stage_ms, names, period, title)
        picture = partial(stage_balance, trial.stage_ms, names, period, title=title)
        yield "stage balance", key, lambda: picture().render()
    if trial.stages and record.graph:
        view = graph_of(record, trial)
        title = f"{view.graph.name}, trial {trial.number}"
        shape = (view.graph.name, len(view.graph.ops), trial.stages)
        key = _digest("graph", *shape, view.names, view.op_ms, title)
        yield "split graph", key, lambda: view.draw(title).render()


def _offer(
    target: optuna.Study, trial_id: int, offered: Iterator[Picture], pictures: Pictures
) -> list[tuple[str, str]]:
    """Store pictures as artifacts of a trial; returns (alternative text, path) of each."""
    paths = []
    for text, key, draw in offered:
        pictures[key] = draw
        # Optuna lets no attribute of an ended trial change. The dashboard looks for artifacts
        # among the attributes of the study too.
        attribute = f"dashboard:artifacts:{trial_id}:{key}"
        name = text.replace(" ", "-") + ".svg"
        meta = {"artifact_id": key, "filename": name, "mimetype": "image/svg+xml"}
        target._storage.set_study_system_attr(target._study_id, attribute, json.dumps(meta))
        paths.append((text, f"/artifacts/{target._study_id}/{trial_id}/{key}"))
    return paths


def _digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()


def _bare(trial: optuna.trial.FrozenTrial, comparison: FinalComparison) -> optuna.trial.FrozenTrial:
    """A trial without long attributes, with its figures of the final comparison.

    A damaged one becomes a failed one.
    """
    import optuna

    record = comparison.of(trial.number, record_of(trial))
    values = trial.values
    if values and record.period_ms and trial.number in comparison.figures:
        values = [record.period_ms.median]
    start, end = trial.datetime_start, trial.datetime_complete
    try:
        bare = optuna.trial.create_trial(
            state=trial.state,
            values=values,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=_short(mapping(trial.user_attrs.get(RECORD))) | _numbers(record),
        )
        bare.datetime_start, bare.datetime_complete = start, end
        bare._validate()
    except (ValueError, TypeError) as error:
        reason = {"error": f"the record of this trial is damaged: {error}"}
        bare = optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, user_attrs=reason)
        bare.datetime_start = start or end or datetime.now()
        bare.datetime_complete = end or bare.datetime_start
    return bare


def _numbers(record: TrialRecord) -> dict[str, float]:
    """The main figures of a trial one by one: they become axes."""
    numbers = {f"stage{i}_ms": t for i, t in enumerate(record.stage_ms)}
    for name, spread in (("period", record.period_ms), ("latency", record.latency_ms)):
        if spread:
            numbers[name] = spread.median
    replicas = record.replicas or (1,) * len(record.stage_ms)
    times = [t / r for t, r in zip(record.stage_ms, replicas, strict=False)]
    busy = [t for t in times if t > 0]  # an empty stage takes no time
    if busy:
        numbers["imbalance"] = max(busy) / (sum(busy) / len(busy))
        numbers["bottleneck_stage"] = times.index(max(times))
    return numbers


def _short(attributes: Mapping[str, Any]) -> dict[str, Any]:
    short = {}
    for key, value in attributes.items():
        if isinstance(value, bool | int | float | str) and len(str(value)) <= _MAX_ATTRIBUTE:
            short[key] = value
    return short


def _skip_zero(storage: optuna.storages.InMemoryStorage) -> None:
    """Use up identity 0 for a study and a trial: pages take it for none."""
    from optuna.study import StudyDirection

    first = storage.create_new_study([StudyDirection.MINIMIZE])
    storage.create_new_trial(first)
    storage.delete_study(first)
