"""Parses untrusted TVMScript.

TVM's parser evaluates expressions as Python, with Python's builtins and all of tvm in reach. The
text is therefore checked first: only TVMScript's own vocabulary and names that the text itself
binds may occur in it.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.frontend.relax.saved_module import load_harmless, require_harmless

LIMIT = 512 << 20  # bytes; weights stand in the text as base64


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = {"range", "int", "float", "bool", "len", "min", "max"}
_SUBMODULES = _words("nn image vision grad builtin memory vm ccl dist distributed")
_REFUSED = _words(
    "emit_te macro inline external_kernel call_py_func pyfunc import_module meta_class"
)
_NODES = _words(
    """
    Module ClassDef FunctionDef arguments arg Return Assign AnnAssign AugAssign For While If With
    withitem Expr Pass Assert Break Continue BoolOp BinOp UnaryOp IfExp Compare Call keyword
    Constant Attribute Subscript Name List Tuple Dict Slice Starred Load Store And Or Add Sub Mult
    MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt
    LtE Gt GtE
    """
)
# What a text may import, as (name, alias); the imports themselves are dropped.
_IMPORTS = {
    ("ir", "I"),
    ("relax", "R"),
    ("tirx", "T"),
    ("tir", "T"),
    ("Axis", "Axis"),
    ("tvm", "tvm"),
    ("annotations", "annotations"),
}


def parse(text: str) -> Any:
    """The IRModule of a TVMScript text.

    Raises:
        ModelError: The text is more than TVMScript, or its module holds what could run code.
    """
    import tvm
    from tvm.script.parser.core.entry import _default_globals

    vocabulary = {
        name: space
        for name, space in _default_globals().items()
        if name in ("I", "ir", "T", "tir", "R", "relax")
    }
    metadata, definitions = _parts(_syntax(text))
    if not any(isinstance(d, ast.ClassDef) for d in definitions.body):
        raise ModelError("the TVMScript text holds no module; write a class under @I.ir_module")
    _Check(vocabulary, metadata is not None).check(definitions)
    names = dict(vocabulary)
    try:
        if metadata is not None:
            names["metadata"] = load_harmless(metadata)
        module = tvm.script.from_source(ast.unparse(definitions), names)
    except ModelError:
        raise
    except Exception as error:  # the parser raises diagnostics, and whatever evaluation raises
        raise ModelError(f"the TVMScript text cannot be parsed: {line_of(error)}") from error
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"the TVMScript text holds a {type(module).__name__}; "
            "write one class under @I.ir_module"
        )
    require_harmless(module)
    return module


def _syntax(text: str) -> ast.Module:
    if len(text) > LIMIT:
        raise ModelError(
            f"the TVMScript text has {len(text)} characters, at most {LIMIT} are read; "
            "save it as JSON"
        )
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise ModelError(f"the file is no TVMScript{place}: {error}") from error


def _parts(module: ast.Module) -> tuple[str | None, ast.Module]:
    """The JSON of the printed constants, if there are any, and the definitions without imports."""
    metadata = None
    definitions: list[ast.stmt] = []
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
                definitions.append(statement)
    return metadata, ast.Module(definitions, [])


def _check_import(statement: ast.Import | ast.ImportFrom) -> None:
    package = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    names = {(alias.name, alias.asname or alias.name) for alias in statement.names}
    packages = ("tvm", "tvm.script", "tvm.tirx.layout", "__future__")
    if package not in packages or not names <= _IMPORTS:
        raise ModelError(
            f"line {statement.lineno} of the TVMScript text imports something else "
            f"({ast.unparse(statement)}); "
            "it may import tvm.script's ir as I, relax as R and tirx as T"
        )


class _Check:
    """Checks that every node, name and attribute of a text belongs to TVMScript."""

    def __init__(self, vocabulary: Mapping[str, Any], metadata: bool) -> None:
        self._vocabulary = vocabulary
        self._bound = {"metadata"} if metadata else set()

    def check(self, module: ast.Module) -> None:
        self._bound.update(_bound(module))
        rebound = self._bound & {*self._vocabulary, *_BUILTINS}
        if rebound:
            raise ModelError(
                f"the TVMScript text binds '{min(rebound)}', a name of TVMScript itself; rename it"
            )
        readable = {*self._bound, *self._vocabulary, *_BUILTINS}
        # Nodes that an attribute is taken of: R in R.nn.relu, and R.nn in it.
        owners = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Attribute)}
        for node in ast.walk(module):
            if type(node).__name__ not in _NODES:
                self._refuse(node, type(node).__name__)
            elif isinstance(node, ast.Attribute):
                self._check_attribute(node, id(node) in owners)
            elif isinstance(node, ast.Name):
                if node.id in self._vocabulary and id(node) not in owners:
                    self._refuse(node, f"'{node.id}' by itself")
                if node.id not in readable:
                    self._refuse(node, f"the name '{node.id}'")

    def _check_attribute(self, node: ast.Attribute, is_owner: bool) -> None:
        path = _path(node)
        if node.attr.startswith("_") or node.attr in _REFUSED:
            self._refuse(node, f"'{'.'.join(path) or node.attr}'")
        if not path or path[0] not in self._vocabulary:
            return
        value = self._vocabulary[path[0]]
        for name in path[1:]:
            value = getattr(value, name, None)
            if isinstance(value, types.ModuleType):
                # A module may be passed through, but is no value of its own.
                in_tvm = name in _SUBMODULES and (is_owner or name != path[-1])
            else:
                package = (getattr(value, "__module__", None) or "tvm").partition(".")[0]
                in_tvm = package in ("tvm", "tvm_ffi")
            if value is None or not in_tvm:
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
    """``a.b.c`` as its names; empty if it starts with something else than a name."""
    value: ast.expr = node
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    return (value.id, *reversed(names)) if isinstance(value, ast.Name) else ()
