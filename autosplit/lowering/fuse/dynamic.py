"""Shapes that depend on the data: a split needs every size before the model runs."""

from __future__ import annotations

from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax.main_function import bindings
from autosplit.frontend.source import SourceModel, marked
from autosplit.lowering.fuse.amounts import tensor_types


def require_static(source: SourceModel, module: Any, folded: bool) -> None:
    """Raises ModelError naming the first node of ``source`` that makes a tensor of unknown size in ``main`` of ``module``.

    All sizes of the inputs are known by then, so only values can decide about others (NonZero, Compress, Range). Before
    constants are ``folded``, sizes that are expressions may still become numbers.
    """
    found = bindings(module["main"])
    if not folded and not any(kind.shape is None for b in found for kind in tensor_types(b.var.ty)):
        return
    unknown = False
    for binding in found:
        unknown = unknown or any(map(_is_dynamic, tensor_types(binding.var.ty)))
        index = marked(binding.var.name) if unknown else None
        maker = next(
            (n for n in source.nodes if index is not None and source.tensors[index] in n.outputs),
            None,
        )
        if maker:
            raise ModelError(
                f"node '{maker.name}' ({maker.kind}) makes a tensor whose size depends on the data, and a split needs fixed "
                "sizes; replace the node, or leave it and what follows it out of the model"
            )


def _is_dynamic(kind: Any) -> bool:
    sizes = getattr(kind.shape, "values", None)
    return sizes is None or not all(hasattr(size, "value") for size in sizes)
