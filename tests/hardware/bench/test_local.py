import contextlib
import dataclasses
import json
import os
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit import api
from autosplit.deployment import Deployment
from autosplit.errors import MachineError, ModelError, StageError
from autosplit.extras import tvm
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices import rpc
from autosplit.hardware.measurement import disturbance
from autosplit.hardware.measurement.disturbance import Conditions
from autosplit.hardware.measurement.results import Profile, Spread
from autosplit.hardware.profiling import profile_cache
from autosplit.hardware.runtimes.tvm.stage import VmStage
from autosplit.planner.workload import Workload
from tests.benches import BRIEF, deployed
from tests.nets import net


@pytest.fixture
def bench(branches):
    return LocalBench(branches, api.device.along(2), BRIEF)


@pytest.fixture
def stages(branches):
    return branches.split([["first"]]).stages


def test_a_candidate_and_a_baseline_with_other_outputs_are_rejected(bench, stages, monkeypatch):
    real = VmStage.run

    def off(self, values):
        return [tvm.runtime.tensor(v.numpy() * np.float32(1.001)) for v in real(self, values)]

    monkeypatch.setattr(VmStage, "run", off)
    for measure in (lambda: bench.measure(deployed(bench, stages)), bench.baselines):
        with pytest.raises(StageError, match=r"outputs of \w+ differ"):
            measure()


def test_a_candidate_is_measured_at_a_rate(bench, stages):
    test = bench.under_load(deployed(bench, stages), Workload(100.0), Spread(2.5, 2.4, 2.6))
    (point,) = test.points
    assert (point.rate, test.capacity, test.goodput) == (100, 400, None)
    assert 0 < point.quantiles_ms["p50"].median <= point.quantiles_ms["p99"].median


def test_a_device_that_cannot_run_the_whole_model_has_no_baseline(bench, branches, monkeypatch):
    places, kind = bench.description.devices, type(branches.runtime)
    monkeypatch.setattr(kind, "can_run", lambda self, device: str(device) != places[0])
    names = [run.name for run in bench.unsplit_runs() if run.runtime == "tvm"]
    assert names == (["tvm, 1 thread"] if len(set(places)) > 1 else [])


def test_a_baseline_has_the_batch_whose_items_take_least_with_their_calls(branches):
    bench = LocalBench(branches, api.device.along(1), BRIEF, batches=(1, 4))
    vars(bench)["_profiles"] = [
        Profile("cores:0", (ms,), (0.0,), "tvm", call_ms=call, batch=batch)
        for batch, ms, call in ((1, 2.0, 4.0), (4, 2.5, 1.0))
    ]
    names = [run.name for run in bench.unsplit_runs() if run.runtime == "tvm"]
    assert names == ["tvm, 1 thread", "tvm, 1 thread, batch 4"]


def test_a_lost_server_fails_a_trial_or_ends_a_job_and_is_waited_for(branches, stages, monkeypatch):
    connections, waits = [], []
    reached = lambda _, wait_s: waits.append(wait_s) or contextlib.nullcontext(connections)  # noqa: E731
    monkeypatch.setattr(rpc, "reached", reached)
    monkeypatch.setattr(VmStage, "run", lambda *_: 1 / 0)
    bench = LocalBench(branches, api.device.along(2), BRIEF, wait_s=7.0)
    for is_alive, elsewhere in ((True, StageError), (False, MachineError)):
        connections.append(SimpleNamespace(device="rpc:b:1", is_alive=is_alive))
        with pytest.raises(StageError, match="ZeroDivisionError"):
            bench.measure(deployed(bench, stages))
        with pytest.raises(elsewhere, match="ZeroDivisionError") as caught:
            bench.baselines()
        assert ("device 'rpc:b:1' was lost" in str(caught.value)) == (not is_alive)
    assert waits == [7.0, *[rpc.RETURN_S] * (len(waits) - 1)]
    assert len(waits) > 1


