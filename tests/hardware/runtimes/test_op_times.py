import math
from dataclasses import replace

import numpy as np
import pytest

import autosplit
from autosplit.extras import tvm
from autosplit.hardware.codegen.kernels import DeviceKernels
from autosplit.hardware.devices import device as devices
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.timing import on_cores
from autosplit.hardware.runtimes.onnx.node_groups import TimeShares
from autosplit.hardware.runtimes.onnx.runtime import calibrated
from autosplit.hardware.runtimes.onnxruntime import runtime as onnxruntime
from autosplit.hardware.runtimes.openvino import runtime as openvino
from autosplit.hardware.runtimes.openvino.stage import compile_model
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, OPENVINO
from autosplit.hardware.runtimes.tvm import profile as of_tvm
from tests import nets

HERE = devices.along(1)[0]
MEASURED = Profile("cores:0", (1.0, 3.0), (0.1, 0.2))


@pytest.fixture(params=["branches", "transformer"])
def net(request):
    return request.getfixturevalue(request.param)


def shares_of(model, nodes):
    runtime = model.runtime
    return TimeShares(runtime.original, model.graph, runtime.groups, nodes)


def test_the_time_of_an_op_is_that_of_its_nodes(net):
    model = replace(net, runtime_name=ONNXRUNTIME)
    original, groups = model.runtime.original, model.runtime.groups
    shares = shares_of(model, onnxruntime.executed_nodes(original, original.proto))
    assert set(shares.of("nobody")) == set(range(len(model.graph.ops)))
    for node in original.proto.graph.node:
        of_node = shares.of(node.name)
        assert sum(of_node.values()) == pytest.approx(1)
        producer = original.producers[node.output[0]]
        ops = {op for group, nodes in groups.items() if producer in nodes for op in group}
        if ops and len(of_node) < len(model.graph.ops):
            assert set(of_node) <= ops


def test_executed_nodes_compute_every_op_of_the_original(net):
    model = replace(net, runtime_name=OPENVINO)
    submodel = model.runtime.submodel(model.stage_source.whole_stage)
    for proto in submodel.graph.node:
        proto.name = proto.output[0]
    compiled = compile_model(submodel.SerializeToString(), HERE)
    executed = openvino.executed_nodes(model.runtime.original, compiled.get_runtime_model())
    shares = shares_of(model, executed)
    computed = {op for name, tensors in executed.items() if tensors for op in shares.of(name)}
    assert {i for i, op in enumerate(model.graph.ops) if op.flops > 1e4} <= computed


def test_single_ops_are_timed_on_all_cores_without_the_swaps_at_cuts(branches, monkeypatch):
    kernels = branches.kernels.on(HERE)
    ops = {name: symbol for name, symbol in kernels.symbols.items() if "swap" not in name}
    assert ops != kernels.symbols
    monkeypatch.setattr(DeviceKernels, "on", lambda *_: replace(kernels, symbols=ops))
    counts, real, threads = set(), of_tvm._sample, tvm.get_global_func("runtime.NumThreads")
    monkeypatch.setattr(of_tvm, "_sample", lambda *what: counts.add(threads()) or real(*what))
    cores = devices.Cores(devices.available()[:2])
    profile = on_cores(cores, lambda: branches.runtime_of("tvm")._profile_single_ops(cores, 0.05))
    assert 0 < max(profile.op_ms) < math.inf
    assert counts == {len(cores.numbers)}


@pytest.mark.parametrize("runtime", [ONNXRUNTIME, OPENVINO])
def test_every_convolution_and_a_call_take_time(save, runtime):
    # onnxruntime computes them in blocks of channels, under other names.
    text = """g (float[1,16,32,32] x) => (float[1,16,32,32] y) {
        a = Conv<pads=[1,1,1,1]>(x, w)  b = Relu(a)
        c = Conv<pads=[1,1,1,1]>(b, v)  d = Relu(c)  y = Conv(d, u)
    }"""
    proto = nets.net(text, dict.fromkeys("wv", (16, 16, 3, 3)) | {"u": (16, 16, 1, 1)})
    model = autosplit.load_model(save(proto), runtime=runtime)
    profile = model.profile(HERE, seconds=0.02, force=True)
    assert len(profile.op_ms) == 3
    assert min(profile.op_ms) > 0
    assert 0 < profile.call_ms < math.inf  # which of them is longer depends on the machine


def test_the_body_of_a_loop_takes_no_time_of_its_own(save):
    text = """g (float[2,3] x) => (float[2,3] y) {
        a = Relu(x)  q = Loop(three, , a) <body = b (int64 i, bool c, float[2,3] v)
            => (bool co, float[2,3] vo) { co = Identity(c)  vo = Exp(v) }>  y = Neg(q)
    }"""
    model = autosplit.load_model(save(nets.net(text, {"three": np.array(3)})), runtime=ONNXRUNTIME)
    submodel = model.runtime.submodel(model.stage_source.whole_stage)
    for node in submodel.graph.node:
        node.name = node.output[0]
    assert {*model.runtime.time_nodes(submodel, *model.items(1), HERE, 0.01)[0]} == {*"aqy"}


@pytest.mark.parametrize(
    ("op_ms", "whole_ms", "call_ms", "expected"),
    [((1.0, 3.0), 9.0, 1.0, (2.0, 6.0)),
     ((0.0, 0.0), 1.0, 0.5, (0.0, 0.0)),
     ((1.0, 3.0), 1.0, 2.0, (0.025, 0.075))],  # some time stays where a call takes as long
)  # fmt: skip
def test_ops_and_a_call_add_up_to_the_whole_model(op_ms, whole_ms, call_ms, expected):
    profile = calibrated(replace(MEASURED, op_ms=op_ms), whole_ms=whole_ms, call_ms=call_ms)
    assert profile.op_ms == pytest.approx(expected)
    assert profile.call_ms == call_ms
    if sum(op_ms):
        assert profile.spread_ms[1] / profile.op_ms[1] == pytest.approx(0.2 / 3)
