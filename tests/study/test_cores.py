"""Studies of deployments on simulated cores, from the study file to the verdict."""

from statistics import median

import pytest

from autosplit.deployment import cores_of
from autosplit.errors import Infeasible
from autosplit.hardware.measurement import baselines as compared
from autosplit.report.documents.record import read
from autosplit.report.documents.study import trial_table, written
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.record import record_of, study_record
from studies.simulation.bench import Hardware
from tests.study.conftest import loss, verdict

FOUR = ["0-3"]
THIRD = 20e6  # bytes of a replica, of the 60 MB of the chain


def test_without_limits_the_replicas_of_the_whole_model_win(on_hardware):
    opened = on_hardware(cores=FOUR)
    judged = verdict(opened)
    assert judged["choice"] == "replicate"
    assert judged["text"].startswith("Replicate the whole model: 4 x simulated, 1 thread each.")
    assert "times as long" in judged["text"]
    periods = [trial.value for trial in opened.study.trials]
    assert opened.study.user_attrs["autosplit"]["bound_ms"] <= min(periods)
    table = trial_table(record := read(opened.study))
    assert "deployments on cores 0-3" in table.title
    assert " x " in str(table.rows[0][table.columns.index("replicas x threads")])
    document = written(record, opened.url)
    assert document["study"]["cores"] == ["0-3"]
    assert {"replicas", "threads"} <= document["trials"][0].keys()


@pytest.mark.parametrize(("error", "finest"), [(0.35, [(8, {1}), (4, {2})]), (0.001, [(8, {1})])])
def test_where_little_is_known_of_ops_a_stage_on_each_core_tells_more(on_hardware, error, finest):
    hardware = Hardware(contention=0.02, error=error)
    opened = on_hardware(hardware, trials=3, cores=["0-7"], memory=30e6)
    records = map(record_of, opened.study.trials)
    shapes = [(len(record.stages), {*record.threads}) for record in records]
    assert [shape for shape in shapes if shape in [(8, {1}), (4, {2})]] == finest


def test_threads_shorten_the_latency_and_replicas_do_not(on_hardware):
    judged = verdict(on_hardware(trials=2, cores=FOUR, objective="latency"))
    assert judged["choice"] == "leave"
    assert judged["text"].startswith("Leave the model whole: simulated, 4 threads.")


def test_a_limit_of_latency_forbids_what_takes_longer(on_hardware, monkeypatch):
    monkeypatch.setattr(compared, "COMPARED", 1)
    on_hardware(trials=4, cores=FOUR)  # the same study, as any limit is for the throughput
    opened = on_hardware(trials=4, cores=FOUR, limits={"latency_ms": 30.0})
    baselines = {b.name: b for b in study_record(opened.study.user_attrs).measured_baselines()}
    assert baselines["replicas"].latency_ms.median > 30 > baselines["all threads"].latency_ms.median
    final = study_record(opened.study.user_attrs).final_comparison
    assert [b.name for b in final.baselines] == ["all threads"]
    assert verdict(opened).get("baseline") != "replicas"
    opened = on_hardware(name="d", trials=2, cores=FOUR, limits={"latency_ms": 1e-3})
    assert {trial.value for trial in opened.study.trials} == {float("inf")}
    text = verdict(opened)["text"]
    assert text.startswith("Leave the model whole: simulated, 4 threads.")
    assert text.endswith("No measured deployment computes a lone item within 0.001 ms.")


@pytest.mark.integration
def test_with_little_memory_a_hybrid_is_near_the_optimum_after_six_trials(on_hardware):
    losses = []
    for seed in range(3):
        hardware = Hardware(contention=0.02, seed=seed)
        opened = on_hardware(hardware, f"c{seed}", 6, cores=["0-7"], memory=THIRD)
        losses.append(loss(opened))
        assert all(len(record_of(t).replicas) >= 3 for t in opened.study.trials)
        # No replica has the memory for the whole model.
        assert not opened.study.user_attrs["autosplit"]["baselines"]
    assert median(losses) < 0.02


@pytest.mark.parametrize("question", [{"cores": ["0-3"]}, {"stages": 3}])
def test_the_verdict_says_that_the_unsplit_model_exceeds_the_memory(on_hardware, question):
    opened = on_hardware(trials=2, memory=30e6, **question)
    text = "The unsplit model needs 60 MB, over the memory limit of 30 MB."
    assert text in verdict(opened)["text"]
    # An empty table would say nothing.
    assert not read(opened.study).baselines


def test_what_does_not_fit_the_memory_is_refused_by_name(on_hardware):
    with pytest.raises(Infeasible, match="op 'op0' has weights of 1 MB"):
        on_hardware(cores=FOUR, memory="500 kB")
    with pytest.raises(Infeasible, match="the weights take 60 MB, all devices have 58 MB"):
        on_hardware(name="d", memory="29 MB", stages=2)


@pytest.mark.parametrize(
    ("cores", "kinds", "threads"),
    [(1, [(0,)], [1]), (6, [tuple(range(6))], [1, 2, 4, 6]), ("0-2", [(0, 1, 2)], [1, 2, 3]),
     ("5,3", [(5, 3)], [1, 2]),
     # Of too many kinds, which count as one.
     ("0-15", [tuple(range(16))], [1, 2, 4, 8, 16]),
     (["0-3", "4,6,8"], [(0, 1, 2, 3), (4, 6, 8)], [1, 2, 4, 1, 2, 3])],
)  # fmt: skip
def test_cores_are_a_number_or_numbers_of_each_kind(monkeypatch, cores, kinds, threads):
    module = "autosplit.study.config.study_file"
    alone = [(number,) for number in range(16)]
    monkeypatch.setattr(f"{module}.by_kind", lambda n: alone if cores == "0-15" else (n,))
    monkeypatch.setattr(f"{module}.available", lambda: tuple(range(9)))
    config = StudyConfig.model_validate({"name": "c", "model": "net.onnx", "cores": cores})
    assert config.stages == "auto"
    assert config.core_kinds == tuple(kinds)
    assert [count for _, count in config.rows] == threads
    first = [kinds[int(kind)][:count] for kind, count in config.rows]
    assert list(map(cores_of, config.bench_devices)) == first


@pytest.mark.integration
def test_cores_of_two_kinds_are_searched(on_hardware):
    hardware = Hardware(ops=40, speeds=[1.0, 0.4], seed=1)
    opened = on_hardware(hardware, trials=8, cores=["0-3", "4-7"], memory=30e6)
    assert loss(opened) < 0.03
    for trial in opened.study.trials:
        stages = opened.space.candidate(record_of(trial).key)
        options = [option for stage in stages for option in stage.options]
        assert sum(o.replicas * o.row.threads for o in options if o.row.kind == "0") <= 4
    title = trial_table(read(opened.study)).title
    assert "deployments on cores 0-3 and 4-7" in title
