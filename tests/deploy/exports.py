"""An exported split to damage: a copy of one that was made once."""

import hashlib
import json

from autosplit.api import Split
from autosplit.deploy import manifest_file
from autosplit.deploy.targets.formats import write_program
from autosplit.deployment import Deployment, Stage


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
        digest = hashlib.sha256((self.folder / f"stage{stage}.so").read_bytes()).hexdigest()
        self.edit(lambda d: d["stages"][stage].update(sha256=digest))

    def sign_reference(self):
        """Record the digest the reference outputs have now."""
        digest = hashlib.sha256((self.folder / "reference.npz").read_bytes()).hexdigest()
        self.edit(lambda d: d["reference"].update(sha256=digest))


def swap_sources(document, first, second):
    """Let two tensors come from where the other one comes from."""
    of = {c["tensor"]: c for c in document["connections"]}
    of[first]["from"], of[second]["from"] = of[second]["from"], of[first]["from"]


def add_program(folder, name):
    """Add to an export the program of a format."""
    write_program(manifest_file.read(folder), folder, name)


def split_on(model, after, *where):
    """A split whose stages have a runtime, the devices of their replicas, and perhaps a batch."""
    stages = zip(model.split(after).stages, where, strict=True)
    return Split.of(model, Deployment(tuple(Stage.on(ops, *how) for ops, how in stages)))
