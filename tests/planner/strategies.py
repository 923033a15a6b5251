"""Random cost models for hypothesis."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import strategies as st

from autosplit.planner import CostModel, Transfer

COST = st.integers(0, 12).map(float)


@st.composite
def models(draw, most=7, devices=1, memory=False, groups=False, inputs=False, unsupported=False):
    """A model of up to ``most`` ops on ``devices`` kinds of device (1: all alike)."""
    n = draw(st.integers(1, most))
    tensors, predecessors = [], [0] * n
    for i in range(n):
        for part in range(draw(st.integers(0, 2))):
            readers = draw(st.sets(st.integers(i + 1, n - 1), max_size=3)) if i + 1 < n else set()
            if readers:
                tensors.append(
                    Transfer(f"t{i}.{part}", i, tuple(sorted(readers)), draw(st.integers(0, 9)))
                )
                for r in readers:
                    predecessors[r] |= 1 << i
    if inputs:
        readers = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=3))
        tensors.append(Transfer("x", None, tuple(sorted(readers)), draw(st.integers(0, 9))))
    time = st.one_of(COST, st.just(math.inf)) if unsupported else COST
    rows = lambda values, width: tuple(  # noqa: E731
        tuple(draw(st.lists(values, min_size=width, max_size=width))) for _ in range(devices)
    )
    limit = st.integers(0, 60).map(float)
    return CostModel(
        name="random",
        names=tuple(f"op{i}" for i in range(n)),
        predecessors=tuple(predecessors),
        times=rows(time, n),
        tensors=tuple(tensors),
        send=rows(COST, len(tensors)),
        receive=rows(COST, len(tensors)),
        overheads=draw(st.lists(COST, min_size=devices, max_size=devices).map(tuple)),
        sizes=tuple(draw(st.lists(st.integers(0, 9).map(float), min_size=n, max_size=n))),
        memory=draw(st.lists(limit, min_size=devices, max_size=devices).map(tuple))
        if memory
        else (math.inf,),
        activations=draw(st.booleans()) if memory else False,
        groups=draw(
            st.lists(st.sets(st.integers(0, n - 1), min_size=2, max_size=3), max_size=2).map(_bits)
        )
        if groups and n > 1
        else (),
    )


@st.composite
def with_serial_ops(draw, model):
    """A model in which up to two ops need all earlier ones and are needed by all later ones."""
    n = len(model.names)
    predecessors, edges = list(model.predecessors), []
    for op in draw(st.sets(st.integers(0, n - 1), max_size=2)):
        edges += [(earlier, op) for earlier in range(op)]
        edges += [(op, later) for later in range(op + 1, n)]
    for producer, reader in edges:
        predecessors[reader] |= 1 << producer
    tensors = tuple(Transfer(f"{p} to {r}", p, (r,), 1.0) for p, r in edges)
    costs = st.lists(COST, min_size=len(edges), max_size=len(edges)).map(tuple)
    return replace(
        model,
        predecessors=tuple(predecessors),
        tensors=model.tensors + tensors,
        send=tuple(row + draw(costs) for row in model.send),
        receive=tuple(row + draw(costs) for row in model.receive),
    )


@st.composite
def experts(draw):
    """A router, four experts and their reader, beside them an op, on one or two kinds of device."""
    devices = draw(st.sampled_from([1, 2]))
    readers = [(1, 2, 3, 4), (5,), (5,), (5,), (5,), ()]
    tensors = [Transfer(f"t{n}", n, r, 1.0) for n, r in enumerate(readers) if r]
    rows = lambda width: tuple(  # noqa: E731
        tuple(draw(st.lists(COST, min_size=width, max_size=width))) for _ in range(devices)
    )
    return CostModel(
        name="experts",
        names=tuple(f"op{n}" for n in range(7)),
        predecessors=(0, 1, 1, 1, 1, 0b11110, draw(st.sampled_from([0, 1, 0b100000]))),
        times=rows(7),
        tensors=tuple(tensors),
        send=rows(len(tensors)),
        receive=rows(len(tensors)),
        overheads=draw(st.lists(COST, min_size=devices, max_size=devices).map(tuple)),
    )


@st.composite
def with_runtimes(draw, model, devices=1):
    """A model of which each stage has one of two or three runtimes."""
    n = len(model.names)
    time = st.one_of(COST, st.just(math.inf))
    rows = st.lists(st.lists(time, min_size=n, max_size=n).map(tuple), min_size=1, max_size=devices)
    runtimes = {}
    for name in draw(st.sampled_from([("tvm", "openvino"), ("tvm", "openvino", "onnxruntime")])):
        times = draw(rows.filter(lambda rows: len(rows) in (1, devices)).map(tuple))
        overheads = draw(st.lists(COST, min_size=devices, max_size=devices).map(tuple))
        groups = st.sets(st.integers(0, n - 1), min_size=min(2, n), max_size=3)
        separate = draw(st.lists(groups, max_size=2).map(_bits))
        runtimes[name] = replace(
            model, times=times, overheads=overheads, groups=(*model.groups, *separate)
        )
    return CostModel.of_runtimes(runtimes)


@st.composite
def with_states(draw, model):
    """A model of up to four streams whose states bind some of its ops."""
    n = len(model.names)
    ops = draw(st.lists(st.sets(st.integers(0, n - 1), min_size=1, max_size=2), max_size=2))
    states = tuple((f"h{i}", mask) for i, mask in enumerate(_bits(ops)))
    return replace(model.with_groups(ops), states=states, streams=draw(st.integers(1, 4)))


def _bits(groups):
    return tuple(sum(1 << i for i in g) for g in groups)


@st.composite
def questions(draw, most=6, stages=None):
    """(model, stages, allow_empty), with all that makes a model hard switched on at times."""
    k = stages or draw(st.integers(1, 4))
    devices = draw(st.sampled_from([1, k]))
    model = draw(
        models(
            most=most,
            devices=devices,
            memory=draw(st.booleans()),
            groups=draw(st.booleans()),
            inputs=draw(st.booleans()),
            unsupported=draw(st.booleans()),
        )
    )
    if draw(st.booleans()):
        model = draw(with_runtimes(model, devices))
    return model, k, draw(st.booleans())
