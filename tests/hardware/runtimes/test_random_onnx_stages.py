"""Random ONNX nets, cut at random between groups, in stages of the runtimes of submodels."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import autosplit
from autosplit import api, cuts
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, OPENVINO
from tests import nets

KINDS = {
    "relu": "Relu({a})",
    "same": "Identity({a})",
    "drop": "Dropout({a})",
    "add": "Add({a}, {b})",
    "by": "MatMul({a}, w)",
    "less": "Sub({a}, {b})",
    "soft": "Softmax<axis=0>({a})",
    "flat": "Reshape({a}, shape)",
    "back": "Reshape({a}, s{n})",
    "turn": "Transpose({a})",
    "log": "LogSoftmax<axis=0>({a})",
}


@st.composite
def programs(draw):
    """The body of a net on 4x4 matrices and its tensors; ``back`` reads another tensor's shape."""
    tensors, lines = ["x", "z"], []
    for n in range(draw(st.integers(3, 12))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        a, b = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        if kind == "back":
            lines.append(f"s{n} = Shape({b})")
        lines.append(f"t{n} = " + KINDS[kind].format(a=a, b=b, n=n))
        tensors.append(f"t{n}")
    outputs = st.lists(st.sampled_from(tensors[2:]), min_size=1, max_size=3, unique=True)
    return "\n".join(lines), draw(outputs)


@pytest.mark.integration
@pytest.mark.parametrize("runtime", [ONNXRUNTIME, OPENVINO])
@settings(max_examples=30)
@given(programs(), st.data())
def test_random_cuts_of_random_nets_are_equal(runtime, program, data):
    body, outputs = program
    leaving = ", ".join(f"float[4,4] {name}" for name in outputs)
    proto = nets.net(
        f"g (float[4,4] x, float[4,4] z) => ({leaving}) {{ {body} }}",
        {"w": (4, 4), "shape": nets.np.array([4, 4])},
        opset=11,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(proto.SerializeToString())
        model = autosplit.load_model(path, runtime=runtime)
        assume(model.graph.ops)  # a net that only renames its inputs has none
        groups = cuts.contract(
            model.graph.predecessors, map(cuts.bitset, model.runtime.keep_together)
        )
        places = data.draw(st.sets(st.integers(1, max(1, len(groups.groups) - 1)), max_size=3))
        inside = sorted(place for place in places if place < len(groups.groups))
        order = [groups.expand((1 << place) - 1) for place in inside]
        nets.judge(model, api.Split(model, cuts.stages(model.graph, order)), items=2)
