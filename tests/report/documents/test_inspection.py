from autosplit.graph import Op, build
from autosplit.report.documents import inspection

OPS = [
    Op("conv_relu", "k0", ("conv", "relu"), ("x",), ("a",)),
    Op("lstm_1", "k1", (), ("a",), ("b", "c"), parts=("lstm",)),
    Op("lstm_2", "k2", ("lstm",), ("b", "c"), ("y",), parts=("lstm",)),
]
TENSORS = {
    "x": ((1, 3), "float32", 12), "a": ((2000,), "float32", 8000), "b": ((), "int8", 1),
    "c": ((9,), "int8", 9), "y": ((1,), "bool", 1),
}  # fmt: skip
GRAPH = build("net", OPS, TENSORS, ["x"], ["y"])
PORT = {"name": "x", "dtype": "float32", "shape": [1, 3]}
DOCUMENT = {
    "model": {"name": "net"}, "inputs": [PORT, PORT | {"name": "z", "shape": []}],
    "outputs": [PORT], "folded": [], "unscheduled": ["k1"], "states": [], "balance": None,
    "proposed_states": {}, "ambiguous_states": {},
}  # fmt: skip


def shown(ops=3, total=5, complete=True):
    cuts = {"total": total, "complete": complete}
    document = DOCUMENT | {"ops": [None] * ops, "cuts": cuts}
    return list(inspection.shown(document, GRAPH, False))


def test_the_title_counts_ops_and_cuts():
    titles = [shown(*counts)[0] for counts in ((1, 2), (2, 3), (41, 1050), (900, 10**6, False))]
    assert titles == [
        "net: 1 fused op, 2 downsets: 0 cuts into two stages",
        "net: 2 fused ops, 3 downsets: 1 cut into two stages",
        "net: 41 fused ops, 1,050 downsets: 1,048 cuts into two stages",
        "net: 900 fused ops, more than 1,000,000 downsets",
    ]


def test_a_line_for_inputs_and_outputs_and_a_row_an_op():
    inputs, outputs, table, unscheduled = shown()[1:]
    assert inputs == "inputs: x float32 1x3, z float32 scalar"
    assert outputs == "outputs: x float32 1x3"
    assert table.rows == [
        (0, "conv_relu", "conv relu", "x", "a", "2000", "8 kB"),
        (1, "lstm_1", "(part of lstm)", "a", "b c", "scalar 9", "10 B"),
        (2, "lstm_2", "lstm", "b c", "y", "1", "1 B"),
    ]
    assert unscheduled == "no schedule: k1 (lstm_1)"


def test_a_node_of_several_ops_leads_to_all_of_them():
    found_in = inspection.sentence(inspection.find(GRAPH, "lstm"))
    assert found_in == "lstm is in fused op lstm_2; lstm_1, lstm_2 compute a part"
