"""Run an exported split on items from standard input, on this machine or on a Ray cluster.

autosplit serve out/ < items.raw > outputs.raw
autosplit serve out/ --ray 10.0.0.2:6379 --devices "ray:10.0.0.2/cores:0 ray:10.0.0.3/cores:0-1"

Items and outputs are raw arrays in the order of the model's inputs and outputs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.cli import options
from autosplit.errors import ConfigError

if TYPE_CHECKING:
    from autosplit.hardware.execution.pipeline import Pipeline

HELP = "run an exported split on items from standard input, also on a Ray cluster"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder written by export")
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on the Ray cluster at ADDRESS (default: the one this machine belongs to)",
    )
    parser.add_argument(
        "--devices", metavar="LIST", help="one a replica; with --ray as in ray:NODE/cores:0-3"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    from autosplit.deploy import load
    from autosplit.deploy.raw_items import serve, standard_input

    devices = options.devices(args.devices)
    pipeline: Pipeline
    if args.format == "json":
        raise ConfigError("serve writes raw arrays; leave -f json out")
    if args.ray is None and any(device.startswith("ray:") for device in devices):
        raise ConfigError(f"--devices {args.devices} is on Ray; add --ray or --ray HOST:PORT")
    if args.ray is None:
        pipeline = load.load(args.folder, devices)
    else:
        pipeline = load.on_ray(args.folder, devices, args.ray or None)
    with pipeline:
        serve(pipeline, standard_input(), sys.stdout.buffer)
    return 0
