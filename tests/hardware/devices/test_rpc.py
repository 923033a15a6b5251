"""Stages on TVM RPC servers: real server and tracker processes on this machine."""

import math
import threading
from dataclasses import replace

import pytest

import autosplit
from autosplit import phases
from autosplit.cli import main
from autosplit.deploy.verify import bench, verify
from autosplit.errors import ConfigError, MachineError, StageError
from autosplit.hardware.bench.isolated import BenchSetting, IsolatedBench
from autosplit.hardware.bench.local import LocalBench
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices import rpc, session
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.parity import compare
from tests import nets
from tests.benches import deployed
from tests.hardware import servers as processes
from tests.hardware.servers import servers  # noqa: F401  a fixture

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not devices.can_pin(), reason="servers need pinned cores"),
]
BRIEF = Budget(seconds=0.1, share=0.5, items=4, latency_items=1)


@pytest.fixture(scope="module")
def two(servers):  # noqa: F811
    """Two servers on different cores where there are two."""
    pair = [servers(wait=False, core=processes.own_core(n)) for n in (0, -1)]
    for server in pair:
        server.wait()
    return pair


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tmp_path_factory, nets.boundaries())


def saved(tmp_path_factory, proto):
    import onnx

    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(proto, path)
    return autosplit.load_model(path)


@pytest.fixture
def split(model):
    """Three stages; ``skip`` passes the second by."""
    return model.split([["skip"], ["early", "both"]])


def is_right(split, pipeline, count=3):
    items = split.model.items(count)
    with pipeline:
        return compare(pipeline.run(items), split.model.expected(items)).equal


def test_stages_here_and_there_compute_what_the_whole_does(split, two):
    first, second = (server.device for server in two)
    here = str(devices.along(1)[0])
    for along in ([first, here, second], [here, first, here], [first, second, first], [second] * 3):
        assert is_right(split, split.pipeline(along))


def test_a_pipeline_lets_go_of_its_server_when_it_is_closed(split, two):
    there = two[0].device
    with split.pipeline([there] * 3) as pipeline:
        pipeline.run(split.model.items(1))
        assert rpc.is_connected(devices.parse(there))
    assert not rpc.is_connected(devices.parse(there))
    assert is_right(split, split.pipeline([there] * 3))


def test_a_kernel_that_is_not_compiled_for_a_device_takes_for_ever(model, two, monkeypatch):
    from autosplit.hardware.codegen import kernels

    real = kernels._build

    def fails(by_symbol, target):
        if "relu" in {name for name, _ in by_symbol.values()}:
            raise autosplit.errors.ModelError("no")
        return real(by_symbol, target)

    monkeypatch.setattr(kernels, "_build", fails)
    limited = CompiledModel(
        **{**vars(model_fields(model)), "targets": {two[0].device: "llvm -mcpu=x86-64"}}
    )
    (relu,) = (i for i, op in enumerate(limited.graph.ops) if op.kernel == "relu")
    times = limited.profile(devices.parse(two[0].device), 0.1).op_ms
    assert times[relu] == math.inf
    assert all(t < math.inf for i, t in enumerate(times) if i != relu)
    with pytest.raises(autosplit.errors.ModelError, match="cannot be compiled for device"):
        limited.unsplit(devices.parse(two[0].device))


def test_an_op_of_an_external_backend_stays_on_local_cores(model, two):
    from types import SimpleNamespace

    kernel = model.graph.ops[-1].kernel
    known = {kernel: SimpleNamespace(backend=SimpleNamespace(name="dsp"), key="dsp")}
    mixed = replace(model, lowered=replace(model.lowered, composites=known))
    device = devices.parse(two[0].device)
    times = mixed.profile(device, 0.1, force=True).op_ms
    assert {op.kernel for op, t in zip(model.graph.ops, times, strict=True) if t == math.inf} == {
        kernel
    }
    assert not mixed.runtime.can_run(device)
    with pytest.raises(
        autosplit.errors.ModelError, match="of backend 'dsp' runs on local cores, not on 'rpc:"
    ):
        mixed.unsplit(device)


