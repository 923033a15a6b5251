"""A finished study as another room writes it, in a SQLite file: 12 trials, the sixth of them failed."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest

from autosplit.cuts.stages import cuts_of, live
from autosplit.graph import FusedGraph

REASON = "stage 1 ended by signal 11; its kernels may be broken, see autosplit doctor"
FAILED = 5


def _graphs() -> Any:
    """The module beside this one; tests are imported without their folder on the path."""
    spec = importlib.util.spec_from_file_location(
        "report_graphs", Path(__file__).with_name("graphs.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def graphs() -> Any:
    return _graphs()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("finished") / "fire.db"
    make_study(file, _graphs().fire_net())
    return file


@pytest.fixture
def database(tmp_path: Path, finished: Path) -> Path:
    """The file of a study named ``fire``, its own for each test."""
    return Path(shutil.copy(finished, tmp_path))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The file of a study named ``fire`` with three trials."""
    file = tmp_path / "fire.db"
    make_study(file, _graphs().fire_net(), trials=3)
    return file


def make_study(
    place: Path | str, graph: FusedGraph, name: str = "fire", trials: int = 12
) -> optuna.Study:
    """``place`` is a SQLite file or the URL of another database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = place if isinstance(place, str) else f"sqlite:///{place}"
    study = optuna.create_study(study_name=name, storage=storage, direction="minimize")
    for key, value in _study_attributes(graph).items():
        study.set_user_attr(key, value)
    for number in range(trials):
        add_trial(study, graph, 12 + number)
    return study


def add_trial(study: optuna.Study, graph: FusedGraph, cut: int) -> None:
    trial = study.ask({"share": optuna.distributions.FloatDistribution(0, 1)})
    stages = [list(range(cut)), list(range(cut, len(graph.ops)))]
    for key, value in _trial_attributes(graph, stages).items():
        trial.set_user_attr(key, value)
    if trial.number == FAILED:
        trial.set_user_attr("error", REASON)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    busy = [len(ops) * 0.5 for ops in stages]
    period = max(busy) + 0.2
    measured = {
        "stage_ms": busy, "period_ms": _spread(period), "latency_ms": _spread(sum(busy) + 1), "max_rel_error": 2e-6,
        "period": period, "latency": sum(busy) + 1, "imbalance": max(busy) * 2 / sum(busy), "bottleneck_stage": 0,
        "stage0_ms": busy[0], "stage1_ms": busy[1],
    }  # fmt: skip
    for key, value in measured.items():
        trial.set_user_attr(key, value)
    study.tell(trial, period)


def _study_attributes(graph: FusedGraph) -> dict[str, Any]:
    ops = [
        {"name": op.name, "kernel": op.kernel, "sources": op.sources, "inputs": op.inputs, "outputs": op.outputs,
         "weight_bytes": 0} for op in graph.ops
    ]  # fmt: skip
    tensors = {
        n: {"shape": t.shape, "dtype": t.dtype, "bytes": t.bytes} for n, t in graph.tensors.items()
    }
    document = {
        "name": graph.name,
        "ops": ops,
        "tensors": tensors,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    baselines = [
        ("one core", 20.5, 20.5, 1),
        ("all cores", 12.1, 12.1, 1),
        ("replicas", 10.4, 20.9, 2),
    ]
    return {
        "autosplit": {"format": 1, "version": "0.1.0"},
        "identity": {"target": "llvm", "cpu": "a cpu"},
        "config": {"name": "fire", "objective": "throughput"},
        "graph": document,
        "devices": ["cores:0", "cores:1"],
        "profile": [{"device": d, "op_ms": [0.5] * len(ops)} for d in ("cores:0", "cores:1")],
        "bound_ms": 10.25,
        "baselines": [
            {"name": n, "period_ms": _spread(p), "latency_ms": _spread(q), "copies": c}
            for n, p, q, c in baselines
        ],
        "verdict": {
            "choice": "replicate",
            "text": "Two replicas are 3 % faster than the best split; do not split.",
        },
    }


def _trial_attributes(graph: FusedGraph, stages: list[list[int]]) -> dict[str, Any]:
    cuts = cuts_of(graph, stages)
    names = [live(graph, cut) for cut in cuts]
    return {
        "key": ".".join(f"{cut:x}" for cut in cuts),
        "stages": stages,
        "cuts": [[graph.ops[max(ops)].name] for ops in stages[:-1]],
        "live": [[[n, graph.tensors[n].bytes] for n in cut] for cut in names],
        "predicted_ms": max(len(ops) for ops in stages) * 0.5,
    }


def _spread(value: float) -> dict[str, float]:
    return {"median": value, "low": value * 0.98, "high": value * 1.02}


@pytest.fixture(scope="session")
def make() -> Any:
    return make_study


@pytest.fixture
def add() -> Any:
    return add_trial
