"""The value table of TVM's torch importer: checks each value and keeps the name of its tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.source import mark


class ValueTable(dict[Any, Any]):
    """Node of the rewritten graph to Relax expression; emits each under the mark of its tensor.

    See SourceModel for ``tensors``, ``alias`` and ``constants``. ``current`` is the node that is
    converted, as a message names it.
    """

    def __init__(self, importer: Any, tensor_of: Mapping[str, str]) -> None:
        super().__init__()
        self._importer = importer  # which makes its block builder when it begins
        self._tensor_of_node = tensor_of
        self.tensors: list[str] = []
        self.alias: dict[str, str] = {}
        self.constants: set[str] = set()
        self._tensor_of_variable: dict[Any, str] = {}
        self.current = ""

    def noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """``convert`` with a note of the node that it converts."""

        def noted(node: Any, *rest: Any) -> Any:
            self.current = f"'{self._tensor(node)}' ({node.target})"
            return convert(node, *rest)

        return noted

    def _tensor(self, node: Any) -> str:
        """The tensor of the program that a node of the rewritten graph makes."""
        return self._tensor_of_node.get(node.name, node.name)

    def __setitem__(self, node: Any, value: Any) -> None:
        from tvm import relax

        if node.op == "call_function":
            _require_shape(node, value)
            value = self._marked(self._tensor(node), _with_dtype(node, value))
        super().__setitem__(node, value)
        if node.op == "placeholder" and isinstance(value, relax.Var):
            self._tensor_of_variable[value] = node.name

    def _marked(self, tensor: str, value: Any) -> Any:
        from tvm import relax

        if isinstance(value, relax.Var) and value in self._tensor_of_variable:
            # The importer enters some values twice.
            if self._tensor_of_variable[value] != tensor:
                self.alias[tensor] = self._tensor_of_variable[value]
            return value
        if not isinstance(value, relax.Expr) or not _is_tensor(value):
            return value
        if not isinstance(value, relax.Var | relax.Call | relax.TupleGetItem):
            self.constants.add(tensor)
            return value
        value = self._importer.block_builder.emit(value, name_hint=mark(len(self.tensors)))
        self.tensors.append(tensor)
        self._tensor_of_variable[value] = tensor
        return value


def _is_tensor(value: Any) -> bool:
    from tvm import relax

    return isinstance(getattr(value, "ty", None), relax.TensorType)


def _with_dtype(node: Any, value: Any) -> Any:
    """A result in torch's type.

    One that the importer computed in float32 is rounded, any other difference is a misreading.
    """
    from tvm import relax

    torch_dtype = getattr(node.meta.get("val"), "dtype", None)
    if torch_dtype is None or not _is_tensor(value) or value.ty.dtype is None:
        return value
    expected, dtype = str(torch_dtype).removeprefix("torch."), str(value.ty.dtype)
    if expected == dtype:
        return value
    if expected in ("float16", "bfloat16") and dtype == "float32":
        return relax.op.astype(value, expected)
    raise ModelError(f"its type is {expected} in torch but {dtype} in TVM")


def _require_shape(node: Any, value: Any) -> None:
    """Raise ModelError for a result of another shape than torch's, which is a misreading."""
    expected = getattr(node.meta.get("val"), "shape", None)
    sizes = getattr(getattr(getattr(value, "ty", None), "shape", None), "values", None)
    if expected is None or sizes is None:
        return
    differs = len(expected) != len(sizes)
    for torch_size, size in zip(expected, sizes, strict=False):
        if isinstance(torch_size, int) and hasattr(size, "value"):
            differs = differs or torch_size != int(size.value)
    if differs:
        shape = [getattr(size, "value", size) for size in sizes]
        raise ModelError(f"its shape is {list(expected)} in torch but {shape} in TVM")
