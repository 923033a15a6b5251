"""A study made ready for the dashboard: a copy in memory, and notes, pictures and plots laid over a study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from autosplit.report.dashboard.artifacts import Draw, Pictures, identity
from autosplit.report.dashboard.plots import study_plots
from autosplit.report.documents.record import Study, Trial, read
from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.graph import split_graph
from autosplit.report.html.notes import study_note, trial_note
from autosplit.study.config.objectives import METRICS, of_study

if TYPE_CHECKING:
    import optuna

_ENDED = ("complete", "fail", "pruned")


def copy(study: optuna.Study) -> optuna.Study:
    """The study in memory: trials, numbers and short attributes; no notes or artifacts, which may come from anybody.

    Long attributes (graphs, lists of ops) stay behind: the notes tell them better. The same trials always get the same
    identities, so that a page stays valid when the copy is made again.
    """
    import optuna

    storage = optuna.storages.InMemoryStorage()
    _skip_zero(storage)
    target = optuna.create_study(
        study_name=study.study_name, directions=study.directions, storage=storage
    )
    objectives = of_study(study.user_attrs)
    if len(study.directions) == len(objectives):
        target.set_metric_names([METRICS[name] for name in objectives])
    for key, value in _short(study.user_attrs).items():
        target.set_user_attr(key, value)
    for trial in study.get_trials(deepcopy=False):
        target.add_trial(_bare(trial))
    return target


def decorate(target: optuna.Study, record: Study, pictures: Pictures) -> None:
    """Lay notes, pictures and plots over ``target``, the study itself or a copy; a person's own notes are kept."""
    from optuna_dashboard import save_plotly_graph_object

    ids = {t.number: t._trial_id for t in target.get_trials(deepcopy=False)}
    attributes = target._storage.get_study_system_attrs(target._study_id)
    shown: dict[int, list[tuple[str, str]]] = {}
    for trial in record.trials:
        if trial.number in ids and trial.state in _ENDED:
            trial_id = ids[trial.number]
            shown[trial.number] = _offer(
                target, trial_id, _trial_pictures(record, trial), pictures, attributes
            )
            _note(target, trial_id, trial_note(record, trial, shown[trial.number]), attributes)
    best = record.best()
    _note(target, None, study_note(record, shown.get(best.number, ()) if best else ()), attributes)
    for name, figure in study_plots(record).items():
        save_plotly_graph_object(target, figure, graph_object_id=name)


def fingerprint(study: optuna.Study) -> str:
    """Changes when a trial begins or ends, or the study's attributes change."""
    trials = [
        (t.state.name, str(t.datetime_complete), len(t.user_attrs))
        for t in study.get_trials(deepcopy=False)
    ]
    text = json.dumps([study.study_name, trials, study.user_attrs], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def prepare(study: optuna.Study, pictures: Pictures) -> optuna.Study:
    """A decorated copy of the study in memory."""
    target = copy(study)
    decorate(target, read(study), pictures)
    return target


def _trial_pictures(record: Study, trial: Trial) -> Iterator[tuple[str, str, Draw]]:
    """(alternative text, identity, how to draw it) of each picture a trial has."""
    if trial.stage_ms:
        names = record.stage_names(trial)
        period = trial.period_ms.median if trial.period_ms else None
        title = f"Busy time of each stage, trial {trial.number}"
        key = identity(record.name, "balance", trial.stage_ms, names, period, title)
        yield (
            "stage balance",
            key,
            partial(stage_balance, trial.stage_ms, names, period, title=title),
        )
    if trial.stages and record.graph:
        names = record.devices_of(trial)
        profile = record.profile_of(trial)
        title = f"{record.graph.name}, trial {trial.number}"
        key = identity(
            record.name,
            "graph",
            record.graph.name,
            len(record.graph.ops),
            trial.stages,
            names,
            profile,
            title,
        )
        draw = partial(
            split_graph, record.graph, trial.stages, names=names, op_ms=profile, title=title
        )
        yield "split graph", key, draw


def _offer(
    target: optuna.Study,
    trial_id: int,
    found: Iterator[tuple[str, str, Draw]],
    pictures: Pictures,
    attributes: dict[str, Any],
) -> list[tuple[str, str]]:
    """Put pictures into the store and list them as artifacts of a trial; returns (alternative text, path) of each."""
    shown = []
    for text, key, draw in found:
        pictures.put(key, draw)
        # Optuna lets no attribute of an ended trial change; the dashboard looks among the study's for artifacts too
        attribute = f"dashboard:artifacts:{trial_id}:{key}"
        if attribute not in attributes:
            name = text.replace(" ", "-") + ".png"
            meta = {"artifact_id": key, "filename": name, "mimetype": "image/png", "encoding": None}
            target._storage.set_study_system_attr(target._study_id, attribute, json.dumps(meta))
        shown.append((text, f"/artifacts/{target._study_id}/{trial_id}/{key}"))
    return shown


def _note(
    target: optuna.Study, trial_id: int | None, body: str, attributes: dict[str, Any]
) -> None:
    """Save a note unless a person wrote or edited the one that is there: ours is known by the digest kept beside it."""
    from optuna_dashboard._note import get_note_from_system_attrs, save_note_with_version

    mark = f"autosplit:note:{'study' if trial_id is None else trial_id}"
    old = get_note_from_system_attrs(attributes, trial_id)
    digest = hashlib.sha256(body.encode()).hexdigest()
    ours = (
        not old["body"] or attributes.get(mark) == hashlib.sha256(old["body"].encode()).hexdigest()
    )
    if not ours or old["body"] == body:
        return
    save_note_with_version(target._storage, target._study_id, trial_id, old["version"] + 1, body)
    target._storage.set_study_system_attr(target._study_id, mark, digest)


def _bare(trial: optuna.trial.FrozenTrial) -> optuna.trial.FrozenTrial:
    """A trial without system attributes and long ones; a damaged one becomes a failed one that says so."""
    import optuna

    values = {
        "number": trial.number, "trial_id": -1, "state": trial.state, "value": None, "values": trial.values,
        "params": trial.params, "distributions": trial.distributions, "user_attrs": _short(trial.user_attrs),
        "system_attrs": {}, "intermediate_values": {},
        "datetime_start": trial.datetime_start, "datetime_complete": trial.datetime_complete,
    }  # fmt: skip
    bare = optuna.trial.FrozenTrial(**values)
    try:
        bare._validate()
    except (ValueError, TypeError) as error:
        when = trial.datetime_start or trial.datetime_complete or datetime.now()
        values |= {
            "state": optuna.trial.TrialState.FAIL, "values": None, "params": {}, "distributions": {},
            "user_attrs": {"error": f"the record of this trial is damaged: {error}"},
            "datetime_start": when, "datetime_complete": trial.datetime_complete or when,
        }  # fmt: skip
        return optuna.trial.FrozenTrial(**values)
    return bare


def _short(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        k: v
        for k, v in attributes.items()
        if isinstance(v, bool | int | float | str) and len(str(v)) <= 2000
    }


def _skip_zero(storage: optuna.storages.InMemoryStorage) -> None:
    """Use up identity 0 for a study and a trial: pages take them for none."""
    from optuna.study import StudyDirection

    first = storage.create_new_study([StudyDirection.MINIMIZE])
    storage.create_new_trial(first)
    storage.delete_study(first)
