"""How every other Python interpreter is started.

Neither the current folder nor a relative entry of PYTHONPATH is searched for modules, so no file
beside a study can pose as a module of the standard library.
"""

from __future__ import annotations

import os
import sys


def python_command(*arguments: str) -> tuple[str, ...]:
    """The command line of this interpreter with ``arguments``; see ``child_environment``."""
    return (sys.executable, "-P", *arguments)


def child_environment() -> dict[str, str]:
    """The environment for a child process; it reaches the interpreters that the child starts."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    entries = environment.pop("PYTHONPATH", "").split(os.pathsep)
    absolute = [entry for entry in entries if os.path.isabs(entry)]
    if absolute:
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    return environment
