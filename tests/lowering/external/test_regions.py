"""Composites are ops; cuts lie between them, a stage merges them, a numpy backend runs them."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from onnxruntime import quantization

import autosplit
from autosplit import api
from autosplit.errors import ConfigError, MachineError, SplitError
from autosplit.extras import relax, tvm, tvm_ffi
from autosplit.hardware.codegen.link import Linker
from autosplit.hardware.devices.device import Cores
from autosplit.lowering.external.backend import Backend
from tests import external_backend, nets

NAME = external_backend.NAME


@pytest.fixture
def reference():
    backend = external_backend.register()
    yield backend
    external_backend.unregister()


@pytest.fixture
def load(save):
    def make(proto, **options):
        return autosplit.load_model(
            save(proto), backends=[Backend(NAME, external_backend.patterns(), **options)]
        )

    return make


LAYER = (
    "c{i} = Conv<pads=[1,1,1,1]>({x}, w{i})  "
    "b{i} = BatchNormalization(c{i}, scale{i}, bias{i}, mean{i}, var{i})  "
    "{y} = Relu(b{i})"
)


def row(layers=3, text=LAYER):
    """Layers, conv + batch norm + relu or another; layer i gives ``r{i}``, the last ``y``."""
    lines, weights, before = [], {}, "x"
    for i in range(layers):
        after = "y" if i == layers - 1 else f"r{i}"
        lines.append(text.format(i=i, x=before, y=after))
        weights |= {f"w{i}": (4, 4, 3, 3), **nets.batch_norm(i)}
        before = after
    return nets.net(f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {' '.join(lines)} }}", weights)


def external(model):
    return [op for op in model.graph.ops if op.kernel in model.lowered.composites]


def test_a_composite_is_one_op_with_all_its_nodes(load, reference):
    model = load(row())
    assert [" ".join(op.sources) for op in model.graph.ops] == ["c0 b0 r0", "c1 b1 r1", "c2 b2 y"]
    assert [op.weight_bytes for op in model.graph.ops] == [4 * (4 * 4 * 9 + 4 * 4)] * 3
    names = [f"op{i}_reference_conv_norm_relu{i or ''}" for i in range(3)]
    assert [op.name for op in model.graph.ops] == names


def test_patterns_come_from_tvms_registry_by_prefix(save, reference):
    relax.backend.pattern_registry.register_patterns(list(reversed(external_backend.patterns())))
    model = autosplit.load_model(save(row()), backends=[Backend(NAME)])
    assert len(external(model)) == 3
    nets.judge(model, model.split([["r0"]]))


@pytest.mark.parametrize(("backends", "programs"), [([], 1), ([Backend(NAME)], 2)])
def test_replicas_share_a_program_unless_it_has_regions(save, reference, backends, programs):
    relax.backend.pattern_registry.register_patterns(external_backend.patterns())
    model = autosplit.load_model(save(row()), backends=backends, runtime="tvm")
    with patch.object(Linker, "link", autospec=True, side_effect=Linker.link) as link:
        model.runtime.stages(model.stage_source.whole_stage, [Cores((0,)), Cores((0,))])
    assert link.call_count == programs


@pytest.mark.parametrize(("merge", "layers"), [(True, [1, 2]), (False, [1, 1, 1])])
def test_neighbours_in_an_exported_stage_are_one_region(load, reference, tmp_path, merge, layers):
    model = load(row(), merge=merge)
    model.split([["r0"]]).export(tmp_path)
    nets.judge(model, autosplit.load(tmp_path))
    assert sorted(map(len, reference.layers())) == layers


def test_layers_that_differ_in_attributes_alone_keep_their_names(load, reference):
    text = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
        a = Conv<pads=[1,1,1,1]>(x, w)  b = Conv<pads=[2,2,2,2],dilations=[2,2]>(x, w)
        c = Exp(b)  s = Add(a, c)  y = Relu(s)
    }"""
    model = load(nets.net(text, {"w": (4, 4, 3, 3)}))
    assert {op.sources for op in external(model)} == {("a", "s", "y"), ("b",)}


def test_layers_whose_names_would_be_equal_are_told_apart(save, reference):
    known = dict(external_backend.patterns())
    pairs = {"conv1": "conv_relu", "conv": "conv"}
    patterns = [(f"{NAME}.{name}", known[f"{NAME}.{other}"]) for name, other in pairs.items()]
    text = "g (float[1,4,6,6] x) => (float[1,4,6,6] y) { c = Conv(x, w) r = Relu(c) "
    text += "d = Conv(r, w) y = Conv<pads=[1,1,1,1]>(d, v) }"
    proto = nets.net(text, {"w": (4, 4, 1, 1), "v": (4, 4, 3, 3)})
    model = autosplit.load_model(save(proto), backends=[Backend(NAME, patterns)])
    assert len({op.kernel for op in external(model)}) == 3


def test_a_marker_at_the_edge_stays_outside(load, reference):
    proto = nets.net(
        """g (float16[1,4,6,6] x) => (float16[1,4,6,6] y) {
            f = Cast<to=1>(x)
            c0 = Conv(f, w0)  c1 = Conv(c0, w1)
            y = Cast<to=10>(c1)
        }""",
        {"w0": (4, 4, 1, 1), "w1": (4, 4, 1, 1)},
    )
    model = load(proto, markers=("relax.astype",))
    assert [op.sources for op in external(model)] == [("c0",), ("c1",)]
    nets.judge(model, model.split([["f"]]))
    assert reference.layers() == [["reference.conv"] * 2]