def test_the_identity_names_what_all_measurements_share_and_targets_that_differ(branches, bench):
    places, identity = api.device.along(2), bench.description.identity
    assert {"model", "target", "devices", "backend", "versions", "shapes"} <= set(identity)
    assert all(isinstance(value, str) for value in identity.values())
    assert LocalBench(branches, places[:1], BRIEF).description.identity != identity
    assert "targets" not in identity
    names = bench.description.devices
    text_of = "llvm -mtriple=x86_64-linux-gnu -mcpu={}".format
    targets = dict(zip(names, map(text_of, ("x86-64", "x86-64-v2")), strict=True))

    def text(some, order):
        chosen = {name: targets[name] for name in some}
        kernels = dataclasses.replace(branches.kernels, targets=chosen)
        model = dataclasses.replace(branches, kernels=kernels)
        return LocalBench(model, order, BRIEF).description.identity["targets"]

    assert text(names, places) == text(names, places[::-1])
    assert all(f"{name} " in text(names, places) for name in targets)
    one = text(names[:1], places)
    assert one.split()[0] == names[0]
    assert all(name not in one for name in set(names) - {names[0]})


def test_the_reference_runs_before_the_candidate(branches, stages, monkeypatch):
    # An item that it refuses, such as an index past the end of a table, could crash a kernel.
    monkeypatch.setattr(VmStage, "run", lambda *_: pytest.fail("ran"))
    refuse = Mock(side_effect=ModelError("index out of bounds"))
    model = dataclasses.replace(branches, reference=SimpleNamespace(name="a", open=refuse))
    bench = LocalBench(model, api.device.along(2), BRIEF)
    with pytest.raises(ModelError, match="index out of bounds"):
        bench.measure(deployed(bench, stages))


def test_every_baseline_is_measured_with_work_for_all_replicas(bench, branches, monkeypatch):
    pipelines, whole = [], type(branches).whole

    def open_whole(*arguments, **options):
        pipelines.append(whole(*arguments, **options))
        return pipelines[-1]

    monkeypatch.setattr(type(branches), "whole", open_whole)
    monkeypatch.setattr("autosplit.hardware.bench.local.ready_made", lambda: ["onnxruntime"])
    monkeypatch.setattr(disturbance, "since", lambda start: Conditions(throttled=True))
    baselines = bench.baselines()
    assert {b.disturbances for b in baselines} == {("the processor was throttled",)}
    assert [b.name for b in baselines] == [run.name for run in bench.unsplit_runs()]
    copies = {b.name: b.copies for b in baselines}
    assert copies["tvm, 1 thread"] == copies["onnxruntime, 1 thread"] == 1
    if len(api.device.available()) > 1:
        assert copies["onnxruntime, 2 threads"] == 1
        assert copies["onnxruntime, 2 replicas"] == 2
    assert all(b.period_ms.median > 0 < b.latency_ms.median for b in baselines)
    assert sum(copies.values()) <= sum(sum(p.replicas) for p in pipelines)
    verified = 3
    assert all(len(p.submitted) > verified + BRIEF.items for p in pipelines)


def test_a_runtime_asked_for_throughput_has_as_many_replicas_as_it_wants(branches, monkeypatch):
    three = lambda self, spec, devices, by_hint: self.stages(spec, [*devices] * 3)  # noqa: E731
    monkeypatch.setattr(type(branches.runtime), "whole", three)
    with branches.whole("tvm", *api.device.along(1), by_hint=True) as pipeline:
        assert pipeline.replicas == (3,)


@pytest.mark.skipif(not devices.can_pin(), reason="this system keeps no threads on cores")
def test_a_stage_stays_on_the_cores_of_its_device(branches, stages, monkeypatch):
    threads, real = tvm.get_global_func("runtime.NumThreads"), VmStage.run
    places = set()

    def run(self, values):
        places.add((threading.current_thread().name, frozenset(os.sched_getaffinity(0)), threads()))
        return real(self, values)

    monkeypatch.setattr(VmStage, "run", run)
    cores = devices.available()
    names = [str(devices.Cores(cores[-1:])), str(devices.Cores(cores[:2]))]
    deployment = Deployment.of_split(stages, names, ["tvm"] * 2)
    with branches.pipeline(deployment) as pipeline:
        pipeline.run(branches.items(1))
    assert places == {
        ("stage 0", frozenset(cores[-1:]), 1),
        ("stage 1", frozenset(cores[:2]), len(cores[:2])),
    }


