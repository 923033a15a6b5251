"""The result of a frontend: a Relax module whose variable names identify source tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARK = re.compile(r"src(\d+)_")
OPAQUE = "opaque_"  # begins the name of a function that ``main`` calls without having its code


def mark(index: int) -> str:
    """The Relax variable name that stands for source tensor number ``index``."""
    return f"src{index}_"


def marked(name: str) -> int | None:
    """The number of the source tensor that a variable name stands for, or None."""
    match = _MARK.match(name)
    return int(match[1]) if match else None


def unused(name: str, used: set[str], separator: str = ".") -> str:
    """``name``, or the first of ``name.2``, ``name.3`` and so on that is not in ``used``.

    The result is added to ``used``.
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
    """A state that the source itself keeps; ``initial`` is its initial value.

    ``name`` is its name in the source, empty where the source changes an input in place. ``input``
    and its successor ``output`` are an input and an output of the model.
    """

    name: str
    input: str
    output: str
    initial: Any = field(compare=False)


@dataclass(frozen=True)
class SourceNode:
    """A node of the source graph; ``name`` is unique, an unnamed node has the name of its output.

    ``modules`` are the modules of PyTorch that it lies in, such as "stages" and "stages.1".
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    modules: tuple[str, ...] = ()

    @property
    def unknown_size(self) -> str:
        """The message for a node whose result has no fixed size."""
        return (
            f"node '{self.name}' ({self.kind}) makes a tensor whose size depends on the data, and "
            "a split needs fixed sizes; replace the node, or leave it and what follows it out of "
            "the model"
        )


@dataclass(frozen=True)
class SourceModel:
    """A model as imported, from a file or an object.

    ``format`` is "onnx", "relax" or "torch"; ``program`` is torch's exported program, else None.
    ``onnx_model`` is the ONNX model that torch exported the program to, with the names of
    ``tensors``. ``module`` is an IRModule with the function ``main``; its variable ``mark(i)``
    holds ``tensors[i]``. ``alias`` maps a source tensor that is only another name of an earlier one
    to the earlier one; ``constants`` are the source tensors known without running the model. Names
    in ``inputs`` and ``outputs`` are the source's, in its order. ``tupled``: ``main`` returns a
    tuple even if it has one output. ``opaque`` maps each node that ``main`` calls without its code
    to the reason why TVM cannot compute it. ``states`` are those that the source itself keeps.
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
