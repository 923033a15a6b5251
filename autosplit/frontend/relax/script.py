"""Reading TVMScript that nobody vouches for.

TVM's parser evaluates expressions as Python, with Python's builtins and the whole of tvm in reach. So the text is looked
at first: only TVMScript's own vocabulary and the names the text binds itself may occur in it.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.relax.saved_module import load_harmless, require_harmless

LIMIT = 512 << 20  # bytes; weights stand in the text as base64

_BUILTINS = {"range", "int", "float", "bool", "len", "min", "max"}
_SUBMODULES = {
    "nn",
    "image",
    "vision",
    "grad",
    "builtin",
    "memory",
    "vm",
    "ccl",
    "dist",
    "distributed",
}
_REFUSED = {
    "emit_te",
    "macro",
    "inline",
    "external_kernel",
    "call_py_func",
    "pyfunc",
    "import_module",
    "meta_class",
}
_NODES: tuple[type[ast.AST], ...] = (
    *(
        ast.Module,
        ast.ClassDef,
        ast.FunctionDef,
        ast.arguments,
        ast.arg,
        ast.Return,
        ast.Assign,
        ast.AnnAssign,
    ),
    *(
        ast.AugAssign,
        ast.For,
        ast.While,
        ast.If,
        ast.With,
        ast.withitem,
        ast.Expr,
        ast.Pass,
        ast.Assert,
        ast.Break,
    ),
    *(
        ast.Continue,
        ast.BoolOp,
        ast.BinOp,
        ast.UnaryOp,
        ast.IfExp,
        ast.Compare,
        ast.Call,
        ast.keyword,
        ast.Constant,
    ),
    *(
        ast.Attribute,
        ast.Subscript,
        ast.Name,
        ast.List,
        ast.Tuple,
        ast.Dict,
        ast.Slice,
        ast.Starred,
    ),
    *(ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)


def parse(text: str) -> Any:
    """The IRModule of a TVMScript text. Raises ModelError, naming the line, for anything but TVMScript."""
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    module = _syntax(text)
    vocabulary = {
        name: space
        for name, space in _default_globals().items()
        if name in ("I", "ir", "T", "tir", "R", "relax")
    }
    metadata, definitions = _parts(module)
    if not any(isinstance(d, ast.ClassDef) for d in definitions.body):
        raise ModelError("the TVMScript text holds no module; write a class under @I.ir_module")
    _Check(vocabulary, metadata is not None).check(definitions)
    given = dict(vocabulary)
    try:
        if metadata is not None:
            given["metadata"] = load_harmless(metadata)
        found = tvm.script.from_source(ast.unparse(definitions), given)
    except (
        Exception
    ) as error:  # the parser raises its own diagnostics, and whatever evaluation raises
        raise ModelError(f"the TVMScript text cannot be parsed: {line_of(error)}") from error
    if not isinstance(found, tvm.IRModule):
        raise ModelError(
            f"the TVMScript text holds a {type(found).__name__}; write one class under @I.ir_module"
        )
    require_harmless(found)
    return found


def _syntax(text: str) -> ast.Module:
    if len(text) > LIMIT:
        raise ModelError(
            f"the TVMScript text has {len(text)} characters, at most {LIMIT} are read; save it as JSON"
        )
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ModelError(
            f"the file is no TVMScript{f' (line {line})' if line else ''}: {error}"
        ) from error


def _parts(module: ast.Module) -> tuple[str | None, ast.Module]:
    """The JSON of the printed constants, if there are any, and the definitions; imports of TVMScript itself are dropped."""
    metadata, kept = None, []
    for statement in module.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                _check_import(statement)
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(
                targets=[ast.Name(id="metadata")],
                value=ast.Call(func=function, args=[ast.Constant(value=str(text))], keywords=[]),
            ) if ast.unparse(function) == "tvm.ir.load_json":
                metadata = text
            case _:
                kept.append(statement)
    return metadata, ast.Module(kept, [])


def _check_import(statement: ast.Import | ast.ImportFrom) -> None:
    package = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    spelled = {(alias.name, alias.asname or alias.name) for alias in statement.names}
    known = {
        ("ir", "I"),
        ("relax", "R"),
        ("tirx", "T"),
        ("tir", "T"),
        ("Axis", "Axis"),
        ("tvm", "tvm"),
        ("annotations", "annotations"),
    }
    if (
        package not in ("tvm", "tvm.script", "tvm.tirx.layout", "__future__")
        or not spelled <= known
    ):
        raise ModelError(
            f"line {statement.lineno} of the TVMScript text imports something else ({ast.unparse(statement)}); "
            f"it may import tvm.script's ir as I, relax as R and tirx as T"
        )


class _Check:
    """Whether every node, name and attribute of a text belongs to TVMScript."""

    def __init__(self, vocabulary: dict[str, Any], metadata: bool) -> None:
        self._vocabulary = vocabulary
        self._bound = {"metadata"} if metadata else set()

    def check(self, module: ast.Module) -> None:
        self._bound.update(_bound(module))
        if taken := self._bound & {*self._vocabulary, *_BUILTINS}:
            raise ModelError(
                f"the TVMScript text binds '{min(taken)}', a name of TVMScript itself; rename it"
            )
        inner = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Attribute)}
        for node in ast.walk(module):
            if not isinstance(node, _NODES):
                self._refuse(node, type(node).__name__)
            elif isinstance(node, ast.Attribute):
                self._attribute(node, id(node) in inner)
            elif (
                isinstance(node, ast.Name) and node.id in self._vocabulary and id(node) not in inner
            ):
                self._refuse(node, f"'{node.id}' by itself")
            elif isinstance(node, ast.Name) and node.id not in {
                *self._bound,
                *self._vocabulary,
                *_BUILTINS,
            }:
                self._refuse(node, f"the name '{node.id}'")

    def _attribute(self, node: ast.Attribute, goes_on: bool) -> None:
        path = _path(node)
        if node.attr.startswith("_") or node.attr in _REFUSED:
            self._refuse(node, f"'{'.'.join(path) or node.attr}'")
        if not path or path[0] not in self._vocabulary:
            return
        value = self._vocabulary[path[0]]
        for name in path[1:]:
            value = getattr(value, name, None)
            if isinstance(value, types.ModuleType):
                known = name in _SUBMODULES and (goes_on or name != path[-1])
            else:
                known = (getattr(value, "__module__", None) or "tvm").partition(".")[0] in (
                    "tvm",
                    "tvm_ffi",
                )
            if value is None or not known:
                self._refuse(node, f"'{'.'.join(path)}'")

    def _refuse(self, node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", "?")
        raise ModelError(
            f"line {line} of the TVMScript text holds {what}, which is no TVMScript; remove it"
        )


def _bound(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _path(node: ast.Attribute) -> tuple[str, ...]:
    """``a.b.c`` as its names, empty where it starts with something else than a name."""
    value: ast.expr = node
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    return (value.id, *reversed(names)) if isinstance(value, ast.Name) else ()
