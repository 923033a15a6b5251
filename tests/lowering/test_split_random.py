"""Random Relax DAGs with random nested cuts compute what numpy computes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosplit
from autosplit import api, cuts
from autosplit.lowering.external.backend import Backend
from tests import external_backend, relax_nets


@pytest.mark.integration
@settings(max_examples=25)
@given(relax_nets.steps(), st.data())
def test_random_splits_of_random_graphs_are_equal(steps, data):
    program = relax_nets.build(steps)
    check(program, autosplit.load_model(program.module), data.draw)


@pytest.mark.integration
@settings(max_examples=25)
@given(relax_nets.steps(), st.data())
def test_random_splits_with_regions_of_a_backend_are_equal(steps, data):
    from tvm.relax.dpl import is_op, wildcard

    name = external_backend.NAME
    add, relu = is_op("relax.add"), is_op("relax.nn.relu")
    patterns = (
        (f"{name}.add_relu", relu(add(wildcard(), wildcard()))),
        (f"{name}.add", add(wildcard(), wildcard())),
        (f"{name}.relu", relu(wildcard())),
    )
    external_backend.register()
    program = relax_nets.build(steps)
    backend = Backend(
        name, patterns, merge=data.draw(st.booleans()), markers=("relax.astype", "relax.tanh")
    )
    check(program, autosplit.load_model(program.module, backends=[backend]), data.draw)
    external_backend.unregister()


def check(program, model, draw):
    """A random split of the model computes what numpy computes."""
    split = api.Split(model, cuts.stages(model.graph, nested(model.graph, draw)))
    items = model.items(2)
    with split.pipeline() as pipeline:
        for item, got in zip(items, pipeline.run(items), strict=True):
            expected = program.reference(item)
            assert len(got) == len(expected)
            for mine, theirs in zip(got.values(), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def nested(graph, draw):
    """Up to five cuts, each the closure of some ops and the cut before, none empty or full."""
    groups = []
    before = 0
    for _ in range(draw(st.integers(0, 5))):
        chosen = draw(st.sets(st.integers(0, len(graph.ops) - 1), min_size=1, max_size=3))
        cut = before | cuts.closure(graph, chosen)
        if cut not in (before, cuts.full(graph)):
            groups.append(cut)
            before = cut
    return groups
