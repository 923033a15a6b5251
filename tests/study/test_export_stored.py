"""The split of a stored trial is exported only from the hardware it was measured on."""

from dataclasses import replace

import optuna
import pytest

from autosplit.deployment import cores_of
from autosplit.errors import ConfigError, Infeasible
from autosplit.report.documents.record import read
from autosplit.study import export
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.export import export_stored_split
from autosplit.study.loop import benches
from autosplit.study.record import record_of, study_record, update
from studies.simulation.bench import Hardware, SimulatedBench
from tests.study.conftest import chain_bench


@pytest.fixture
def written(monkeypatch):
    """What is handed on to be exported: simulated hardware claims to build stages."""
    exported = []
    monkeypatch.setattr(SimulatedBench, "export", lambda _, *known: exported.append(known))
    return exported


@pytest.fixture
def bench(monkeypatch):
    """The hardware that an export opens again."""
    bench = chain_bench(ops=8, stages=2)
    monkeypatch.setattr(benches, "open_bench", lambda config, **_: bench)
    monkeypatch.setattr(bench, "close", lambda: setattr(bench, "is_closed", True), raising=False)
    return bench


def test_the_best_split_is_exported_with_what_was_measured(bench, ran, written, tmp_path):
    opened = ran(bench, trials=3)
    assert export_stored_split(opened.study, tmp_path / "out") == tmp_path / "out" / "split.json"
    ((deployment, folder, known, *_),) = written
    best = read(opened.study).best()
    assert folder == tmp_path / "out"
    assert deployment.split == best.record.stages
    assert (
        known.measured == opened.record.final_comparison.of(best.number, best.record).measurement()
    )
    assert known.predicted == best.record.predicted_ms
    assert [b.name for b in known.baselines] == ["one device", "replicas"]
    assert known.baselines == opened.record.compared_baselines()
    assert known.verdict == opened.study.user_attrs["result"]["verdict"]["text"]
    assert bench.is_closed


def test_where_nothing_was_measured_there_is_nothing_to_export(bench, new_study, written, tmp_path):
    opened = new_study(bench)
    with pytest.raises(Infeasible, match="study 's' has no completed trial"):
        export_stored_split(opened.study, tmp_path / "out")
    with pytest.raises(ConfigError, match="trial 0 does not exist; complete trials are none"):
        export_stored_split(opened.study, tmp_path / "out", 0)
    update(opened.study.ask(), error="no room")
    with pytest.raises(ConfigError, match="trial 0 is running"):
        export_stored_split(opened.study, tmp_path / "out", 0)
    opened.study.tell(0, state=optuna.trial.TrialState.FAIL)
    with pytest.raises(ConfigError, match=r"trial 0 failed \(no room\)"):
        export_stored_split(opened.study, tmp_path / "out", 0)
    assert not written


def test_other_hardware_or_another_model_is_not_exported_from(bench, ran, written, tmp_path):
    opened = ran(bench, trials=1)
    another = {**bench.description.identity, "model": "another"}
    bench.description = replace(bench.description, identity=another)
    other = r"study 's' measured something else: .*another.*; .*--force"
    with pytest.raises(ConfigError, match=other):
        export_stored_split(opened.study, tmp_path / "out")
    assert not written
    assert bench.is_closed


def test_stored_stages_of_no_model_are_refused(bench, ran, written, tmp_path, monkeypatch):
    study = ran(bench, trials=1).study

    def changed(trial):
        return record_of(trial).model_copy(update={"stages": ((0,), (10**9,))})

    monkeypatch.setattr("autosplit.study.export.record_of", changed)
    with pytest.raises(ConfigError, match="is complete, but stage 1 names op 1000000000"):
        export_stored_split(study, tmp_path / "out")
    assert not written


def test_a_baseline_that_the_verdict_advises_is_exported(on_hardware, written, tmp_path):
    opened = on_hardware(Hardware(ops=12, contention=5.0), trials=2, cores=["0-3"])
    record = study_record(opened.study.user_attrs)
    assert (record.verdict.choice, record.verdict.baseline) == ("leave", "one device")
    export_stored_split(opened.study, tmp_path / "out")
    deployment, _, known, *_ = written[-1]
    assert (deployment.replicas, deployment.threads) == ((1,), (1,))
    advised = next(b for b in record.measured_baselines() if b.name == "one device")
    assert known.measured.period_ms == advised.period_ms


def test_the_best_deployment_is_exported_whatever_its_shape(on_hardware, written, tmp_path):
    opened = on_hardware(Hardware(ops=12), trials=2, cores=["2-5"], memory="5 MB")
    for number, trial in enumerate(opened.study.trials):
        export_stored_split(opened.study, tmp_path / "out", number)
        deployment, _, known, *_ = written[-1]
        assert deployment.split == record_of(trial).stages
        assert deployment.replicas == record_of(trial).replicas
        numbers = {n for s in deployment.stages for d in s.devices for n in cores_of(d)}
        assert numbers <= {2, 3, 4, 5}
        assert known.measured.stage_ms == read(opened.study).trials[number].figures.stage_ms


def test_devices_keep_the_spelling_that_other_keys_of_the_study_file_repeat():
    known = {"name": "s", "model": "net.onnx", "devices": ["cores:0-1", "cores:2-3"]}
    region = {"backend": "npu", "device": "cores:2-3"}
    asked = {**known, "targets": {"cores:0-1": "llvm"}, "regions": [region]}
    document = StudyConfig.model_validate(asked).model_dump(mode="json")
    again = export._on_stored_devices(document, {"devices": "cores:0,1 cores:2,3"}, "s")
    assert again.devices == known["devices"]
