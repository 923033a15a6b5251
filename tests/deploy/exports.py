"""Exports to damage, the splits that they are of, and a small manifest.

The manifest has three stages, a tensor that skips one, and an output that is read too.
"""

import hashlib
import json
import platform
from functools import reduce
from operator import getitem

from autosplit.api import Split
from autosplit.deploy import manifest_file
from autosplit.deploy.targets.formats import write_program
from autosplit.deployment import Deployment, Stage
from autosplit.files import sha256
from autosplit.frontend.samples import random_items


class Export:
    """An exported folder and its manifest."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "split.json"

    @property
    def document(self):
        return dict(json.loads(self.file.read_text(encoding="utf-8")))

    def edit(self, change):
        """Rewrite the manifest with ``change(document)`` done to it."""
        document = self.document
        change(document)
        self.file.write_text(json.dumps(document), encoding="utf-8")

    def sign(self, stage):
        """Record the digest the stage's file has now."""
        file = self.folder / f"stage{stage}.so"
        self.edit(lambda d: d["stages"][stage].update(sha256=sha256(file)))


def swap_sources(document, first, second):
    """Let two tensors come from where the other one comes from."""
    names = {first: second, second: first}
    for port in (port for stage in document["stages"] for port in stage["outputs"]):
        port["name"] = names.get(port["name"], port["name"])
    connections = document["connections"]
    one, other = (next(c for c in connections if c["tensor"] == name) for name in names)
    places = connections.index(one), connections.index(other)
    one["from"], other["from"] = other["from"], one["from"]
    connections[places[0]], connections[places[1]] = other, one


def add_program(folder, name):
    """Add to an export the program of a format."""
    write_program(manifest_file.read(folder), folder, name)


def sample_items(document, count, seed):
    """Random items for the inputs of an export."""
    inputs = [(p.name, p.shape, p.dtype) for p in document.model.inputs]
    return random_items(inputs, count, seed, document.model.integers_below)


def split_on(model, after, *where):
    """A split whose stages have a runtime, the devices of their replicas, and perhaps a batch."""
    stages = zip(model.split(after).stages, where, strict=True)
    return Split.of(model, Deployment(tuple(Stage.on(ops, *how) for ops, how in stages)))


def port(name, shape=(2, 3), dtype="float32"):
    return {"name": name, "shape": list(shape), "dtype": dtype}


def stage(index, inputs, outputs):
    document = {"index": index, "file": f"stage{index}.so", "sha256": "0" * 64}
    document |= {"device": "cores:0", "replicas": [{"device": "cores:0"}]}
    document["ops"] = [{"name": f"op{index}", "sources": []}]
    return document | {"inputs": list(map(port, inputs)), "outputs": list(map(port, outputs))}


def tensor(name, source, *to):
    return {"tensor": name, "bytes": 24, "from": source, "to": list(to)}


SOUND = {
    "format": 3,
    "batch": 1,
    "model": {
        "name": "net",
        "sha256": "f" * 64,
        "inputs": [port("x")],
        "outputs": [port("b"), port("y")],
    },
    "stages": [
        stage(0, ["x"], ["a", "b"]),
        stage(1, ["a", "x"], ["c"]),
        stage(2, ["b", "c"], ["y"]),
    ],
    "connections": [
        tensor("x", {"input": "x"}, {"stage": 0, "input": "x"}, {"stage": 1, "input": "x"}),
        tensor("a", {"stage": 0, "output": 0}, {"stage": 1, "input": "a"}),
        tensor("b", {"stage": 0, "output": 1}, {"stage": 2, "input": "b"}, {"output": "b"}),
        tensor("c", {"stage": 1, "output": 0}, {"stage": 2, "input": "c"}),
        tensor("y", {"stage": 2, "output": 0}, {"output": "y"}),
    ],
    "environment": {},
}


def sound(dtype="float32"):
    """A copy to change, perhaps of another element type."""
    return json.loads(json.dumps(SOUND).replace("float32", dtype))


def put(document, place, value):
    """Set the value at a place like ``stages.0.file``, even past the end of a list; ... removes."""
    *path, last = (int(part) if part.isdigit() else part for part in place.split("."))
    holder = reduce(getitem, path, document)
    if value is ...:
        del holder[last]
    elif isinstance(holder, list):
        holder[last : last + 1] = [value]
    else:
        holder[last] = value
    return document


def digest(content):
    return hashlib.sha256(content.encode()).hexdigest()


def write_export(folder, name, runtime):
    """An export whose stage files, called ``name`` with a number, hold their names."""
    folder.mkdir(exist_ok=True)
    document = sound() | {"environment": {"architecture": platform.machine()}}
    for index, entry in enumerate(document["stages"]):
        file = name.format(index)
        entry.update(runtime=runtime, file=file, sha256=digest(file))
        (folder / file).write_text(file)
    (folder / "split.json").write_text(json.dumps(document))
    return folder


def add_state(document, name="h", renewed="n", **fields):
    """Give stage 1 a state that goes from its output ``renewed`` to its input ``name``."""
    stage = document["stages"][1]
    stage["inputs"].append(port(name))
    stage["outputs"].append(port(renewed))
    stage["states"] = [port(name) | {"input": name, "output": renewed} | fields]
    document["model"]["states"] = {name: renewed}
