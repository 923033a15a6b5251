"""Checks that a TVMScript text is TVMScript alone, before TVM's parser evaluates it as Python.

Only TVMScript's own vocabulary and names that the text itself binds may occur in it. Three ways
lead out of the vocabulary, and each has a rule: a name of Python's builtins may be bound but not
called, an attribute of a value must be listed, and a text is no expression that calls something,
because the parser evaluates texts in shapes.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from autosplit.errors import ModelError
from autosplit.frontend.relax.allow_list import words

_BUILTINS = {"range", "int", "float", "bool", "len", "min", "max"}
_PYTHON = frozenset(dir(builtins)) - _BUILTINS
_SUBMODULES = words("nn image vision grad builtin memory vm")
# Where the vocabulary's members may come from: what builds nodes, and no more.
_PACKAGES = (
    *("tvm.ir", "tvm.relax.expr", "tvm.relax.op", "tvm.relax.script.builder.ir"),
    *("tvm.relax.script.parser.entry", "tvm.script.ir_builder.ir", "tvm.script.parser.ir.entry"),
    *("tvm.tirx.expr", "tvm.tirx.op", "tvm.tirx.script.builder.ir"),
    "tvm.tirx.script.parser.entry",
)
_REFUSED = words(
    """
    add_callback call_kernel call_py_func emit_te external_kernel import_module inline jit macro
    meta_class pyfunc rewriter
    """
)
_VALUE_ATTRIBUTES = words("astype dtype elem_offset shape strides vload vstore")
_NODES = words(
    """
    Module ClassDef FunctionDef arguments arg Return Assign AnnAssign AugAssign For While If With
    withitem Expr Pass Assert Break Continue BoolOp BinOp UnaryOp IfExp Compare Call keyword
    Constant Attribute Subscript Name List Tuple Dict Slice Starred Load Store And Or Add Sub Mult
    MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt
    LtE Gt GtE
    """
)
_PLAIN_NODES = words(
    """
    Expression Constant Name Attribute Tuple List Load BinOp UnaryOp Compare Add Sub Mult MatMult
    Div Mod FloorDiv UAdd USub Lt LtE Gt GtE Eq NotEq
    """
)
_SIZE_FUNCTIONS = words(
    """
    int32 int64 min max floordiv floormod ceildiv truncdiv truncmod indexdiv indexmod
    shift_left shift_right if_then_else
    """
)


class ScriptCheck:
    """Checks every node, name, attribute and text of a TVMScript text."""

    def __init__(self, vocabulary: Mapping[str, Any], metadata: bool) -> None:
        self._vocabulary = vocabulary
        self._bound = {"metadata"} if metadata else set()
        self._modules: set[str] = set()
        self._functions: set[str] = set()

    def bound_builtins(self) -> set[str]:
        """The names of Python's builtins that the text binds, as a variable ``sum``."""
        return self._bound & _PYTHON

    def check(self, module: ast.Module) -> None:
        """Raise ModelError for the first thing that is no TVMScript."""
        for statement in module.body:
            if not isinstance(statement, ast.ClassDef):
                self._refuse(statement, ast.unparse(statement)[:80])
        self._bound.update(_bound(module))
        rebound = self._bound & {*self._vocabulary, *_BUILTINS}
        if rebound:
            raise ModelError(
                f"the TVMScript text assigns to '{min(rebound)}', a name of TVMScript; rename it"
            )
        self._modules = _module_names(module)
        self._functions = {n.name for n in ast.walk(module) if isinstance(n, ast.FunctionDef)}
        readable = {*self._bound, *self._vocabulary, *_BUILTINS}
        # Nodes that an attribute is taken of: R in R.nn.relu, and R.nn in it.
        owners = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Attribute)}
        for node in ast.walk(module):
            if type(node).__name__ not in _NODES:
                self._refuse(node, type(node).__name__)
            elif isinstance(node, ast.Attribute):
                self._check_attribute(node, id(node) in owners)
            elif isinstance(node, ast.Name):
                # ``R`` alone could be handed to something that looks into it.
                if node.id in self._vocabulary and id(node) not in owners:
                    self._refuse(node, f"'{node.id}' by itself")
                if node.id not in readable:
                    self._refuse(node, f"the name '{node.id}'")
            else:
                self._check_other(node)

    def _check_other(self, node: ast.AST) -> None:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _PYTHON:
                self._refuse(node, f"a call of '{name}'")
            case ast.ClassDef() if node.bases or node.keywords:
                self._refuse(node, "a base class")
            case ast.Constant(value=str(text)) if not _is_plain(text) and not _is_size(text):
                self._refuse(node, f"the text {text[:80]!r}")

    def _check_attribute(self, node: ast.Attribute, is_owner: bool) -> None:
        path = _path(node)
        if node.attr.startswith("_") or node.attr in _REFUSED:
            self._refuse(node, f"'{'.'.join(path) or node.attr}'")
        if not path or path[0] not in self._vocabulary:
            is_function = len(path) == 2 and path[0] in self._modules
            if node.attr not in (self._functions if is_function else _VALUE_ATTRIBUTES):
                self._refuse(node, f"'{'.'.join(path) or node.attr}'")
            return
        # Follow the attributes as Python would, so that a re-export of another package is noticed.
        value = self._vocabulary[path[0]]
        for name in path[1:]:
            value = getattr(value, name, None)
            if isinstance(value, types.ModuleType):
                # A module may be passed through, but is no value of its own.
                is_listed = name in _SUBMODULES and (is_owner or name != path[-1])
            else:
                package = getattr(value, "__module__", None) or "tvm.ir"
                is_listed = any(package == p or package.startswith(f"{p}.") for p in _PACKAGES)
            if value is None or not is_listed:
                self._refuse(node, f"'{'.'.join(path)}'")

    def _refuse(self, node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", "?")
        raise ModelError(
            f"line {line} of the TVMScript text has {what}, which is not TVMScript; remove it"
        )


def require_size(text: str) -> None:
    """Raise ModelError for a text in a shape that is no arithmetic on sizes."""
    if not _is_size(text):
        raise ModelError(f"the size {text[:80]!r} is not arithmetic on sizes; rewrite it")


def _is_plain(text: str) -> bool:
    """Whether a text is no Python expression, or one that neither calls nor reads anything."""
    tree = _expression(text)
    return tree is None or all(
        type(node).__name__ in _PLAIN_NODES
        and not (isinstance(node, ast.Attribute) and node.attr.startswith("_"))
        for node in ast.walk(tree)
    )


def _is_size(text: str) -> bool:
    """Whether a text is arithmetic on names, numbers and sizes' functions of TVMScript."""
    tree = _expression(text)
    if tree is None:
        return False
    functions = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="T"), attr=name) as function, keywords=[]
            ) if name in _SIZE_FUNCTIONS:
                functions.add(function)
            case ast.Call():
                return False
            case ast.Attribute() if node not in functions:
                return False
            case _ if type(node).__name__ not in _PLAIN_NODES:
                return False
    return True


def _expression(text: str) -> ast.Expression | None:
    """A text as Python would evaluate it, or None if it is no expression."""
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError) as error:
        raise ModelError(f"the text {text[:80]!r} nests too deep; remove it") from error


def _bound(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _module_names(module: ast.Module) -> set[str]:
    """The classes, and names that stand for a class wherever they are bound: ``cls = Module``."""
    classes = {node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef)}
    aliases = Counter[str]()
    for node in ast.walk(module):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)):
                if source in classes:
                    aliases[name] += 1
    # A name that is bound to something else as well is not surely a module.
    bindings = Counter(_bound(module))
    return {
        *(name for name in classes if bindings[name] == 1),
        *(name for name, count in aliases.items() if bindings[name] == count),
    }


def _path(node: ast.Attribute) -> tuple[str, ...]:
    """``a.b.c`` as its names; empty if it starts with something else than a name."""
    value: ast.expr = node
    # From the last name to the first.
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.append(value.attr)
        value = value.value
    return (value.id, *reversed(names)) if isinstance(value, ast.Name) else ()