def test_each_branch_is_a_region_and_the_rest_is_untouched(load, reference):
    model = load(nets.parallel())
    nets.judge(model, model.split([]))
    assert sorted(reference.layers()) == [["reference.conv"] * n for n in (1, 2, 3)]
    rest = [{*op.sources} for op in model.graph.ops if op not in external(model)]
    assert {"stem", "y"} == set().union(*rest)


def test_a_region_hands_out_several_tensors(load, reference):
    proto = nets.net(
        """g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z) {
            c0 = Conv(x, w0)  c1 = Conv(c0, w1)  c2 = Conv(c1, w2)
            e0 = Exp(c0)  z = Exp(c1)  y = Mul(e0, c2)
        }""",
        dict.fromkeys(("w0", "w1", "w2"), (4, 4, 1, 1)),
    )
    model = load(proto)
    nets.judge(model, model.split([]))
    (region,) = reference.regions.values()
    assert len(region.ret_ty.fields) == 3
    nets.judge(model, model.split([["c1"]]))


def test_a_missing_code_generator_names_the_ops(load):
    text = "has no code generator for ops op0_reference_conv_norm_relu, op1"
    with pytest.raises(MachineError, match=text):
        load(row()).split([["r1"]]).pipeline()


def test_a_code_generator_that_fails_names_the_ops(load, reference):
    def fails(*_):
        raise ValueError("no such device")

    tvm.register_global_func(f"relax.ext.{NAME}", fails, override=True)
    with pytest.raises(MachineError, match=r"op0_reference_conv_norm_relu.*no such device"):
        load(row()).split([]).pipeline()


def test_a_region_is_convex_and_holds_ops_of_its_backend_alone(load, reference):
    missing = r"add 'op\d+_reference_conv4'"
    for last, message in (("d2", missing), ("stem", "'stem'"), ("nope", "'nope'")):
        with pytest.raises(SplitError, match=message):
            load(nets.parallel(), regions=(("d0", last),))


def test_the_ops_of_a_region_stay_together(load, reference):
    model = load(nets.parallel(), regions=(("b0", "b1"), ("d2", "d1")))
    assert [
        {model.graph.ops[i].sources[0] for i in group} for group in model.lowered.keep_together
    ] == [{"b0", "b1"}, {"d1", "d2"}]
    text = r"cut 1: tvm runs ops op\d_reference_conv1, op\d_reference_conv2 as one"
    with pytest.raises(SplitError, match=text):
        model.split([["b0"]])
    nets.judge(model, model.split([["b1"], ["d2"]]))


def test_patterns_of_another_backend_or_none_are_an_error(save, reference):
    with pytest.raises(ConfigError, match="has no patterns"):
        autosplit.load_model(save(row()), backends=[Backend("nobody")])
    with pytest.raises(ConfigError, match=r"reference\.conv"):
        autosplit.load_model(save(row()), backends=[Backend("other", external_backend.patterns())])


def test_two_backends_never_share_a_region(save, reference):
    other = external_backend.Reference()
    tvm.register_global_func("relax.ext.second", other.generate, override=True)
    second = tuple(
        (name.replace(NAME, "second"), *rest) for name, *rest in external_backend.patterns()[2:3]
    )
    first = external_backend.patterns()[:1]
    proto = row(2)
    for node in list(proto.graph.node):
        if node.output[0] == "c1":
            node.output[0] = "b1"
        elif node.op_type == "BatchNormalization" and node.input[0] == "c1":
            proto.graph.node.remove(node)
    backends = [Backend(NAME, first), Backend("second", second)]
    model = autosplit.load_model(save(proto), backends=backends)
    nets.judge(model, model.split([]))
    assert reference.layers() == [["reference.conv_norm_relu"]]
    assert other.layers() == [["second.conv_relu"]]
    tvm_ffi.registry.remove_global_func("relax.ext.second")


@pytest.mark.integration
def test_a_quantised_net_runs_as_regions_or_however_it_is_cut(save, reference):
    # Three convolutions, quantised by onnxruntime to QDQ with random calibration data.
    generator = np.random.default_rng(1)
    plain = save(row(3, "c{i} = Conv<pads=[1,1,1,1]>({x}, w{i}, mean{i})  {y} = Relu(c{i})"))
    items = iter([{"x": generator.standard_normal((1, 4, 6, 6), np.float32)} for _ in range(8)])
    reader = SimpleNamespace(get_next=lambda: next(items, None))
    qdq = plain.with_name("qdq.onnx")
    quantization.quantize_static(plain, qdq, reader, quant_format=quantization.QuantFormat.QDQ)

    def load(**options):
        backend = Backend(NAME, external_backend.patterns(), **options)
        # A step of quantisation may round another way.
        return autosplit.load_model(qdq, backends=[backend], tolerance=0.03)

    model = load(markers=("relax.quantize", "relax.dequantize"))
    nets.judge(model, model.split([]))
    layers = max(reference.layers(), key=len)
    assert sum(name.startswith("reference.conv") for name in layers) == 3
    assert {"reference.quantize", "reference.dequantize"} <= set(layers)
    model = load()
    one_each = api.Split(model, tuple((i,) for i in range(len(model.graph.ops))))
    for split in (one_each, model.split([["r0"]]), model.split([["r0_QuantizeLinear"], ["r1"]])):
        nets.judge(model, split, items=2)
