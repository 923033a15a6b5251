"""Reads the JSON of ``tvm.ir.save_json`` and refuses anything that may run code unless trusted.

TVM compiles and runs kernels as early as constant folding, so a module that brings its own kernels
is code. A module whose functions are only Relax ops is data. Its JSON is checked before TVM loads
it: the loader runs code for some node types, and follows references that form a cycle until the
process crashes. TVM loads the checked document serialised anew, so that both have read the same.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from autosplit.errors import ModelError, explained, line_of
from autosplit.extras import tvm

_DATA_NODES = """
    None DataType bool int float ffi.Array ffi.BigInt ffi.Map ffi.Shape ffi.String ffi.Tensor
    ir.Call ir.DictAttrs ir.FloatImm ir.GenericConst ir.GlobalVar ir.IRModule ir.IntImm ir.Op
    ir.PrimType ir.SequentialSpan ir.SourceMap ir.SourceName ir.Span ir.StringImm ir.StringType
    ir.Tuple ir.TupleGetItem ir.TupleType ir.Var prim.Add prim.And prim.Cast prim.Div prim.EQ
    prim.FloorDiv prim.FloorMod prim.GE prim.GT prim.LE prim.LT prim.Max prim.Min prim.Mod prim.Mul
    prim.NE prim.Not prim.Or prim.Select prim.Sub relax.AnyType relax.FuncType relax.ShapeType
    relax.TensorType relax.expr.BindingBlock relax.expr.DataflowBlock relax.expr.DataflowVar
    relax.expr.Function relax.expr.If relax.expr.MatchCast relax.expr.SeqExpr relax.expr.ShapeExpr
    relax.expr.VarBinding tirx.IndexMap tirx.IterVar ir.Range
"""
_NODE_TYPES = frozenset(_DATA_NODES.split())
# Attributes of ops are numbers, strings and index maps; the list of ops decides what they do.
_OP_ATTRIBUTES = "relax.attrs."
# An op in these namespaces only computes if TVM lowers it to a kernel, or if it is in _COMPUTING.
# All other ops call functions by their names, print, or access memory.
_NAMESPACES = ("", "image", "nn", "vision")
_COMPUTING = frozenset((
    "argsort", "cumprod", "cumsum", "ewise_fma", "multinomial_from_uniform", "nonzero", "shape_of",
    "sort", "tensor_to_shape", "topk", "unique",
))  # fmt: skip
_FUNCTION_ATTRIBUTES = ("Primitive", "global_symbol", "num_input", "relax.force_pure")
_DTYPE = re.compile(r"(|bool|void|u?int\d{1,2}|float\d{1,2}|bfloat16|float[468]_\w+)")
_NAME = re.compile(r"[A-Za-z_][\w.]{0,199}", re.ASCII)
# Fields that hold a number themselves; every other integer is the index of a node.
_NUMBERS = (
    "line", "column", "end_line", "end_column", "ndim", "index", "kind", "iter_type", "is_pure",
    "purity",
)  # fmt: skip
_NULLABLE = ("span", "attrs", "shape", "values", "params", "dtype", "vdevice", "derive_func")
_MAX_DEPTH = 1000  # TVM walks a module recursively: what nests deeper overflows its stack
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_HANDLE = 3  # DLPack's type code of pointers
_TENSOR_HEADER = struct.Struct("<QQiiiBBH")


def require_data(module: Any) -> None:
    """Raise ModelError, naming function and cause, unless a module has only Relax ops."""
    with explained(ModelError, "the module cannot be saved as JSON", last=False):
        text = tvm.ir.save_json(module)
    _Document(json.loads(text)).check()


def load(text: str, *, trust_kernels: bool = False) -> Any:
    """The object that ``tvm.ir.save_json`` wrote; a trusted text is not checked.

    Raises:
        ModelError: It may run code, and is not trusted.
        ValueError: The text is not such a document, or TVM cannot read it.
    """
    importlib.import_module("tvm.relax")  # registers the attributes of ops in TVM
    try:
        document = json.loads(text)
        if not trust_kernels:
            _Document(document).check()
    except (RecursionError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(line_of(error)) from error
    try:
        return tvm.ir.load_json(json.dumps(document))
    except Exception as error:  # TVM raises whatever Python type fits its own error
        raise ValueError(line_of(error)) from error


class _Document:
    """A saved module: nodes that refer to earlier nodes by their index."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._nodes: list[dict[str, Any]] = document["nodes"]
        root = self._nodes[document["root_index"]]
        self._functions: dict[str, int] = {}
        self._module: dict[str, Any] = {}
        if root["type"] == "ir.IRModule":
            self._module = root["data"]
            for name, function in self._pairs(self._module["functions"]):
                self._functions[self._text(self._nodes[name]["data"]["name_hint"])] = function

    def check(self) -> None:
        """Raise ModelError for the first node that is not allowed, or nests too deep."""
        for name, function in self._functions.items():
            if not _NAME.fullmatch(name):
                raise ModelError(f"function {name[:80]!r} has no identifier as its name; rename it")
            if self._nodes[function]["type"] == "tirx.PrimFunc":
                raise _code(f"the kernel '{name}' of its own")
        depths: list[int] = []
        for index, node in enumerate(self._nodes):
            depths.append(1 + max((depths[i] for i in self._references(index)), default=0))
            if depths[-1] > _MAX_DEPTH:
                raise ModelError(f"{self._owner(index)} nests more than {_MAX_DEPTH} levels deep")
            for thing in self._code(node):
                raise _code(f"{thing} in {self._owner(index)}")
        for thing in self._code_of_module():
            raise _code(thing)

    def _code_of_module(self) -> Iterator[str]:
        if self._module:
            attributes = self._nodes[self._module["attrs"]].get("data") or {}
            for table in (attributes.get("__dict__"), self._module["global_infos"]):
                for key, _ in self._pairs(table) if table is not None else ():
                    yield f"the attribute '{self._text(key)}'"

    def _code(self, node: Mapping[str, Any]) -> Iterator[str]:
        """Describe what a node is or names that is not allowed."""
        kind: str = node["type"]
        data: Any = node.get("data")
        if kind == "relax.expr.ExternFunc":
            yield f"a call of the external function '{self._text(data['global_symbol'])}'"
        elif kind not in _NODE_TYPES and not kind.startswith(_OP_ATTRIBUTES):
            yield f"a node of type '{kind}'"
        elif kind == "ir.Op" and not _computes(data):
            yield f"a call of '{data}'"
        elif kind == "ir.PrimType" and not _DTYPE.fullmatch(data["dtype"]):
            yield f"a value of type '{data['dtype']}'"
        elif kind == "ir.Call":
            callee = self._nodes[data["op"]]["type"]
            if callee not in ("ir.Op", "ir.GlobalVar"):
                yield f"a call of a {callee}"
        elif kind == "ffi.Tensor":
            _check_tensor(data)
        elif kind == "relax.expr.Function":
            table = (self._nodes[data["attrs"]].get("data") or {}).get("__dict__")
            for key, value in self._pairs(table) if table is not None else ():
                name = self._text(key)
                is_named = name != "global_symbol" or _NAME.fullmatch(self._text(value))
                if name not in _FUNCTION_ATTRIBUTES or not is_named:
                    yield f"the attribute '{name}'"

    def _references(self, index: int) -> Iterator[int]:
        """The nodes that a node refers to. Each must precede it, which rules out cycles."""
        node = self._nodes[index]
        data: Any = node.get("data")
        fields: list[tuple[str, Any]] = []
        if node["type"] in ("ffi.Array", "ffi.Map"):
            fields = [("items", reference) for reference in data]
        elif isinstance(data, dict):
            numbers = _number_fields(node["type"])
            # TVM takes true for node 1 and false for node 0.
            fields = [(f, v) for f, v in data.items() if f not in numbers and isinstance(v, int)]
        for field, reference in fields:
            if not 0 <= reference < index:
                raise ValueError(f"node {index} refers to node {reference}, not to an earlier one")
            # TVM follows most references without a test for null.
            is_null = self._nodes[reference]["type"] == "None"
            if is_null and field not in _NULLABLE and not node["type"].startswith(_OP_ATTRIBUTES):
                raise ValueError(f"node {index} has nothing as its {field}")
            yield reference

    def _owner(self, index: int) -> str:
        """The function that a node belongs to: the first that ends at the node or after it."""
        later = [(end, name) for name, end in self._functions.items() if end >= index]
        return f"function '{min(later)[1]}'" if later else "the module"

    def _pairs(self, table: int) -> Iterator[tuple[int, int]]:
        items = self._nodes[table]["data"]
        return zip(items[::2], items[1::2], strict=True)

    def _text(self, index: int) -> str:
        node = self._nodes[index]
        if node["type"] != "ffi.String":
            raise ValueError(f"node {index} is a {node['type']}, not a text")
        return str(node["data"])


