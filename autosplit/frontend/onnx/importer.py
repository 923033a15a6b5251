"""ONNX to Relax, with the name of every source tensor kept on the variable that holds it.

TVM's importer sets no spans. Its name table sees every converted value, though, so a table that emits each value under a
name of ours leaves that name on the binding (see ``source.mark``).
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.onnx import file, normalize
from autosplit.frontend.onnx import shape_arithmetic as known
from autosplit.frontend.onnx.name_table import NameTable
from autosplit.frontend.source import SourceModel, SourceNode

_CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
_DOMAINS = {"", "ai.onnx", "com.microsoft"}


def load(path: Path, shapes: file.Shapes | None = None) -> SourceModel:
    """Import the ONNX file ``path``. Raises ModelError or ConfigError, one line, where it cannot be imported."""
    return convert(file.read(path, shapes), path.stem)


def convert(model: Any, name: str) -> SourceModel:
    """Import a ModelProto with static input shapes; see ``load``."""
    nodes = _nodes(model.graph)
    _check_supported(model.graph, nodes)
    _check_order(model.graph, nodes)
    importer, module = _import(model, nodes)
    _check_types(model, module)
    table = importer._nodes
    return SourceModel(
        name=name,
        module=module,
        nodes=nodes,
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=file.inputs(model),
        outputs=tuple(o.name for o in model.graph.output),
    )


def _nodes(graph: Any) -> tuple[SourceNode, ...]:
    first = [next((o for o in n.output if o), f"node{i}") for i, n in enumerate(graph.node)]
    names = [n.name or f for n, f in zip(graph.node, first, strict=True)]
    times = Counter(names)
    taken: set[str] = {n for n in names if times[n] == 1}
    for i, name in enumerate(names):
        if times[name] > 1:
            names[i] = next(n for n in _candidates(f"{name}:{first[i]}") if n not in taken)
            taken.add(names[i])
    return tuple(
        SourceNode(
            name,
            node.op_type,
            tuple(i for i in node.input if i),
            tuple(o for o in node.output if o),
        )
        for node, name in zip(graph.node, names, strict=True)
    )


def _candidates(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}:{number}" for number in count(2))


def _check_supported(graph: Any, nodes: tuple[SourceNode, ...]) -> None:
    from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

    known = {*_get_convert_map(), "Constant"}
    for proto, node in zip(graph.node, nodes, strict=True):
        if node.kind in _CONTROL_FLOW:
            raise ModelError(
                f"node '{node.name}' is control flow ({node.kind}), which cannot be split; export without it"
            )
        if node.kind not in known or proto.domain not in _DOMAINS:
            kind = f"{proto.domain}.{node.kind}" if proto.domain else node.kind
            raise ModelError(
                f"op {kind} of node '{node.name}' is not supported by TVM's importer; replace it"
            )


def _check_order(graph: Any, nodes: tuple[SourceNode, ...]) -> None:
    weights = [w.name for w in graph.initializer]
    filled = set(weights)
    given = [*weights, *(i.name for i in graph.input if i.name not in filled)]
    made = set(given)
    if len(made) < len(given):
        raise ModelError(
            f"tensor '{Counter(given).most_common(1)[0][0]}' is given twice to the graph; rename one"
        )
    for node in nodes:
        for tensor in node.inputs:
            if tensor not in made:
                raise ModelError(
                    f"node '{node.name}' reads '{tensor}', which nothing before it makes; sort the graph"
                )
        for tensor in node.outputs:
            if tensor in made:
                raise ModelError(
                    f"node '{node.name}' makes '{tensor}', which is there before it; rename one"
                )
            made.add(tensor)
    for output in graph.output:
        if output.name not in made:
            raise ModelError(
                f"output '{output.name}' is made by no node; remove it from the graph's outputs"
            )


def _check_types(model: Any, module: Any) -> None:
    """Every output has the element type that the file gives it."""
    from onnx import TensorProto, helper
    from tvm import relax

    made = module["main"].ret_ty
    found = made.fields if isinstance(made, relax.TupleType) else [made]
    for output, kind in zip(model.graph.output, found, strict=False):
        given = output.type.tensor_type.elem_type
        if given not in TensorProto.DataType.values():
            raise ModelError(f"output '{output.name}' has the unknown element type {given}")
        said = str(helper.tensor_dtype_to_np_dtype(given)) if given else ""
        if said and hasattr(kind, "dtype") and str(kind.dtype) != said:
            raise ModelError(
                f"output '{output.name}' is {said} in the file, TVM's importer makes {kind.dtype} of it; leave it out"
            )


def _import(model: Any, nodes: tuple[SourceNode, ...]) -> tuple[Any, Any]:
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = _importer(
        model.graph.node,
        nodes,
        {i for n in nodes for i in n.inputs} | {o.name for o in model.graph.output},
    )
    talk = io.StringIO()  # the importer prints to standard output, where only results belong
    try:
        with contextlib.redirect_stdout(talk), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer, importer.from_onnx(model.graph, opset)
    except ModelError:
        raise
    except Exception as error:
        with contextlib.suppress(
            Exception
        ):  # a block left open makes the builder write a warning when it goes
            importer.bb._end_block()
        node = nodes[min(importer.position, len(nodes) - 1)]
        raise ModelError(
            f"node '{node.name}' ({node.kind}) cannot be imported: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of an error, without the dump of the operator that TVM puts before its sentence."""
    return re.sub(r"In ir\.Op\(.*\), (?=the )", "", line_of(error))


def _importer(protos: Any, nodes: tuple[SourceNode, ...], read: set[str]) -> Any:
    """The importer; ``read`` names the tensors somebody reads (a dropout whose mask nobody reads is an identity)."""
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        position = 0

        def __init__(self) -> None:
            super().__init__({}, {}, sanitize=True)
            self._nodes = NameTable()

        def _construct_nodes(self, graph: Any) -> None:
            self._nodes.builder = self.bb
            super()._construct_nodes(graph)

        def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
            node = nodes[self.position]
            if op_name == "Dropout" and _trains(inputs, attrs):
                raise ValueError(
                    "it drops values at random, as in training; export the model for inference"
                )
            if op_name == "Dropout" and not read.intersection(node.outputs[1:]):
                result: Any = (
                    inputs[0]
                    if len(node.outputs) == 1
                    else relax.Tuple([inputs[0]] * len(node.outputs))
                )
            elif (found := known.evaluated(protos[self.position], inputs, opset)) is not None:
                result = found[0] if len(found) == 1 else relax.Tuple(found)
            else:
                convert = super()._convert_operator
                result = normalize.converted(
                    convert, protos[self.position], inputs, attrs, opset, read
                )
            self.position += 1
            return result

    return Importer()


def _trains(inputs: Any, attrs: Any) -> bool:
    mode = inputs[2] if len(inputs) > 2 else None
    return attrs.get("is_test", 1) == 0 or not (mode is None or _is_false(mode))


def _is_false(mode: Any) -> bool:
    return hasattr(mode, "value") and not mode.value.numpy().any()
