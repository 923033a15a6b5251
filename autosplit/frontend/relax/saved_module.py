"""Checks a Relax module against the allow-list, in the JSON of ``tvm.ir.save_json``.

TVM compiles and runs kernels as early as constant folding, so a kernel that calls the C library or
carries LLVM IR would run under ``inspect`` already. The check therefore comes before any pass. The
JSON lists every node of a module, however deep it lies.

A JSON file is checked before TVM loads it: its loader runs code for some node types, and follows
references that form a cycle until the process crashes. TVM is then given the checked document
written anew, so that both have read the same.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import tvm
from autosplit.frontend.relax.allow_list import (
    ANNOTATIONS,
    DTYPE,
    FUNCTION_ATTRIBUTES,
    NAME,
    NODE_TYPES,
    OP_ATTRIBUTES,
    OPS,
    SCHEDULE_RULE,
    SCOPES,
)

# Fields that hold a number themselves; every other integer is the index of a node.
_NUMBERS = frozenset(
    ("line", "column", "end_line", "end_column", "ndim", "index", "kind", "iter_type")
).union(("data_alignment", "offset_factor"))
_NULLABLE = frozenset(
    ("span", "attrs", "shape", "values", "params", "dtype", "vdevice", "derive_func", "layout")
).union(("init", "thread_binding", "step", "else_case"))
_MAX_DEPTH = 1000  # TVM walks a module recursively: what nests deeper overflows its stack
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_HANDLE = 3  # DLPack's code of a pointer
_TENSOR_HEADER = struct.Struct("<QQiiiBBH")


def require_harmless(module: Any) -> None:
    """Raise ModelError, naming the function and the thing, unless all of a module is listed."""
    try:
        text = tvm.ir.save_json(module)
    except Exception as error:
        raise ModelError(f"the module cannot be saved as JSON: {line_of(error)}") from error
    _Document(json.loads(text)).check()


def load_harmless(text: str) -> Any:
    """The object that ``tvm.ir.save_json`` wrote.

    Raises:
        ModelError: Something in it is not on the list.
        ValueError: The text is no such document, or TVM cannot read it.
    """
    importlib.import_module("tvm.relax")  # TVM knows the attributes of ops from then on
    try:
        document = json.loads(text)
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
        """Raise ModelError for the first node that is not on the list."""
        depths: list[int] = []
        for index, node in enumerate(self._nodes):
            depths.append(1 + max((depths[i] for i in self._references(index)), default=0))
            if depths[-1] > _MAX_DEPTH:
                raise ModelError(f"{self._owner(index)} nests more than {_MAX_DEPTH} levels deep")
            for thing in self._unlisted(node):
                raise ModelError(
                    f"{self._owner(index)} holds {thing}, which may run code; remove it"
                )
        self._check_module()

    def _check_module(self) -> None:
        if not self._module:
            return
        for name in self._functions:
            if not NAME.fullmatch(name):
                raise ModelError(f"function {name[:80]!r} has no identifier as its name; rename it")
        attributes = self._nodes[self._module["attrs"]]["data"]
        entries = (
            ("attribute", attributes["__dict__"] if attributes else None),
            ("global info", self._module["global_infos"]),
        )
        for kind, table in entries:
            for key, _ in self._pairs(table) if table is not None else ():
                thing = f"{kind} '{self._text(key)}'"
                raise ModelError(f"the module has the {thing}, which may run code; remove it")

    def _unlisted(self, node: Mapping[str, Any]) -> Iterator[str]:
        """What a node is or names that is not on the list."""
        kind: str = node["type"]
        data: Any = node.get("data")
        if kind == "relax.expr.ExternFunc":
            yield f"a call of the external function '{self._text(data['global_symbol'])}'"
        elif kind not in NODE_TYPES and not kind.startswith(OP_ATTRIBUTES):
            yield f"a node of type '{kind}'"
        elif kind == "ir.Op" and data not in OPS:
            yield f"a call of '{data}'"
        elif kind == "ir.PrimType" and not DTYPE.fullmatch(data["dtype"]):
            yield f"a value of type '{data['dtype']}'"
        elif kind == "ir.Call":
            yield from self._unlisted_call(data)
        elif kind == "tirx.AttrStmt":
            yield from self._unlisted_annotation(data["attr_key"], data["value"])
        elif kind == "tirx.BufferType":
            yield from self._unlisted_buffer(data)
        elif kind == "ffi.Tensor":
            _check_tensor(data)
        if kind in ("tirx.PrimFunc", "relax.expr.Function"):
            yield from self._unlisted_attributes(data["attrs"])
        if kind in ("s_tir.SBlock", "tirx.For"):
            for key, value in self._pairs(data["annotations"]):
                yield from self._unlisted_annotation(key, value)
        if kind == "s_tir.SBlock" and self._nodes[data["match_buffers"]]["data"]:
            yield "another view of a buffer (match_buffer)"

    def _unlisted_call(self, call: Mapping[str, Any]) -> Iterator[str]:
        callee = self._nodes[call["op"]]
        if callee["type"] == "ir.GlobalVar":
            name = self._text(callee["data"]["name_hint"])
            function = self._functions.get(name)
            if function is None or self._nodes[function]["type"] != "relax.expr.Function":
                yield f"a direct call of '{name}'"
        elif callee["type"] not in ("ir.Op", "relax.expr.ExternFunc"):
            yield f"a call of a {callee['type']}"
        elif callee["data"] == "relax.call_tir":
            kernel = self._nodes[self._nodes[call["args"]]["data"][0]]["type"]
            if kernel != "ir.GlobalVar":
                yield f"a call_tir of a {kernel}"

    def _unlisted_annotation(self, key: int, value: int) -> Iterator[str]:
        name = self._text(key)
        # MetaSchedule calls the function that is registered under the name of a schedule rule.
        if name not in ANNOTATIONS or (
            name == "schedule_rule" and not SCHEDULE_RULE.fullmatch(self._text(value))
        ):
            yield f"the attribute '{name}'"

    def _unlisted_attributes(self, attributes: int) -> Iterator[str]:
        table = (self._nodes[attributes].get("data") or {}).get("__dict__")
        for key, value in self._pairs(table) if table is not None else ():
            name = self._text(key)
            if name not in FUNCTION_ATTRIBUTES:
                yield f"the attribute '{name}'"
            elif name == "global_symbol" and not NAME.fullmatch(self._text(value)):
                yield f"the symbol {self._text(value)[:80]!r}"

    def _unlisted_buffer(self, buffer: Mapping[str, Any]) -> Iterator[str]:
        """A buffer must lie where TVM puts it: an offset or strides would reach other memory."""
        offset = self._nodes[buffer["elem_offset"]]
        if self._text(buffer["storage_scope"]) not in SCOPES:
            yield f"a buffer in the memory '{self._text(buffer['storage_scope'])}'"
        if offset["type"] == "ir.IntImm":
            offset = self._nodes[offset["data"]["value"]]
        # A variable is the offset of an argument, which the caller's tensor binds.
        if offset["type"] != "ir.Var" and offset["data"] != 0:
            yield "a buffer with an offset"
        for field in ("strides", "allocated_addr"):
            if self._nodes[buffer[field]]["data"]:
                yield f"a buffer with {field}"
        if self._nodes[buffer["layout"]]["type"] != "None":
            yield "a buffer with a layout"

    def _references(self, index: int) -> Iterator[int]:
        """The nodes that a node refers to. Each must come before it, so that none is in a cycle."""
        node = self._nodes[index]
        data: Any = node.get("data")
        fields: list[tuple[str, Any]] = []
        if node["type"] in ("ffi.Array", "ffi.Map"):
            fields = [("items", reference) for reference in data]
        elif isinstance(data, dict):
            numbers = _number_fields(node["type"])
            fields = [(f, v) for f, v in data.items() if f not in numbers and type(v) is int]
        for field, reference in fields:
            if not 0 <= reference < index:
                raise ValueError(f"node {index} refers to node {reference}, not to an earlier one")
            # TVM follows most references without a test for null.
            is_null = self._nodes[reference]["type"] == "None"
            if is_null and field not in _NULLABLE and not node["type"].startswith(OP_ATTRIBUTES):
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


@cache
def _number_fields(kind: str) -> frozenset[str]:
    """The fields of a node type that hold a number themselves and not the index of a node."""
    if not kind.startswith(OP_ATTRIBUTES):
        return _NUMBERS
    # TVM's reflection has no public way to the fields of a type that has no Python class.
    from tvm_ffi.core import _lookup_or_register_type_info_from_type_key as type_info

    schemas = {
        f.name: json.loads(f.metadata["type_schema"])["type"] for f in type_info(kind).fields
    }
    return frozenset(name for name, schema in schemas.items() if schema in ("int", "float"))


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
