"""ONNX models built node by node, sound or not; ``nets.net`` reads whole sound ones from text."""

import numpy as np

WIDTH = 4


def node(kind, inputs, outputs, name=None, domain="", **attributes):
    """A node of tensors given with spaces between their names; named after its first output."""
    from onnx import helper

    node_name = name if name is not None else outputs.split()[0]
    return helper.make_node(
        kind, inputs.split(), outputs.split(), name=node_name, domain=domain, **attributes
    )


def value(name, shape=(1, WIDTH), dtype="FLOAT"):
    """A graph input or output."""
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, dtype), shape)


def onnx_model(nodes, inputs=None, outputs=("y",), weights=None, opset=17):
    """A ModelProto; outputs given by name are of unknown shape, the usual input is ``x``."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        list(nodes),
        "graph",
        [value("x")] if inputs is None else list(inputs),
        [value(o, None) if isinstance(o, str) else o for o in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()],
    )
    domains = sorted({n.domain for n in nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