def _computes(op: str) -> bool:
    """Whether an operator of Relax does nothing but compute."""
    namespace, _, name = op.removeprefix("relax.").rpartition(".")
    if op not in tvm.ir.Op.list_op_names() or not op.startswith("relax."):
        return False
    is_lowered = tvm.ir.Op.get(op).get_attr("FLegalize") is not None
    return namespace in _NAMESPACES and (is_lowered or name in _COMPUTING)


def _code(thing: str) -> ModelError:
    return ModelError(
        f"the module has {thing}, which is code; if you trust it, give --trust-kernels, "
        "in Python trust_kernels=True"
    )


@cache
def _number_fields(kind: str) -> Collection[str]:
    """The fields of a node type that hold a number themselves and not the index of a node."""
    if not kind.startswith(_OP_ATTRIBUTES):
        return _NUMBERS
    # TVM's reflection has no public way to the fields of a type that has no Python class.
    from tvm_ffi.core import _lookup_or_register_type_info_from_type_key as type_info

    fields = type_info(kind).fields
    types = {f.name: json.loads(f.metadata["type_schema"])["type"] for f in fields}
    return frozenset(f for f, type_name in types.items() if type_name in ("int", "float", "bool"))


def _check_tensor(data: str) -> None:
    """Raise ValueError unless a tensor's header agrees with its data: TVM trusts the header."""
    content = base64.b64decode(data, validate=True)
    header = _TENSOR_HEADER.unpack_from(content)
    magic, _, device, device_id, ndim, code, bits, lanes = header
    start = _TENSOR_HEADER.size
    on_cpu = (device, device_id) == (1, 0)
    if magic != _TENSOR_MAGIC or not on_cpu or not 0 <= ndim <= 64 or code == _HANDLE:
        raise ValueError("a tensor has a damaged header")
    *shape, size = struct.unpack_from(f"<{ndim + 1}q", content, start)
    expected = math.prod(shape) * ((bits * lanes + 7) // 8)
    remaining = len(content) - start - 8 * (ndim + 1)
    if min(shape, default=0) < 0 or size != expected or size != remaining:
        raise ValueError("a tensor has other data than its shape says")
