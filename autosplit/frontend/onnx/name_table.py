"""A name table for TVM's ONNX importer: keeps each tensor's name on the variable that holds it."""

from __future__ import annotations

from typing import Any

from autosplit.frontend.onnx import shape_arithmetic
from autosplit.frontend.source import mark


class NameTable(dict[str, Any]):
    """Source tensor to Relax expression; emits each converted value under the mark of its tensor.

    ``tensors`` are the marked tensors in order; see SourceModel for ``alias`` and ``constants``.
    Nothing is emitted before ``builder`` is set: until then the table takes inputs and weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.builder: Any = None
        self.tensors: list[str] = []
        self.alias: dict[str, str] = {}
        self.constants: set[str] = set()
        self._tensor_of: dict[str, str] = {}  # by the name of the Relax variable

    def __setitem__(self, tensor: str, value: Any) -> None:
        from tvm import relax

        super().__setitem__(tensor, self._marked(tensor, value) if self.builder else value)
        if not self.builder and isinstance(value, relax.Var):
            self._tensor_of[value.name] = tensor

    def _marked(self, tensor: str, value: Any) -> Any:
        from tvm import relax

        if isinstance(value, relax.Var) and value.name in self._tensor_of:
            self.alias[tensor] = self._tensor_of[value.name]
            return value
        value = shape_arithmetic.fixed_shape(value) or value
        if isinstance(value, relax.Tuple):
            return value  # a sequence, whose items have no names
        if not isinstance(value, relax.Call | relax.TupleGetItem | relax.Var):
            self.constants.add(tensor)
            return value
        value = self.builder.emit(value, name_hint=mark(len(self.tensors)))
        self.tensors.append(tensor)
        self._tensor_of[value.name] = tensor
        return value
