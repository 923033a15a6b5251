"""Random nets with random nested cuts compute what onnxruntime computes, in every runtime."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import autosplit
from autosplit import api, cuts
from autosplit.hardware.runtimes.registry import EXACT
from autosplit.lowering.external.backend import Backend
from tests import external_backend, nets

KINDS = {
    "relu": "Relu({a})",
    "same": "Identity({a})",
    "drop": "Dropout({a})",
    "add": "Add({a}, {b})",
    "tanh": "Tanh({a})",
    "by": "MatMul({a}, w)",
    "less": "Sub({a}, {b})",
    "soft": "Softmax<axis=0>({a})",
    "flat": "Reshape({a}, shape)",
    "back": "Reshape({a}, s{n})",
    "turn": "Transpose({a})",
    "log": "LogSoftmax<axis=0>({a})",
    "join": "Concat<axis=1>(l{n}, m{n})",
    "swap": "Concat<axis=1>(r{n}, l{n})",
    "top": "Cast<to=1>(i{n})",
}
# What stands before, and its tensors that later ops may read. Ties would have more than one order.
BEFORE = {
    "back": ("s{n} = Shape({b})", []),
    "join": ("l{n}, r{n} = Split<axis=1>({a})  k{n}, m{n} = Split<axis=1>({b})", []),
    "swap": ("l{n}, r{n} = Split<axis=1>({a})", []),
    "top": ("v{n}, i{n} = TopK<axis=1>(x, four)", ["v{n}"]),
}
WEIGHTS = {"w": (4, 4), "shape": np.array([4, 4]), "four": np.array([4])}


@st.composite
def programs(draw):
    """A net on 4x4 matrices; ``back`` reads another tensor's shape."""
    tensors, lines = ["x", "z"], []
    for n in range(draw(st.integers(3, 12))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        names = {"a": draw(st.sampled_from(tensors)), "b": draw(st.sampled_from(tensors)), "n": n}
        before, more = BEFORE.get(kind, ("", []))
        lines.append(f"{before}  t{{n}} = {KINDS[kind]}".format(**names))
        tensors += [f"t{n}", *(name.format(**names) for name in more)]
    outputs = draw(st.lists(st.sampled_from(tensors[2:]), min_size=1, max_size=3, unique=True))
    leaving = ", ".join(f"float[4,4] {name}" for name in outputs)
    text = f"g (float[4,4] x, float[4,4] z) => ({leaving}) {{ {'  '.join(lines)} }}"
    return nets.net(text, WEIGHTS, opset=11)


def check(program, data, **options):
    """Up to five cuts, each the closure of some groups of ops and the cut before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(program.SerializeToString())
        model = autosplit.load_model(path, **options)
        assume(model.graph.ops)  # a net that only renames its inputs has none
        together = map(cuts.bitset, model.runtime.keep_together)
        groups = cuts.contract(model.graph.predecessors, together)
        places = st.sets(st.integers(0, len(groups.groups) - 1), min_size=1, max_size=3)
        nested = [0]
        for chosen in data.draw(st.lists(places, max_size=5)):
            cut = nested[-1] | cuts.closure(groups, chosen)
            if cut not in (nested[-1], cuts.full(groups)):
                nested.append(cut)
        stages = cuts.stages(model.graph, list(map(groups.expand, nested[1:])))
        nets.judge(model, api.Split(model, stages), items=2)


@pytest.mark.integration
@pytest.mark.parametrize("runtime", EXACT)
@settings(max_examples=15)
@given(programs(), st.data())
def test_random_cuts_of_random_nets_are_equal(runtime, program, data):
    check(program, data, runtime=runtime)


@pytest.mark.integration
@settings(max_examples=15)
@given(programs(), st.booleans(), st.data())
def test_random_splits_with_regions_of_a_backend_are_equal(program, merge, data):
    from tvm.relax.dpl import is_op, wildcard

    name = external_backend.NAME
    add, relu = is_op("relax.add"), is_op("relax.nn.relu")
    patterns = (
        (f"{name}.add_relu", relu(add(wildcard(), wildcard()))),
        (f"{name}.add", add(wildcard(), wildcard())),
        (f"{name}.relu", relu(wildcard())),
    )
    external_backend.register()
    markers = ("relax.astype", "relax.tanh")
    check(program, data, backends=[Backend(name, patterns, merge=merge, markers=markers)])
    external_backend.unregister()
