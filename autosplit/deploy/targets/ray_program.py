"""A program that runs an export on a Ray cluster, and the places of its replicas to edit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from autosplit.deploy.manifest import Manifest

PLACEMENT, PROGRAM = "placement.json", "run.py"


def files(document: Manifest) -> Mapping[str, bytes]:
    """The program, and the place of each replica: where it was measured, or any node."""
    devices = [replica.device for stage in document.stages for replica in stage.replicas]
    places = [d if d.startswith("ray:") else f"ray:*/{d}" for d in devices]
    program = (Path(__file__).parent / "ray" / PROGRAM).read_bytes()
    return {PLACEMENT: (json.dumps(places, indent=1) + "\n").encode(), PROGRAM: program}
