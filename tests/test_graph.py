import networkx

from autosplit.graph import Op, build

SIZES = {"x": 8, "a": 16, "b": 32, "c": 64, "d": 128}
SHAPES = {name: ((2,), "float32", size) for name, size in SIZES.items()}


def diamond():
    ops = (
        Op("first", "conv", ("n0", "n1"), ("x",), ("a", "b"), weight_bytes=5, flops=7.0),
        Op("left", "relu", ("n2",), ("a", "b"), ("c",)),
        Op("right", "add", ("n3",), ("a", "c"), ("d",)),
    )
    return build("net", ops, SHAPES, ("x",), ("d",))


def test_a_graph_as_networkx_has_its_ops_as_nodes_and_tensors_with_their_bytes_on_its_edges():
    graph = diamond().to_networkx()
    assert list(graph) == ["first", "left", "right"]
    first = {"index": 0, "kernel": "conv", "sources": ("n0", "n1"), "flops": 7.0, "weight_bytes": 5}
    assert graph.nodes["first"] == first
    assert graph.graph == {"name": "net", "inputs": ("x",), "outputs": ("d",)}
    assert networkx.is_directed_acyclic_graph(graph)
    assert dict(graph.edges) == {
        ("first", "left"): {"tensors": ("a", "b"), "bytes": 48},
        ("first", "right"): {"tensors": ("a",), "bytes": 16},
        ("left", "right"): {"tensors": ("c",), "bytes": 64},
    }
