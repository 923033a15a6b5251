"""Draw the pictures of the documentation from real splits.

python -m studies.tools.pictures
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autosplit import api
from autosplit.lowering.external.backend import Backend
from autosplit.report.drawing.graph import SplitGraph
from autosplit.zoo import catalog
from tests import external_backend, nets

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    title = "A pre-activation block, cut after the add"
    draw("one_tensor_two_readers", nets.preactivation(), "add0", title)
    title = "A cut inside a residual block: two live tensors"
    draw("inside_a_residual_block", nets.residual(), "relu1a", title)
    external_backend.register()
    backend = Backend(external_backend.NAME, external_backend.patterns())
    title = "Composites of an external backend, cut first"
    draw("external_regions", row(), "r0", title, [backend])
    net = api.load_model(catalog.cached("squeezenet"))
    write("squeezenet", net, api.plan(net, 2).stages, "SqueezeNet, the plan for two cores")


def draw(name: str, proto: Any, after: str, title: str, backends: Any = ()) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.onnx"
        file.write_bytes(proto.SerializeToString())
        model = api.load_model(file, backends=backends)
        write(name, model, model.split([[after]]).stages, title)


def write(name: str, model: Any, stages: Any, title: str) -> None:
    picture = SplitGraph(model.graph, stages).draw(title)
    (FOLDER / f"{name}.svg").write_bytes(picture.render())


def row() -> Any:
    """Convolution, batch norm and relu, three times in a row."""
    layer = (
        "c{i} = Conv<pads=[1,1,1,1]>({x}, w{i})  "
        "b{i} = BatchNormalization(c{i}, scale{i}, bias{i}, mean{i}, var{i})  "
    )
    names, weights = ["x", "r0", "r1", "y"], dict[str, Any]()
    text = ""
    for i in range(3):
        text += layer.format(i=i, x=names[i]) + f"{names[i + 1]} = Relu(b{i})  "
        weights |= {f"w{i}": (4, 4, 3, 3), **nets.batch_norm(i)}
    return nets.net(f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {text} }}", weights)


if __name__ == "__main__":
    main()