def test_an_export_runs_on_its_servers(split, two, tmp_path):
    along = [two[0].device, str(devices.along(1)[0]), two[1].device]
    split.export(tmp_path, along)
    assert verify(tmp_path).accuracy.equal
    assert len(bench(tmp_path, BRIEF).busy_ms) == 3
    assert is_right(split, autosplit.load(tmp_path, [two[1].device] * 3))
    file = tmp_path / "stage0.so"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(ConfigError, match="it was changed, export it again"):
        autosplit.load(tmp_path)


def test_a_server_that_is_not_there_is_named_with_the_remedy(split):
    port = processes.free_port()
    with pytest.raises(
        MachineError,
        match=rf"no TVM RPC server answers at 127.0.0.1:{port} .*start one there: python -m",
    ):
        split.pipeline([f"rpc:127.0.0.1:{port}"] * 3)
    with pytest.raises(MachineError, match="has no server registered under key 'pi'"):
        split.pipeline([f"tracker:127.0.0.1:{port}/pi"] * 3)


def test_a_study_on_a_server_that_is_not_there_ends_with_exit_code_3(model, capsys, tmp_path):
    file = tmp_path / "study.toml"
    port = processes.free_port()
    core = f"cores:{devices.available()[0]}"
    file.write_text(f'model = "{model.path}"\ndevices = ["rpc:127.0.0.1:{port}", "{core}"]')
    assert main(["run", str(file), "--storage", str(tmp_path / "study.db")]) == 3
    assert f"127.0.0.1:{port}" in capsys.readouterr().err.splitlines()[-1]


def test_a_server_that_serves_somebody_else_is_not_waited_for_for_ever(split, two, monkeypatch):
    monkeypatch.setattr(session, "ANSWER_S", 0.5)
    from tvm import rpc as tvm_rpc

    other = tvm_rpc.connect(processes.HOST, two[0].port)
    with pytest.raises(MachineError, match="it may be serving another client"):
        split.pipeline([two[0].device] * 3)
    del other


def test_a_target_for_another_kind_of_device_is_refused(model, two):
    wrong = CompiledModel(**{**vars(model_fields(model)), "targets": {two[0].device: "cuda"}})
    with pytest.raises(ConfigError, match="is of kind 'cuda'; give one that starts with 'llvm'"):
        wrong.kernels.target_on(devices.parse(two[0].device))


def test_a_server_killed_in_a_trial_fails_it_and_the_next_finds_it_back(split, two):
    server = two[1]
    armed = True

    def kill_server(phase, stages):
        if phase == "running" and armed:
            server.kill()

    there = LocalBench(
        split.model,
        devices.along(3, [server.device, str(devices.along(1)[0]), server.device]),
        BRIEF,
    )
    lost = pytest.raises(StageError, match=rf"device '{server.device}' was lost")
    with phases.listening(kill_server), lost:
        there.measure(deployed(there, split.stages))
    armed = False
    back = threading.Timer(0.5, server.start)
    back.start()
    assert there.measure(deployed(there, split.stages)).accuracy.equal
    back.join()


@pytest.mark.slow
def test_a_worker_measures_on_servers_and_leaves_them_free(model, two):
    devices = (two[0].device, two[1].device)
    far = IsolatedBench(BenchSetting(model.path, stages=2, devices=devices, budget=BRIEF))
    try:
        links = far.links()
        assert [link.device for link in links] == [two[0].device, two[1].device]
        stages = ((0,), tuple(range(1, len(model.graph.ops))))
        assert far.measure(deployed(far, stages)).accuracy.equal
        assert is_right(
            model.split([["skip"]]), model.split([["skip"]]).pipeline([two[0].device] * 2)
        )
    finally:
        far.close()


@pytest.mark.slow
def test_a_tracker_gives_each_stage_a_server_of_its_key(split, servers):  # noqa: F811
    tracker = servers(is_tracker=True)
    for board in [
        servers(wait=False, core=processes.own_core(n), tracker=tracker.port, key="board")
        for n in (0, -1)
    ]:
        board.wait()
    key = f"tracker:{processes.HOST}:{tracker.port}/board"
    with split.pipeline([key, key, str(devices.along(1)[0])]) as pipeline:
        assert all(map(rpc.is_connected, devices.along(3, [key, key, "cores:0"])[:2]))
        assert is_right(split, pipeline)


def model_fields(model):
    """The fields of a model without what it has computed."""
    from dataclasses import fields
    from types import SimpleNamespace

    return SimpleNamespace(**{f.name: getattr(model, f.name) for f in fields(CompiledModel)})
