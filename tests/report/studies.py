"""Studies whose trials are not measured: their attributes are those that a real study writes."""

from dataclasses import replace

import optuna

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Baseline, Measurement, Profile, Spread
from autosplit.report.documents.record import Study, Trial
from autosplit.study import documents, record
from autosplit.study.record import COMPARISON, FORMAT, RECORD, RESULT, StudyRecord, TrialRecord
from studies.simulation.bench import exact

REASON = "stage 1 ended by signal 11; its kernels may be broken, see autosplit doctor"
VERDICT = "Two replicas are 3 % faster than the best split; do not split."
FAILED = 5  # the trial that fails
DEVICES = ("cores:0", "cores:1")
BASELINES = (("one core", 20.5, 20.5, 1), ("all cores", 12.1, 12.1, 1), ("replicas", 10.4, 20.9, 2))


def make_study(place, graph, name="fire", trials=12):
    """A finished study of two stages; ``place`` is a SQLite file or the URL of a database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = place if isinstance(place, str) else f"sqlite:///{place}"
    study = optuna.create_study(study_name=name, storage=storage, direction="minimize")
    baselines = [Baseline(n, spread(p), spread(q), copies) for n, p, q, copies in BASELINES]
    times = (0.5,) * len(graph.ops)
    attributes = {
        "format": FORMAT,
        "version": "0.1.0",
        "identity": {"target": "llvm", "cpu": "a cpu"},
        "config": {"name": "fire", "objective": "throughput"},
        "graph": documents.graph_document(graph),
        "devices": list(DEVICES),
        "profile": [documents.document_of(Profile(d, times, times, "tvm")) for d in DEVICES],
        "bound_ms": 10.25,
        "baselines": [documents.document_of(b) for b in baselines],
        "verdict": {"choice": "replicate", "text": VERDICT},
    }
    store(study, **attributes)
    for number in range(trials):
        add_trial(study, graph, 12 + number)
    return study


def store(study, **values):
    """Store values where a study has them: in its record, its result or its final comparison."""
    places = {COMPARISON: COMPARISON, "stopped": RESULT, "verdict": RESULT}
    for key, value in values.items():
        place = places.get(key, RECORD)
        document = {**(study.user_attrs.get(place) or {}), key: value}
        study.set_user_attr(place, value if place == COMPARISON else document)


def add_trial(study, graph, cut):
    """A trial whose second stage begins with op ``cut``; an op takes half a millisecond."""
    trial = study.ask({"share": optuna.distributions.FloatDistribution(0, 1)})
    stages = [range(cut), range(cut, len(graph.ops))]
    predicted = max(map(len, stages)) * 0.5
    split = Deployment.of_split(stages, DEVICES, ["tvm"] * 2)
    record.update(trial, predicted_ms=predicted, **documents.deployment_document(graph, split))
    if trial.number == FAILED:
        record.update(trial, error=REASON)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    measurement = measured([len(ops) * 0.5 for ops in stages])
    record.update(trial, **documents.measured_document(measurement))
    study.tell(trial, measurement.period_ms.median)


def trial(number, period=None, **more):
    """A trial with a period; ``more`` are fields of it and of its record."""
    fields = {key: more.pop(key) for key in {*Trial.__dataclass_fields__} & more.keys()}
    values = TrialRecord(period_ms=exact(period) if isinstance(period, float) else period, **more)
    return Trial(number, **{"state": "complete", "record": values, **fields})


def changed(study, **more):
    """A study with other fields, of it or of its record."""
    fields = {key: more.pop(key) for key in {*Study.__dataclass_fields__} & more.keys()}
    stored = dict(study.record) | more
    return replace(study, record=StudyRecord.model_construct(**stored), **fields)


def measured(busy):
    """What a pipeline of stages with these busy times would have measured."""
    period, latency = spread(max(busy) + 0.2), spread(sum(busy) + 1)
    return Measurement(period, latency, tuple(busy), 2e-6)


def spread(value):
    return Spread(value, value * 0.98, value * 1.02)
