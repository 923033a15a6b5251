"""The command line of autosplit on simulated hardware, which the first arguments describe."""

import json
import sys
from typing import Any

from autosplit.cli import main as autosplit
from autosplit.serialization import load
from studies.simulation.bench import Hardware, simulated


def main(arguments: list[str]) -> int:
    """Run the command line; its exit code."""
    values: dict[str, Any] = {}
    while arguments and "=" in arguments[0]:
        key, _, value = arguments.pop(0).partition("=")
        values[key] = json.loads(value)
    with simulated(load(Hardware, values)):
        return autosplit(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
