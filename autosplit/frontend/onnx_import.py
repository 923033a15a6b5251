"""ONNX to Relax, with the name of every source tensor kept on the variable that holds it.

TVM's importer sets no spans. Its name table sees every converted value, though, so a table that emits each value under a
name of ours leaves that name on the binding (see ``source.mark``).
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend import onnx_file
from autosplit.frontend.source import Source, SourceNode, mark

_CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
_DOMAINS = {"", "ai.onnx", "com.microsoft"}


def load(path: Path, shapes: onnx_file.Shapes | None = None) -> Source:
    """Import the ONNX file ``path``. Raises ModelError or ConfigError, one line, where it cannot be imported."""
    return convert(onnx_file.read(path, shapes), path.stem)


def convert(model: Any, name: str) -> Source:
    """Import a ModelProto with static input shapes; see ``load``."""
    nodes = _nodes(model.graph)
    _check_supported(model.graph, nodes)
    importer, module = _import(model, nodes)
    table = importer._nodes
    return Source(
        name=name,
        module=module,
        nodes=nodes,
        tensors=tuple(table.tensors),
        alias=dict(table.alias),
        constants=frozenset(table.constants),
        inputs=onnx_file.inputs(model),
        outputs=tuple(o.name for o in model.graph.output),
    )


def _nodes(graph: Any) -> tuple[SourceNode, ...]:
    first = [next((o for o in n.output if o), f"node{i}") for i, n in enumerate(graph.node)]
    names = [n.name or f for n, f in zip(graph.node, first, strict=True)]
    count = Counter(names)
    return tuple(
        SourceNode(
            name if count[name] == 1 else f"{name}:{f}",
            node.op_type,
            tuple(i for i in node.input if i),
            tuple(o for o in node.output if o),
        )
        for node, name, f in zip(graph.node, names, first, strict=True)
    )


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
            raise ModelError(f"op {kind} of node '{node.name}' is not supported by TVM's importer; replace it")


def _import(model: Any, nodes: tuple[SourceNode, ...]) -> tuple[Any, Any]:
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = _importer(nodes, {i for n in nodes for i in n.inputs} | {o.name for o in model.graph.output})
    talk = io.StringIO()  # the importer prints to standard output, where only results belong
    try:
        with contextlib.redirect_stdout(talk), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer, importer.from_onnx(model.graph, opset)
    except ModelError:
        raise
    except Exception as error:
        node = nodes[min(importer.position, len(nodes) - 1)]
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"node '{node.name}' ({node.kind}) cannot be imported: {reason}") from error


def _importer(nodes: tuple[SourceNode, ...], read: set[str]) -> Any:
    """The importer; ``read`` names the tensors somebody reads (a dropout whose mask nobody reads is an identity)."""
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    class Table(dict[str, Any]):
        """The importer's name table; emits each converted value under the mark of its tensor."""

        def __init__(self) -> None:
            super().__init__()
            self.builder: Any = None
            self.tensors: list[str] = []
            self.alias: dict[str, str] = {}
            self.constants: set[str] = set()
            self.holds: dict[str, str] = {}

        def __setitem__(self, tensor: str, value: Any) -> None:
            super().__setitem__(tensor, self._marked(tensor, value) if self.builder else value)
            if not self.builder and isinstance(value, relax.Var):
                self.holds[value.name] = tensor

        def _marked(self, tensor: str, value: Any) -> Any:
            if isinstance(value, relax.Var) and value.name in self.holds:
                self.alias[tensor] = self.holds[value.name]
                return value
            if not isinstance(value, relax.Call | relax.TupleGetItem | relax.Var):
                self.constants.add(tensor)
                return value
            value = self.builder.emit(value, name_hint=mark(len(self.tensors)))
            self.tensors.append(tensor)
            self.holds[value.name] = tensor
            return value

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        position = 0

        def __init__(self) -> None:
            super().__init__({}, {}, sanitize=True)
            self._nodes = Table()

        def _construct_nodes(self, graph: Any) -> None:
            self._nodes.builder = self.bb
            super()._construct_nodes(graph)

        def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
            node = nodes[self.position]
            if op_name == "Dropout" and not read.intersection(node.outputs[1:]) and not _trains(inputs, attrs):
                result: Any = inputs[0] if len(node.outputs) == 1 else relax.Tuple([inputs[0]] * len(node.outputs))
            else:
                result = super()._convert_operator(op_name, inputs, attrs, opset)
            self.position += 1
            return result

    def _trains(inputs: Any, attrs: Any) -> bool:
        mode = inputs[2] if len(inputs) > 2 else None
        return attrs.get("is_test", 1) == 0 or not (mode is None or _is_false(mode))

    def _is_false(mode: Any) -> bool:
        return hasattr(mode, "value") and not mode.value.numpy().any()

    return Importer()