def test_inputs_are_profiled_in_the_order_the_ops_read_them(save):
    text = "g (float[3,5] early, float[2,3] late, float[7] unread) => (float[2,5] y)"
    model = api.load_model(save(net(f"{text} {{ a = Relu(late)  y = MatMul(a, early) }}")))
    profile = model.profile(api.device.along(1)[0], 0.01, force=True)
    assert len(profile.op_ms) == len(model.graph.ops)


def test_equal_kernels_in_another_order_and_states_have_a_profile_of_their_own(save, monkeypatch):
    keys, empty = set(), Profile("", (), ())
    monkeypatch.setattr(profile_cache, "cached", lambda key, *_: keys.add((*key,)) or empty)
    # Both nets call kernels ``exp`` and ``exp1``, on tensors of swapped sizes.
    for a, b in (("[2,3]", "[4,5]"), ("[4,5]", "[2,3]")):
        ports = f"g (float{a} x, float{b} u) => (float{a} y, float{b} v)"
        path = save(net(f"{ports} {{ y = Exp(x)  v = Exp(u) }}"), f"{a}.onnx")
        api.load_model(path).profile(api.device.along(1)[0])
    # onnxruntime writes into the memory of a state, and copies the same tensor otherwise.
    path = save(net("g (float[4] x, float[4] h) => (float[4] next) { next = Add(x, h) }"))
    for states in (None, {"h": "next"}):
        model = api.load_model(path, runtime="onnxruntime", states=states)
        model.profile(api.device.along(1)[0])
    assert len(keys) == 4


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path))
    monkeypatch.setattr(profile_cache, "_is_patient", True)
    return tmp_path


def test_a_profile_stays_until_it_is_damaged_or_taken_again(empty_cache):
    profile, other = (Profile("cores:0", (first, 2.0), (0.1, 0.2)) for first in (1.0, 3.0))
    assert profile_cache.cached(["key"], lambda: profile) == profile
    assert profile_cache.cached(["key"], lambda: other) == profile
    (file,) = (empty_cache / "profiles").glob("*.json")
    assert json.loads(file.read_text())["op_ms"] == [1.0, 2.0]
    with pytest.raises(ZeroDivisionError):
        profile_cache.cached(["key"], lambda: 1 / 0, force=True)
    assert profile_cache.cached(["key"], lambda: other) == profile
    assert profile_cache.cached(["key"], lambda: other, force=True) == other
    file.write_text("{")
    assert profile_cache.cached(["key"], lambda: profile) == profile


@pytest.mark.usefixtures("empty_cache")
def test_a_disturbed_profile_is_taken_again_once_the_machine_is_calm(monkeypatch):
    waits, stolen, times = iter([5.0, 5.0, 1.0]), iter([0.5, 0.0]), iter([2.0, 1.0])
    monkeypatch.setattr(disturbance, "wait_until_calm", lambda limit: next(waits))
    monkeypatch.setattr(disturbance, "since", lambda _: Conditions(0.25, stolen=next(stolen)))

    def take():
        return profile_cache.cached(["key"], lambda: Profile("cores:0", (next(times),), (0.0,)))

    def take_in_another_process():
        monkeypatch.setattr(profile_cache, "_settled", set())
        monkeypatch.setattr(profile_cache, "_is_patient", True)
        return take()

    first = take()
    assert (first.op_ms, first.load, bool(first.measured_at)) == ((2.0,), 0.25, True)
    assert first.measured_at in first.doubt
    assert take() == take_in_another_process() == first  # the machine is not calm yet
    calm = take_in_another_process()
    assert (calm.op_ms, calm.doubt) == ((1.0,), "")


@pytest.mark.usefixtures("empty_cache")
def test_a_process_waits_for_a_calm_machine_in_vain_only_once(monkeypatch):
    monkeypatch.setattr(disturbance, "since", lambda start: Conditions(load=1.0))
    wait = Mock(side_effect=lambda limit: limit)
    monkeypatch.setattr(disturbance, "wait_until_calm", wait)
    for key in ("first", "second"):
        assert profile_cache.cached([key], lambda: Profile("cores:0", (), ())).disturbances
    assert wait.call_count == 1
