"""The ONNX files of the nets that benchmarks run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autosplit.zoo import catalog
from tests import mobile_nets, user_nets

BUILT: Mapping[str, Callable[[], Any]] = {**user_nets.NETS, **mobile_nets.NETS}


def model_file(net: str, folder: Path) -> Path:
    """The ONNX file of a net; one that is built for it goes into ``folder``."""
    if net not in BUILT:
        return catalog.cached(net)
    path = folder / f"{net}.onnx"
    path.write_bytes(BUILT[net]().SerializeToString())
    return path
