"""Fused graphs: a chain, and one shaped like SqueezeNet."""

from autosplit.graph import Op, build


class Sketch:
    """Collects ops whose tensors are named after them."""

    def __init__(self, name):
        self.name, self.ops = name, []
        self.shapes = {"x": ((1, 3, 224, 224), "float32", 602112)}

    def op(self, name, *inputs, size=100_000):
        self.ops.append(Op(name, name.split("/")[-1], (name,), inputs, (f"{name}:0",)))
        self.shapes[f"{name}:0"] = ((size // 4,), "float32", size)
        return f"{name}:0"

    def graph(self, *outputs):
        return build(self.name, self.ops, self.shapes, ["x"], outputs)


def chain(length=6):
    sketch, t = Sketch("chain"), "x"
    for i in range(length):
        t = sketch.op(f"conv{i}", t, size=1000 * (length - i))
    return sketch.graph(t)


def fire_net():
    s = Sketch("squeezenet")
    t = s.op("pool1", s.op("conv1_relu", "x", size=3_154_176), size=774_400)
    for i in range(2, 10):
        squeeze = s.op(f"squeezenet0_fire{i}/squeeze1x1_relu", t, size=200_000)
        e1 = s.op(f"squeezenet0_fire{i}/expand1x1_relu", squeeze, size=800_000)
        e3 = s.op(f"squeezenet0_fire{i}/expand3x3_relu", squeeze, size=800_000)
        t = s.op(f"squeezenet0_fire{i}/concat", e1, e3, size=1_600_000)
        if i in (4, 8):
            t = s.op(f"pool{i}", t, size=400_000)
    for name in ("dropout", "conv10_relu", "avgpool", "flatten", "softmax"):
        t = s.op(name, t, size=4000)
    return s.graph(t)
