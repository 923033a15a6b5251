"""Fused graphs: a chain, and one shaped like SqueezeNet."""

from autosplit.graph import Op, build


def _graph(name, rows):
    """A graph of (op, ops that it reads, bytes of its tensor); the last tensor is the output."""
    ops, shapes = [], {"x": ((1, 3, 224, 224), "float32", 602112)}
    for op, reads, size in rows:
        inputs = tuple(f"{read}:0" for read in reads) or ("x",)
        ops.append(Op(op, op.split("/")[-1], (op,), inputs, (f"{op}:0",)))
        shapes[f"{op}:0"] = ((size // 4,), "float32", size)
    return build(name, ops, shapes, ["x"], ops[-1].outputs)


def chain(length=6):
    reads = [[], *([f"conv{i}"] for i in range(length))]
    return _graph("chain", [(f"conv{i}", reads[i], 1000 * (length - i)) for i in range(length)])


def fire_net():
    rows = [("conv1_relu", [], 3_154_176), ("pool1", ["conv1_relu"], 774_400)]
    for i in range(2, 10):
        squeeze, *expand, concat = (
            f"squeezenet0_fire{i}/{op}"
            for op in ("squeeze1x1_relu", "expand1x1_relu", "expand3x3_relu", "concat")
        )
        rows.append((squeeze, [rows[-1][0]], 200_000))
        rows += [(op, [squeeze], 800_000) for op in expand]
        rows.append((concat, expand, 1_600_000))
        if i in (4, 8):
            rows.append((f"pool{i}", [concat], 400_000))
    for name in ("dropout", "conv10_relu", "avgpool", "flatten", "softmax"):
        rows.append((name, [rows[-1][0]], 4000))
    return _graph("squeezenet", rows)
