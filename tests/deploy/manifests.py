"""A small manifest: three stages, a tensor that skips one, an output that is read too."""

import copy
import hashlib
import json
import platform


def port(name, shape=(2, 3), dtype="float32"):
    return {"name": name, "shape": list(shape), "dtype": dtype}


def stage(index, inputs, outputs):
    return {
        "index": index,
        "file": f"stage{index}.so",
        "ops": [{"name": f"op{index}", "sources": []}],
        "device": "cores:0",
        "replicas": [{"device": "cores:0"}],
        "sha256": "0" * 64,
        "inputs": [port(name) for name in inputs],
        "outputs": [port(name) for name in outputs],
    }


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


def sound():
    """A copy to change."""
    return copy.deepcopy(SOUND)


def write_stages(folder):
    """The stage files; each holds its name."""
    for entry in SOUND["stages"]:
        (folder / entry["file"]).write_text(entry["file"])
    return folder


def digest(content):
    return hashlib.sha256(content.encode()).hexdigest()


def write_export(folder, name):
    """An export of ONNX stages whose files, called ``name`` with a number, hold their names."""
    folder.mkdir(exist_ok=True)
    document = sound() | {"environment": {"architecture": platform.machine()}}
    for index, entry in enumerate(document["stages"]):
        file = name.format(index)
        entry.update(runtime="onnxruntime", file=file, sha256=digest(file))
        (folder / file).write_text(file)
    (folder / "split.json").write_text(json.dumps(document))
    return folder
