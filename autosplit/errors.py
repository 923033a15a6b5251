"""The errors of autosplit: one class hierarchy, with messages of one line.

Every message names what is wrong, its value and the remedy. ``exit_code`` is the exit code of the
command line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

__all__ = [
    "AutosplitError",
    "ConfigError",
    "GraphError",
    "Infeasible",
    "MachineError",
    "MismatchError",
    "ModelError",
    "SplitError",
    "StageError",
]


class AutosplitError(Exception):
    """Base of every error a user can act on.

    Its text is one line; ``log`` is what the failed process printed last.
    """

    exit_code = 2
    log = ""

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
    """A question that is valid, but has no solution."""

    exit_code = 1


class StageError(AutosplitError):
    """A stage failed while the pipeline ran; the cause is chained."""

    exit_code = 1


class MismatchError(StageError):
    """Outputs that differ from the reference by more than the tolerance."""


class MachineError(AutosplitError):
    """A package, disk, storage or device that is missing or broken."""

    exit_code = 3


def nearest(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown ``name``: the known ones that are spelled most like it, if any."""
    import difflib  # late, since `import autosplit` should cost nothing

    by_lower = {k.lower(): k for k in known}
    similar = difflib.get_close_matches(name.lower(), by_lower, 3)
    similar = similar or [lower for lower in by_lower if name.lower() in lower][:3]
    if not similar:
        return ""
    return f"; did you mean {' or '.join(repr(by_lower[lower]) for lower in similar)}?"


def line_of(error: BaseException, last: bool = False) -> str:
    """The first line of an error's text, or the last; the name of its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1 if last else 0] if lines else type(error).__name__


@contextlib.contextmanager
def explained(kind: type[AutosplitError], problem: str, last: bool = True) -> Iterator[None]:
    """Raise any error of the block, such as one of a library, as ``kind`` with one line of text."""
    try:
        yield
    except Exception as error:
        raise kind(f"{problem}: {line_of(error, last)}") from error
