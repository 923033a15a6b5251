"""The ONNX files of the nets that benchmarks run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autosplit.zoo import catalog
from studies.benchmarks import architectures
from tests import mobile_nets, user_nets

BUILT: Mapping[str, Callable[[], Any]] = {**user_nets.NETS, **mobile_nets.NETS}
# The first of architectures.drawn(60) that have at most 20 million parameters.
DRAWN = (
    "timm/convnext_atto_rms", "timm/tf_efficientnetv2_b1", "timm/resnet26t",
    "timm/mobilevitv2_150", "timm/iformer_l", "timm/mobilenetv1_100",
    "transformers/squeezebert", "transformers/mobilebert",
)  # fmt: skip


def model_file(net: str, folder: Path) -> Path:
    """The ONNX file of a net; one that is built for it goes into ``folder``.

    A net of ``architectures`` is exported by torch.
    """
    path = folder / f"{net.replace('/', '-')}.onnx"
    if "/" in net:
        import torch

        torch.onnx.export(architectures.exported(net), (), path, verbose=False)
    elif net in BUILT:
        path.write_bytes(BUILT[net]().SerializeToString())
    else:
        return catalog.cached(net)
    return path
