"""The bench on this side of a worker process, with a fake worker: jobs, answers and failures."""

import json
from functools import partial
from pathlib import Path

import pytest

from autosplit.deployment import Deployment, Stage
from autosplit.errors import AutosplitError, ConfigError, MismatchError, ModelError, StageError
from autosplit.hardware.bench import isolated
from autosplit.hardware.bench.interface import BenchDescription
from autosplit.hardware.bench.isolated import BenchSetting, IsolatedBench
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.measurement import results
from autosplit.hardware.measurement.measure import Budget
from autosplit.serialization import dump, load
from tests.hardware.fakes import graph

SPREAD, LATENCY = results.Spread(2.0, 1.0, 3.0, (1.0, 2.0, 3.0)), results.Spread(5.0, 4.0, 6.0)
MEASURED = results.Measurement(SPREAD, LATENCY, (1.0, 2.0), 1e-6)
BASELINE = results.Baseline("replicas", SPREAD, SPREAD, 2)
PROFILE = results.Profile("cores:0", (1.5,), (0.1,))
DEPLOYMENT = Deployment((Stage.on((0,), "tvm", ("cores:0", "cores:1")),))
SETTING = BenchSetting(
    Path("net.onnx"), 2, shapes={"x": (2,)}, regions=({"backend": "npu"},), budget=Budget(3.0)
)
ANSWERS = {"profile": [dump(PROFILE)], "measure": dump(MEASURED), "export": "split.json"}


class FakeWorker:
    def __init__(self, started, open_handler, setting):
        self.setting, self.jobs = setting, []
        self.is_alive, self.is_closed = True, False
        started.append(self)

    def call(self, job, timeout_s):
        self.jobs.append(json.loads(json.dumps(job)))
        self.timeout_s = timeout_s
        answer = ANSWERS[job["kind"]]
        if isinstance(answer, BaseException):
            self.is_alive = type(answer) is not StageError
            raise answer
        return json.loads(json.dumps(answer))

    def log_tail(self):
        return "the last lines"

    def close(self):
        self.is_closed = True


@pytest.fixture
def workers(monkeypatch):
    """The workers that a bench started."""
    started = []
    monkeypatch.setattr(isolated, "Worker", partial(FakeWorker, started))
    return started


@pytest.fixture
def bench(workers):
    return IsolatedBench(SETTING)


def test_a_worker_that_answers_with_an_error_goes_on(bench, workers, monkeypatch):
    for error in (MismatchError("outputs differ"), ConfigError("unknown op")):
        monkeypatch.setitem(ANSWERS, "measure", error)
        with pytest.raises(type(error)):
            bench.measure(DEPLOYMENT)
    assert [worker.is_closed for worker in workers] == [False]


def test_a_folder_is_relative_to_the_asking_process(bench, workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured = results.SplitResults(MEASURED, 1.5, [BASELINE], "Split.")
    assert bench.export(DEPLOYMENT, Path("out"), measured, "cpp", False) == Path("out/split.json")
    job = workers[0].jobs[0]["arguments"]
    assert job["folder"] == str(tmp_path / "out")
    assert (job["format"], job["onnx"]) == ("cpp", False)
    assert load(results.SplitResults, json.loads(json.dumps(job["results"]))) == measured
    bench.export(DEPLOYMENT, Path("out"), results.SplitResults(), "native", True)
    assert workers[0].jobs[1]["arguments"]["results"]["measured"] is None


def test_after_a_crash_a_fresh_worker_waits_for_the_servers(bench, workers, monkeypatch):
    bench.profile()
    monkeypatch.setitem(ANSWERS, "measure", StageError("crash SIGSEGV in stage 1"))
    with pytest.raises(StageError, match="crash SIGSEGV") as caught:
        bench.measure(DEPLOYMENT)
    assert caught.value.log == "the last lines"
    assert workers[0].timeout_s == isolated.CANDIDATE_TIMEOUT_S + 144.0
    document = json.loads(json.dumps(workers[0].setting["setting"]))
    assert load(BenchSetting, document) == SETTING
    monkeypatch.setitem(ANSWERS, "measure", dump(MEASURED))
    assert bench.measure(DEPLOYMENT) == MEASURED
    assert [worker.is_closed for worker in workers] == [True, False]
    assert [worker.setting["wait_s"] for worker in workers] == [0.0, RETURN_S]


def test_a_fresh_worker_that_has_another_model_measures_nothing(bench, workers, monkeypatch):
    net = graph([("a", ["x"])], ["x"], ["a"])
    for model in ("before", "after"):
        described = BenchDescription(net, ("cores:0",), {"model": model}, ("tvm",), {}, {})
        monkeypatch.setitem(ANSWERS, "description", dump(described))
        assert bench.description.identity == {"model": "before"}
        bench.close()
    for answer, reason in ((ModelError("half"), "half"), (dump(described), "net.onnx. changed")):
        monkeypatch.setitem(ANSWERS, "description", answer)
        with pytest.raises(AutosplitError, match=reason):
            bench.measure(DEPLOYMENT)
    assert [worker.is_closed for worker in workers] == [True] * 3


def test_an_interrupted_job_leaves_no_answer_for_the_next_one(bench, workers, monkeypatch):
    bench.close()
    monkeypatch.setitem(ANSWERS, "profile", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.profile()
    assert bench.measure(DEPLOYMENT) == MEASURED
    assert [worker.is_closed for worker in workers] == [True, False]
    for _ in range(2):
        bench.close()
    assert [worker.is_closed for worker in workers] == [True, True]


def test_a_baseline_that_kills_the_worker_fails_only_a_study_of_its_runtime(bench, monkeypatch):
    def call(worker, job, timeout_s):
        if job["kind"] == "baseline_runtimes":
            return {"openvino, 1 thread": "openvino", "tvm, 1 thread": "tvm"}
        worker.is_alive = job["arguments"]["names"] != [killer]
        if not worker.is_alive:
            raise StageError("crash SIGSEGV")
        return [json.loads(json.dumps(dump(BASELINE)))]

    monkeypatch.setattr(FakeWorker, "call", call)
    killer = "openvino, 1 thread"
    assert bench.baselines() == [BASELINE]
    killer = "tvm, 1 thread"
    with pytest.raises(StageError, match="crash SIGSEGV"):
        bench.baselines()
