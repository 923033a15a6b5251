"""Imports a program of ``torch.export`` as a source model, its nodes under torch's names.

Torch exports the program as ONNX, which the frontend for ONNX reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, ModelError, explained
from autosplit.extras import require, tvm
from autosplit.frontend.onnx import file, importer
from autosplit.frontend.onnx.nodes import graphs_in
from autosplit.frontend.shapes import Shapes, bound_symbols, of_one_item
from autosplit.frontend.source import SourceModel, unused
from autosplit.frontend.torch import checks
from autosplit.frontend.torch.archive import without_code
from autosplit.frontend.torch.onnx_export import export, joined, named_nodes, quiet

SUFFIX = ".pt2"
Array = np.ndarray[Any, Any]


def is_program(value: Any) -> bool:
    """Whether an object is an exported program."""
    kind = type(value)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.export")


def read(path: Path) -> Any:
    """Read a .pt2 file; raise ModelError if its program needs more than a graph and tensors.

    ``torch.export.load`` unpickles and evaluates parts of such a file; it gets a copy without them.
    """
    torch = _require_torch()
    problem = f"model '{path}' cannot be read by torch"
    with without_code(path) as archive, explained(ModelError, problem, last=False), quiet():
        return torch.export.load(archive)


def _require_torch() -> Any:
    """Import torch and the packages of its exporter; raise MachineError if one is missing."""
    require("onnx", "torch")
    require("onnxscript", "torch")
    return require("torch", "torch")


def convert(program: Any, name: str, shapes: Shapes | None = None, batch: int = 1) -> SourceModel:
    """Import an exported program, made to take ``batch`` items at once.

    Raises:
        ModelError: The program cannot be imported.
        ConfigError: ``shapes``, which bind dynamic dimensions, do not fit the inputs.
    """
    _require_torch()
    checks.require_arrays(program)
    used: set[str] = set()  # the program may return a result twice
    outputs = tuple(unused(str(name), used) for name in program.graph_signature.user_outputs)
    checks.require_computation(program)
    proto, decomposed, states = export(program, outputs)
    proto = file.prepared(proto, _static_shapes(decomposed, shapes or {}), batch)
    nodes = named_nodes(proto.graph, decomposed, program)
    for graph in graphs_in(proto.graph):
        for node in graph.node:
            del node.metadata_props[:]  # they hold paths of source files, and would be exported
    successors, used = {state.output: None for state in states}, set()
    added = [output for output in successors if output not in outputs]
    # A result that is returned twice has two names.
    names = [
        output if output in successors else unused(value.name, used)
        for output, value in zip((*added, *outputs), proto.graph.output, strict=True)
    ]
    return replace(
        importer.convert(proto, name, tuple(nodes)),
        nodes=joined(nodes, program),
        outputs=tuple(names),
        format="torch",
        program=program,
        onnx_model=proto,
        states=states,
    )


def _static_shapes(program: Any, shapes: Shapes) -> Shapes:
    """The shape of each input that ``shapes`` determine, such as ``n + 1`` if ``n`` is given.

    Raises:
        ConfigError: A shape is given for no input, or does not fit the others.
    """
    names = set(program.graph_signature.user_inputs)
    sizes_of = {node.name: _sizes(node) for node in program.graph.nodes if node.name in names}
    shapes = of_one_item(sizes_of, shapes)
    symbols = bound_symbols(sizes_of, shapes)
    static = {}
    for name, sizes in sizes_of.items():
        shape = [_value(size, symbols) for size in sizes]
        for axis, (size, number) in enumerate(zip(shape, shapes.get(name, ()), strict=False)):
            if isinstance(size, int) and size != number:
                raise ConfigError(
                    f"shape {name}={'x'.join(map(str, shapes[name]))} differs at axis {axis}, "
                    f"which is {size} by the other inputs; give {size}"
                )
        shape = list(shapes.get(name, shape))
        if all(isinstance(size, int) for size in shape):
            static[name] = tuple(shape)
    return static


def _sizes(node: Any) -> list[Any]:
    """The sizes of an input: numbers, and sympy's expressions where they are dynamic."""
    return [size if isinstance(size, int) else size.node.expr for size in node.meta["val"].shape]


def _value(size: Any, symbols: Mapping[Any, int]) -> Any:
    """A size with symbols replaced by their numbers; an int if that determines it."""
    if isinstance(size, int):
        return size
    size = size.subs({symbol: n for symbol, n in symbols.items() if symbol.is_Symbol})
    return int(size) if size.is_Integer else size


def open_program(source: SourceModel) -> Callable[[Mapping[str, Any]], dict[str, Array]]:
    """A function that computes an item in torch, by output name. Raises ModelError on failure."""
    torch = require("torch", "torch")
    program, pytree = source.program, torch.utils._pytree
    module = program.module()
    buffer_states = [state for state in source.states if state.name]
    of_buffers = {state.input for state in buffer_states}
    inputs = [i.name for i in source.inputs if i.name not in of_buffers]
    # The new values of states precede the outputs of the program.
    outputs = source.outputs[-len(program.graph_signature.user_outputs) :]

    def step(item: Mapping[str, Any]) -> dict[str, Array]:
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in item.items()}
        # The program updates these tensors instead of its buffers.
        buffers = {state.name: tensors[state.input] for state in buffer_states}
        with explained(ModelError, "torch cannot run the program", last=False), torch.no_grad():
            leaves = [tensors[name] for name in inputs]
            args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            called = torch.func.functional_call(module, buffers, args, kwargs)
        results = dict(zip(outputs, pytree.tree_leaves(called), strict=True))
        for state in source.states:
            results.setdefault(state.output, tensors[state.input])
        # Torch converts no bfloat16 to numpy; TVM does where data is aligned, as in a clone.
        values = {name: value.detach().contiguous().clone() for name, value in results.items()}
        return {name: tvm.runtime.from_dlpack(v).numpy() for name, v in values.items()}

    return step
