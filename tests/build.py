"""ONNX models built node by node, sound or not; ``nets.net`` reads whole sound ones from text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WIDTH = 4


def node(
    kind: str,
    inputs: str,
    outputs: str,
    name: str | None = None,
    domain: str = "",
    **attributes: Any,
) -> Any:
    """A node.

    ``inputs`` and ``outputs`` are tensor names with spaces between; named after its first output.
    """
    from onnx import helper

    node_name = name if name is not None else outputs.split()[0]
    return helper.make_node(
        kind, inputs.split(), outputs.split(), name=node_name, domain=domain, **attributes
    )


def value(
    name: str, shape: Sequence[int | str | None] | None = (1, WIDTH), dtype: str = "FLOAT"
) -> Any:
    """A graph input or output."""
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape)


def onnx_model(
    nodes: Sequence[Any],
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[str | Any] = ("y",),
    weights: dict[str, Any] | None = None,
    opset: int = 17,
) -> Any:
    """A ModelProto.

    Outputs given by name are of unknown shape, the input is ``x`` unless said otherwise.
    """
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        list(nodes),
        "graph",
        [value("x")] if inputs is None else list(inputs),
        [value(o, None) if isinstance(o, str) else o for o in outputs],
        [
            numpy_helper.from_array(np.asarray(array), name)
            for name, array in (weights or {}).items()
        ],
    )
    domains = sorted({n.domain for n in nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
