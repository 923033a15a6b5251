"""Run the stages of this folder in onnxruntime: python run.py < ITEMS > OUTPUTS.

Both are raw arrays: for each item its inputs, or its outputs, in the order of pipeline.json.
"""

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
WIRING = json.loads((FOLDER / "pipeline.json").read_text(encoding="utf-8"))
CPUINFO = Path("/proc/cpuinfo")
ITEM = np.dtype([(p["name"], p["dtype"], tuple(p["shape"])) for p in WIRING["inputs"]])

Items = queue.Queue[Any]


def run_stage(stage: dict[str, Any], items: Items, results: Items) -> None:
    """Take items from one queue, compute a stage and put the results into the next queue."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Without VNNI, sums of products of 8-bit numbers would saturate.
    if not (CPUINFO.exists() and "vnni" in CPUINFO.read_text()):
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = stage["session_options"]["intra_op_num_threads"]
    session = onnxruntime.InferenceSession(str(FOLDER / stage["filename"]), options)
    states = [s for s in WIRING["states"] if s["input"] in stage["inputs"]]
    left = {s["input"]: np.zeros(s["shape"], s["dtype"]) for s in states}
    while isinstance(item := items.get(), dict):
        tensors = item | left
        values = session.run(stage["outputs"], {name: tensors[name] for name in stage["inputs"]})
        item |= zip(stage["outputs"], values, strict=True)
        left = {s["input"]: item[s["output"]] for s in states}
        results.put(item)
    results.put(item)  # the end, or the error that ends the items


def read_items(items: Items) -> None:
    """Put the items of standard input into the first queue, and then the end."""
    try:
        put_items(items)
        items.put(None)
    except ValueError as error:  # the items before it are computed first
        items.put(error)


def put_items(items: Items) -> None:
    """Put the items into a queue. Raises ValueError for a wrong index, or a part of an item."""
    while data := sys.stdin.buffer.read(ITEM.itemsize):
        record = np.frombuffer(data, ITEM)[0]
        for port in WIRING["inputs"]:
            values, legal = record[port["name"]], port.get("range")
            for value in (values.min(), values.max()) if legal and values.size else ():
                if not legal[0] <= value <= legal[1]:
                    bounds = f"its values are {legal[0]} to {legal[1]}"
                    raise ValueError(f"input '{port['name']}' holds {value}; {bounds}")
        items.put({name: np.asarray(record[name], order="C") for name in ITEM.fields or ()})


def end(error: Any) -> None:
    """End the program where a thread fails: the others would wait for it for ever."""
    print(f"run.py: {error}", file=sys.stderr, flush=True)
    os._exit(1)


threading.excepthook = lambda failure: end(failure.exc_value)
queues: list[Items] = [queue.Queue(2) for _ in range(len(WIRING["pipeline"]) + 1)]
threading.Thread(target=read_items, args=(queues[0],), daemon=True).start()
for entry, *ends in zip(WIRING["pipeline"], queues, queues[1:], strict=False):
    ((name, stage),) = entry.items()
    if stage["replicas"] > 1:
        text = f"run.py runs one of {stage['replicas']} replicas of {name}; autosplit.load runs all"
        print(text, file=sys.stderr, flush=True)
    threading.Thread(target=run_stage, args=(stage, *ends), daemon=True).start()
while isinstance(item := queues[-1].get(), dict):
    for output in WIRING["outputs"]:
        sys.stdout.buffer.write(item[output["tensor"]].tobytes())
    sys.stdout.buffer.flush()  # since the next item may depend on these outputs
if item is not None:
    end(item)
