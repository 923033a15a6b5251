"""The errors of autosplit: one tree, one line each.

Every message names the thing, the value found and the remedy. ``exit_code`` is what the command line returns.
"""

from __future__ import annotations


class AutosplitError(Exception):
    """Base of every error a user can act on; its text is one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ModelError(AutosplitError):
    """A model file or a graph that cannot be read, imported or lowered."""


class GraphError(AutosplitError):
    """A cost graph that is malformed: a cycle, an unknown id, an impossible cost."""


class SplitError(AutosplitError):
    """A split that is not legal: an unknown op, an empty stage, cuts that do not nest."""


class ConfigError(AutosplitError):
    """A study file, an option or a manifest with a value that cannot be used."""


class Infeasible(AutosplitError):
    """The question is well put, but nothing satisfies it."""

    exit_code = 1


class StageError(AutosplitError):
    """A stage failed while the pipeline ran; the cause is chained."""

    exit_code = 1


class MachineError(AutosplitError):
    """A package, disk, storage or device that is missing or broken."""

    exit_code = 3
