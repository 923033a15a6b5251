import gc
import math
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import onnx
import pytest

import autosplit
from autosplit import phases
from autosplit.errors import ConfigError, MachineError, ModelError, StageError
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.codegen import kernels
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices import rpc, session
from tests import nets
from tests.benches import BRIEF, deployed
from tests.hardware import servers as processes
from tests.hardware.servers import servers  # noqa: F401  a fixture

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not devices.can_pin(), reason="servers need pinned cores"),
]
HERE = str(devices.along(1)[0])
LIMIT_S = 60.0  # far more than a silence of the tests, far less than one of users


@pytest.fixture(scope="module")
def two(servers):  # noqa: F811
    """Two servers on different cores where there are two."""
    pair = [servers(wait=False, core=processes.own_core(n)) for n in (0, -1)]
    for server in pair:
        server.wait()
    return pair


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(nets.boundaries(), path)
    return autosplit.load_model(path)


@pytest.fixture
def split(model):
    """Three stages; ``skip`` passes the second by."""
    return model.split([["skip"], ["early", "both"]])


@pytest.fixture
def server(servers):  # noqa: F811
    return servers()


def test_a_pipeline_lets_go_of_its_server_in_time_whatever_became_of_it(split, server, monkeypatch):
    monkeypatch.setattr(devices, "SILENCE_S", 4.0)
    monkeypatch.setattr(session, "ANSWER_S", 4.0)
    there = devices.parse(server.device)
    for event in (list, server.kill, server.stop):
        start = time.monotonic()
        with split.pipeline([server.device] * 3) as pipeline:
            pipeline.run(split.model.items(1))
            assert there in rpc._CONNECTIONS
            event()
        assert time.monotonic() - start < LIMIT_S
        gc.collect()
        assert there not in rpc._CONNECTIONS
        if event == server.kill:
            server.start()
    with pytest.raises(MachineError, match="no answer in 4 s"):
        rpc.connect(there)
    server.kill()


def test_a_kernel_that_is_not_compiled_for_a_device_takes_for_ever(model, two, monkeypatch):
    real = kernels._build

    def fails(by_symbol, target):
        if "relu" in {name for name, _ in by_symbol.values()}:
            raise ModelError("no")
        return real(by_symbol, target)

    monkeypatch.setattr(kernels, "_build", fails)
    targets = {two[0].device: "llvm -mcpu=x86-64"}
    limited = replace(model, kernels=replace(model.kernels, targets=targets))
    (relu,) = (i for i, op in enumerate(limited.graph.ops) if op.kernel == "relu")
    times = limited.profile(devices.parse(two[0].device), 0.1).op_ms
    assert times[relu] == math.inf
    assert all(t < math.inf for i, t in enumerate(times) if i != relu)
    with pytest.raises(ModelError, match="cannot be compiled for device"):
        limited.unsplit(devices.parse(two[0].device))


def test_a_model_is_profiled_at_another_batch_on_the_same_connection(save, two):
    proto = nets.net("g (float[1,8] x) => (float[1,8] y) { y = MatMul(x, w) }", {"w": (8, 8)})
    single, device = autosplit.load_model(save(proto), runtime="tvm"), devices.parse(two[0].device)
    with rpc.reached([device]):
        for model in (single, single.at_batch(4)):
            assert 0 < model.profile(device, 0.05, force=True).op_ms[0] < math.inf


def test_an_op_of_an_external_backend_stays_on_local_cores(model, two):
    kernel = model.graph.ops[-1].kernel
    known = {kernel: SimpleNamespace(backend=SimpleNamespace(name="dsp"), key="dsp")}
    mixed = replace(model, lowered=replace(model.lowered, composites=known))
    device = devices.parse(two[0].device)
    times = mixed.profile(device, 0.1, force=True).op_ms
    impossible = {op.kernel for op, t in zip(model.graph.ops, times, strict=True) if t == math.inf}
    assert impossible == {kernel}
    assert not mixed.runtime.can_run(device)
    with pytest.raises(ModelError, match="of backend 'dsp' runs on local cores, not on 'rpc:"):
        mixed.unsplit(device)


def test_a_target_for_another_kind_of_device_is_refused(model, two):
    wrong = replace(model, kernels=replace(model.kernels, targets={two[0].device: "cuda"}))
    with pytest.raises(ConfigError, match="is of kind 'cuda'; give one that starts with 'llvm'"):
        wrong.kernels.target_on(devices.parse(two[0].device))


def test_a_server_killed_in_a_trial_fails_it_and_the_next_finds_it_back(split, two):
    server = two[1]
    armed = True

    def kill_server(phase, stages):
        if phase == "running" and armed:
            server.kill()

    along = devices.along(3, [server.device, HERE, server.device])
    there = LocalBench(split.model, along, BRIEF)
    lost = pytest.raises(StageError, match=rf"device '{server.device}' was lost")
    with phases.listening(kill_server), lost:
        there.measure(deployed(there, split.stages))
    armed = False
    back = threading.Timer(0.5, server.start)
    back.start()
    assert there.measure(deployed(there, split.stages)).max_rel_error < 1e-4
    back.join()


@pytest.mark.slow
def test_a_tracker_gives_each_stage_a_server_of_its_key(split, servers):  # noqa: F811
    tracker = servers(is_tracker=True)
    for board in [
        servers(wait=False, core=processes.own_core(n), tracker=tracker.port, key="board")
        for n in (0, -1)
    ]:
        board.wait()
    key = f"tracker:{processes.HOST}:{tracker.port}/board"
    with split.pipeline([key, key, HERE]) as pipeline:
        assert {*devices.along(2, [key, key])} <= {*rpc._CONNECTIONS}
        nets.judge(split.model, pipeline)


@pytest.mark.slow
def test_two_workers_take_turns_at_the_same_server(model, server, tmp_path):
    file = tmp_path / "s.toml"
    places = f'devices = ["{server.device}", "{HERE}"]\n[measure]\nseconds = 0.3\n'
    search = "[search]\ntrials = 4\nconverge = false\n"
    file.write_text(f'model = "{model.path}"\nruntime = "tvm"\n{places}{search}')
    command = [sys.executable, "-m", "autosplit", "run", file, "--storage", tmp_path / "s.db"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    printed = [worker.communicate(timeout=300) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], printed
