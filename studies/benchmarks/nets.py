"""The ONNX files of the nets that benchmarks run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autosplit.zoo import catalog
from studies.benchmarks import architectures
from tests import mobile_nets, user_nets

BUILT: Mapping[str, Callable[[], Any]] = {**user_nets.NETS, **mobile_nets.NETS}


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
