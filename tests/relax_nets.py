"""Random Relax modules, each with the numpy function that computes the same: splits are judged by
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, np.dtype[Any]]
# Of every tensor that can be read on: one shape keeps the number of different kernels small.
SHAPE = (4, 6)


@dataclass(frozen=True)
class Made:
    """A module, what numpy makes of its inputs, in the order of its outputs, and how many ops it
    was given.
    """

    module: Any
    reference: Callable[[dict[str, Array]], list[Array]]
    steps: int


@dataclass(frozen=True)
class Step:
    """An op that reads earlier tensors by number; ``constant`` numbers a shared constant."""

    kind: str
    reads: tuple[int, ...]
    constant: int


KINDS = ("add", "multiply", "relu", "weight", "matmul", "halves", "swap", "join", "top", "norm")


@st.composite
def steps(draw: st.DrawFn, inputs: int = 2, most: int = 10) -> list[Step]:
    """Some ops in order; each reads any inputs or results before it."""
    steps: list[Step] = []
    width = inputs
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(KINDS))
        reads = tuple(draw(st.integers(0, width - 1)) for _ in range(2))
        steps.append(Step(kind, reads, draw(st.integers(0, 1))))
        width += 2 if kind in ("halves", "swap", "top") else 1
    return steps


def parsed(text: str) -> Any:
    """The module of a TVMScript text, as TVM itself parses it."""
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    body = text[text.index("@I.ir_module") :]
    return tvm.script.from_source(body, dict(_default_globals()))


def constants() -> list[Array]:
    """Two weights that any number of ops share."""
    generator = np.random.default_rng(7)
    return [generator.standard_normal(SHAPE).astype(np.float32) for _ in range(2)]


def build(steps: list[Step], inputs: int = 2) -> Made:
    """The module of some steps.

    Every result that nothing reads is an output; so is the first result of all.
    """
    from tvm import relax

    weights = [relax.const(c) for c in constants()]
    squares = [relax.const(np.ascontiguousarray(c.T @ c / 4)) for c in constants()]
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(SHAPE, "float32")) for i in range(inputs)]
    values: list[Any] = list(params)
    with builder.function("main", params):
        with builder.dataflow():
            for step in steps:
                reads = [values[i] for i in step.reads]
                values += _emit(builder, step, reads, weights, squares)
            leaving = _leaving(steps, inputs)
            result = builder.emit_output(relax.Tuple([values[i] for i in leaving]))
        builder.emit_func_output(result)

    def reference(item: dict[str, Array]) -> list[Array]:
        known = [item[f"x{i}"] for i in range(inputs)]
        for step in steps:
            known += _compute(step, [known[i] for i in step.reads])
        return [known[i] for i in leaving]

    return Made(builder.get(), reference, len(steps))


def _leaving(steps: list[Step], inputs: int) -> list[int]:
    read = {i for step in steps for i in (step.reads if step.kind in BINARY else step.reads[:1])}
    width = inputs + sum(2 if s.kind in ("halves", "swap", "top") else 1 for s in steps)
    return sorted({i for i in range(inputs, width) if i not in read} | {inputs})


BINARY = {"add", "multiply", "join"}


def _emit(
    builder: Any, step: Step, reads: list[Any], weights: list[Any], squares: list[Any]
) -> list[Any]:
    from tvm import relax

    op, (a, b), c = relax.op, reads, step.constant
    if step.kind in ("halves", "swap"):
        parts = builder.emit(op.split(a, 2, axis=1))
        order = (0, 1) if step.kind == "halves" else (1, 0)
        return [builder.emit(op.concat([parts[i], parts[i]], axis=1)) for i in order]
    if step.kind == "top":
        parts = builder.emit(op.topk(a, k=SHAPE[1], axis=1, ret_type="both", dtype="int32"))
        values, places = builder.emit(parts[0]), builder.emit(parts[1])
        return [values, builder.emit(op.astype(places, "float32"))]
    builders = {
        "add": lambda: op.add(a, b),
        "multiply": lambda: op.multiply(op.tanh(a), op.tanh(b)),
        "relu": lambda: op.nn.relu(a),
        "weight": lambda: op.add(a, weights[c]),
        "matmul": lambda: op.matmul(a, squares[c]),
        "join": lambda: op.concat(
            [op.strided_slice(a, [1], [0], [3]), op.strided_slice(b, [1], [3], [6])], axis=1
        ),
        "norm": lambda: op.nn.softmax(a, axis=1),
    }
    return [builder.emit(builders[step.kind]())]


def _compute(step: Step, reads: list[Array]) -> list[Array]:
    (a, b), weight = reads, constants()[step.constant]
    if step.kind in ("halves", "swap"):
        halves = [np.tile(part, (1, 2)) for part in np.split(a, 2, axis=1)]
        return halves if step.kind == "halves" else halves[::-1]
    if step.kind == "top":
        places = np.argsort(-a, axis=1, kind="stable")
        return [np.take_along_axis(a, places, axis=1), places.astype(np.float32)]
    if step.kind == "norm":
        powers = np.exp(a - a.max(axis=1, keepdims=True))
        return [powers / powers.sum(axis=1, keepdims=True)]
    builders: dict[str, Callable[[], Array]] = {
        "add": lambda: a + b,
        "multiply": lambda: np.tanh(a) * np.tanh(b),
        "relu": lambda: np.maximum(a, 0),
        "weight": lambda: a + weight,
        "matmul": lambda: a @ (weight.T @ weight / 4),
        "join": lambda: np.concatenate([a[:, :3], b[:, 3:]], axis=1),
    }
    return [builders[step.kind]()]
