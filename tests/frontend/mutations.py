"""Damaged model files: random changes of a sound one, alike for the same seed."""

import copy
import io
import json
import random
import zipfile

NUMBERS = (0, 1, -1, 2, 7, 29, 255, 1 << 20, 1 << 31, -(1 << 31), 1 << 40, 1 << 62, -(1 << 63))
TEXTS = ("", "x", "y", "w", "main", "a b", "é", "\u202e", "\n", "\x00", "a" * 3000, "%s{}", "../x")
OTHERS = (None, True, False, 0.5, float("nan"), float("inf"), [], {}, [0], "\ud800")


def bytes_changed(content, rng):
    """One to four bytes set, inserted or removed."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) or 1)
        # A slice of no or one byte becomes one of no or one byte.
        changed[place : place + rng.randrange(2)] = rng.randbytes(rng.randrange(2))
    return bytes(changed)


def message_changed(content, rng):
    """An ONNX model with a few fields of its messages changed, by its form in JSON."""
    import onnx
    from google.protobuf import json_format

    text = json_format.MessageToJson(onnx.load_model_from_string(content))
    while True:
        try:
            changed = json_format.Parse(json_changed(text.encode(), rng), onnx.ModelProto())
            return bytes(changed.SerializeToString())
        # protobuf itself refuses the change
        except (json_format.Error, ValueError, TypeError, AttributeError):
            pass


def json_changed(content, rng):
    """JSON with one to three values changed, anywhere in it; texts to others that stand there."""
    document = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        containers = _containers(document)
        container = rng.choice(containers)
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            continue
        key = rng.choice(keys)
        if rng.random() < 0.25:
            del container[key]
            continue
        values = [v for c in containers if isinstance(c, dict) for v in c.values()]
        texts = [v for v in values if isinstance(v, str)]
        near = [container[key] + 1] if type(container[key]) is int else []
        choices = ((*NUMBERS, *near), (*TEXTS, *texts), OTHERS, (rng.choice(containers),))
        container[key] = copy.deepcopy(rng.choice(rng.choice(choices)))
    return json.dumps(document).encode()


def _containers(document):
    stack, containers = [document], []
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            containers.append(value)
            stack += value.values() if isinstance(value, dict) else value
    return containers


def archive_changed(content, rng):
    """A zip archive with a member changed, or its own bytes."""
    if rng.random() < 0.2:
        return bytes_changed(content, rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = old.namelist()
        members = [n for n in names if n.endswith(".json")]
        target = rng.choice(members) if rng.random() < 0.9 else rng.choice(names)
        for name in names:
            data = old.read(name)
            if name == target and data:
                changed = json_changed if name.endswith(".json") else bytes_changed
                data = changed(data, rng)
            new.writestr(name, data)
    return buffer.getvalue()


CHANGES = {
    ".onnx": (bytes_changed, message_changed),
    ".json": (json_changed, json_changed, bytes_changed),
    ".pt2": (archive_changed,),
}


def damaged(suffix, content, seed):
    """The file ``content`` with the changes of a seed."""
    rng = random.Random(f"{suffix}{seed}")
    return rng.choice(CHANGES[suffix])(content, rng)
