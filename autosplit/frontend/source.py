"""What a frontend returns: a Relax module whose variables tell which source tensor they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = re.compile(r"src(\d+)_")
OPAQUE = "opaque_"
"""The beginning of the name of a function whose code ``main`` calls without having it."""


def mark(index: int) -> str:
    """The Relax variable name that stands for source tensor number ``index``."""
    return f"src{index}_"


def marked(name: str) -> int | None:
    """The number of the source tensor that a variable name stands for, or None."""
    match = _MARK.match(name)
    return int(match[1]) if match else None


def unused(name: str, used: set[str], separator: str = ".") -> str:
    """``name``, or the first of ``name.2``, ``name.3`` and so on that is not in ``used``.

    It is added to ``used``.
    """
    number, unused_name = 2, name
    while unused_name in used:
        unused_name, number = f"{name}{separator}{number}", number + 1
    used.add(unused_name)
    return unused_name


@dataclass(frozen=True)
class Signature:
    """A model input: name, static shape, dtype as numpy spells it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class SourceState:
    """A state that the source itself keeps, under a ``name`` of its own, from ``initial`` on.

    The name is empty where the source changes an input in place. Its ``input`` and its successor
    ``output`` are among those of the model.
    """

    name: str
    input: str
    output: str
    initial: Any = field(compare=False)


@dataclass(frozen=True)
class SourceNode:
    """A node of the source graph; ``name`` is unique, an unnamed node has that of its output.

    ``modules`` are the modules of PyTorch that it lies in, such as "stages" and "stages.1".
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    modules: tuple[str, ...] = ()

    @property
    def unknown_size(self) -> str:
        """The message for a node with a result that has no fixed size."""
        return (
            f"node '{self.name}' ({self.kind}) makes a tensor whose size depends on the data, and "
            "a split needs fixed sizes; replace the node, or leave it and what follows it out of "
            "the model"
        )


@dataclass(frozen=True)
class SourceModel:
    """A model as imported, from a file or an object.

    ``format`` is "onnx", "relax" or "torch"; ``program`` is torch's exported program, else None.
    ``onnx_model`` is the ONNX model that torch made of it, in the names of ``tensors``.
    ``module`` is an IRModule with the function ``main``; a variable of it called ``mark(i)`` holds
    ``tensors[i]``. ``alias`` maps a source tensor that is only another name of an earlier one to
    that one; ``constants`` are the source tensors known without running the model. Names in
    ``inputs`` and ``outputs`` are the source's, in its order. ``tupled``: ``main`` returns a tuple
    even if it has one output. ``opaque``: by the name of a node that ``main`` calls without its
    code, why TVM cannot compute it. ``states``: those that the source itself keeps.
    """

    name: str
    module: Any
    nodes: tuple[SourceNode, ...]
    tensors: tuple[str, ...]
    alias: Mapping[str, str]
    constants: frozenset[str]
    inputs: tuple[Signature, ...]
    outputs: tuple[str, ...]
    tupled: bool = False
    format: str = "onnx"
    program: Any = None
    opaque: Mapping[str, str] = field(default_factory=dict)
    onnx_model: Any = None
    states: tuple[SourceState, ...] = ()
