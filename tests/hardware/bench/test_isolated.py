"""The bench on this side of a worker process, with a worker that is none: jobs out, values back, what follows a failure."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from autosplit.errors import ConfigError, StageError
from autosplit.graph import Op, build
from autosplit.hardware.bench import isolated
from autosplit.hardware.bench.isolated import IsolatedBench
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import (
    Accuracy,
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    Spread,
)
from autosplit.serialization import dump

GRAPH = build(
    "g",
    [Op("a", "k", ("s",), ("x",), ("y",), 4)],
    dict.fromkeys("xy", ((2,), "f4", 8)),
    ("x",),
    ("y",),
)
SPREAD = Spread(2.0, 1.0, 3.0, (1.0, 2.0, 3.0))
MEASURED = Measurement(SPREAD, SPREAD, (1.0, 2.0), Accuracy(True, 1e-7, 1e-6, 3))
BASELINE = Baseline("one core", SPREAD, SPREAD, 1)


class FakeWorker:
    made: ClassVar[list] = []

    def __init__(self, handler, setting, memory):
        self.setting, self.memory, self.jobs, self.is_alive, self.is_discarded = (
            setting,
            memory,
            [],
            True,
            False,
        )
        FakeWorker.made.append(self)

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

    def discard(self):
        self.is_discarded = True


ANSWERS = {
    "describe": {
        "graph": dump(GRAPH), "devices": ["cores:0"], "keep_together": [[0]], "regions": {"npu": [0]}, "identity": {"cpu": "c"},
        "untuned": 0.5,
    },
    "profile": [dump(Profile("cores:0", (1.5,), (0.1,)))],
    "links": [dump(LinkCost("cores:0", 4e6, 0.5, 0.25))],
    "measure": dump(MEASURED),
    "baselines": [dump(BASELINE)],
    "duel": {"candidates": [dump(SPREAD)], "baselines": [dump(SPREAD), dump(SPREAD)]},
    "export": None,
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(isolated, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "made", [])
    return IsolatedBench(
        Path("net.onnx"), shapes={"x": (2,)}, stages=2, devices=("cores:0",), target=None, memory=1 << 30,
        budget=Budget(seconds=3.0), patience_s=10.0,
    )  # fmt: skip


def test_values_come_back_as_they_were(bench):
    assert bench.graph == GRAPH
    assert (bench.devices, bench.keep_together, bench.regions, bench.untuned) == (
        ("cores:0",),
        [[0]],
        {"npu": [0]},
        0.5,
    )
    assert bench.identity == {"cpu": "c"}
    assert bench.profile() == [Profile("cores:0", (1.5,), (0.1,))]
    assert bench.links() == [LinkCost("cores:0", 4e6, 0.5, 0.25)]
    assert bench.measure(((0,), ())) == MEASURED
    assert bench.baselines() == [BASELINE]
    assert bench.duel([((0,), ())]) == ([SPREAD], [SPREAD, SPREAD])
    (worker,) = FakeWorker.made
    assert [job["kind"] for job in worker.jobs].count("describe") == 1
    assert worker.jobs[3]["stages"] == [[0], []]


def test_a_job_may_take_its_patience_and_four_times_its_measuring(bench):
    bench.profile()
    (worker,) = FakeWorker.made
    assert (worker.timeout_s, worker.memory) == (22.0, 1 << 30)
    assert worker.setting["shapes"] == {"x": [2]}
    assert worker.setting["measure"]["seconds"] == 3.0


def test_a_worker_is_told_all_that_describes_the_bench(bench):
    regions = [{"backend": "npu", "merge": "m:f"}]
    more = {
        "targets": {"cores:0": "llvm"},
        "tuning": Path("records"),
        "runtime": "onnxruntime",
        "regions": regions,
    }
    known = {
        "shapes": {},
        "stages": 2,
        "devices": ["cores:0"],
        "target": "llvm -mcpu=a",
        "budget": Budget(),
    }
    IsolatedBench(Path("net.onnx"), **known, **more).profile()
    told = FakeWorker.made[0].setting
    assert {name: told[name] for name in more} == {**more, "tuning": "records"}
    assert (told["model"], told["stages"], told["devices"], told["target"]) == (
        "net.onnx",
        2,
        ["cores:0"],
        "llvm -mcpu=a",
    )


class Wrong(StageError):
    """What a worker that goes on living says of a candidate."""


def test_a_worker_that_survives_a_failed_candidate_is_kept(bench, monkeypatch):
    monkeypatch.setitem(ANSWERS, "measure", Wrong("wrong result"))
    for _ in range(2):
        with pytest.raises(Wrong):
            bench.measure(((0,),))
    assert [worker.is_discarded for worker in FakeWorker.made] == [False]


def test_a_split_is_exported_where_the_asker_stands(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = bench.export(
        ((0,),),
        Path("out"),
        measured=MEASURED,
        predicted=1.5,
        baselines=[BASELINE],
        verdict="Split.",
    )
    (job,) = FakeWorker.made[0].jobs
    assert file == Path("out/split.json")
    assert job["folder"] == str(tmp_path / "out")
    assert (job["measured"], job["baselines"]) == (
        json.loads(json.dumps(dump(MEASURED))),
        [dump_of(BASELINE)],
    )
    assert (job["predicted"], job["verdict"]) == (1.5, "Split.")
    bench.export(((0,),), Path("out"))
    assert FakeWorker.made[0].jobs[1]["measured"] is None


def dump_of(value):
    return json.loads(json.dumps(dump(value)))


def test_after_a_crash_the_next_job_gets_a_fresh_worker_that_waits_for_servers(bench, monkeypatch):
    assert bench.graph
    monkeypatch.setitem(ANSWERS, "measure", StageError("crash SIGSEGV in stage 1"))
    with pytest.raises(StageError, match="crash SIGSEGV") as caught:
        bench.measure(((0,),))
    assert caught.value.log == bench.log_tail == "the last lines"
    monkeypatch.setitem(ANSWERS, "measure", dump(MEASURED))
    assert bench.measure(((0,),)) == MEASURED
    first, second = FakeWorker.made
    assert (first.is_discarded, second.is_discarded) == (True, False)
    assert (first.setting["wait_s"], second.setting["wait_s"]) == (0.0, RETURN_S)


def test_a_worker_that_answers_with_an_error_is_kept(bench, monkeypatch):
    monkeypatch.setitem(ANSWERS, "measure", ConfigError("no such op"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="no such op"):
            bench.measure(((0,),))
    assert len(FakeWorker.made) == 1


def test_an_answer_that_was_not_waited_for_is_not_taken_for_the_next_jobs(bench, monkeypatch):
    monkeypatch.setitem(ANSWERS, "profile", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.profile()
    assert bench.links()
    assert [worker.is_discarded for worker in FakeWorker.made] == [True, False]


def test_closing_ends_the_worker_once(bench):
    bench.close()
    bench.profile()
    bench.close()
    bench.close()
    assert [worker.is_discarded for worker in FakeWorker.made] == [True]
