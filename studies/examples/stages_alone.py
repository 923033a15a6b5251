"""Use the stages from a program of your own: split.json says how they are wired, TVM runs them;
autosplit is not needed.

    python studies/examples/stages_alone.py out/

Runs one item through the stages, one after the other in this process, and prints the outputs. A
program that spreads them over processes or machines sends each tensor along its connection: once to
every stage named in ``to``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

# A reader of this format may ignore fields it does not know, and must refuse another format.
FORMAT = 3


def main() -> int:
    folder = Path(sys.argv[1])
    split = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    if split["format"] != FORMAT:
        sys.exit(f"split.json has format {split['format']}, this program reads {FORMAT}")
    stages = [load(folder, stage) for stage in split["stages"]]
    item = {p["name"]: np.ones(p["shape"], p["dtype"]) for p in split["model"]["inputs"]}
    for name, array in run(split, stages, item).items():
        print(name, array.shape, f"{array.mean():.6f}")
    return 0


def load(folder: Path, stage: dict[str, Any]) -> Any:
    """The function of one stage, from the shared library that the split was exported with."""
    file = folder / stage["file"]
    if hashlib.sha256(file.read_bytes()).hexdigest() != stage["sha256"]:
        sys.exit(f"{file} is not the file that was exported")
    return relax.VirtualMachine(tvm.runtime.load_module(str(file)), tvm.cpu())["main"]


def run(
    split: dict[str, Any], stages: list[Any], item: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The model's outputs for one item.

    A stage takes its inputs in the order of its ``inputs`` and returns a tuple.
    """
    reads: list[dict[str, Any]] = [{} for _ in stages]
    outputs: dict[str, np.ndarray] = {}

    def deliver(value: Any, source: dict[str, Any]) -> None:
        for connection in split["connections"]:
            if connection["from"] == source:
                for reader in connection["to"]:
                    if "output" in reader:
                        outputs[reader["output"]] = value.numpy()
                    else:
                        reads[reader["stage"]][reader["input"]] = value

    for name, array in item.items():
        deliver(tvm.runtime.tensor(array), {"input": name})
    for index, (stage, function) in enumerate(zip(split["stages"], stages, strict=True)):
        results = function(*(reads[index][port["name"]] for port in stage["inputs"]))
        for number, value in enumerate(results):
            deliver(value, {"stage": index, "output": number})
    return outputs


if __name__ == "__main__":
    sys.exit(main())
