"""Parses untrusted TVMScript.

TVM's parser evaluates expressions as Python, with Python's builtins and all of tvm in reach. The
text is therefore checked first; see ``script_check``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import ir, tvm
from autosplit.frontend.relax.saved_module import load_harmless, require_harmless
from autosplit.frontend.relax.script_check import ScriptCheck, require_size

LIMIT = 512 << 20  # bytes; weights stand in the text as base64
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
    from tvm.script.parser.core.entry import _default_globals

    vocabulary = {
        name: space
        for name, space in _default_globals().items()
        if name in ("I", "ir", "T", "tir", "R", "relax")
    }
    metadata, definitions = _parts(_syntax(text))
    if not any(isinstance(d, ast.ClassDef) for d in definitions.body):
        raise ModelError("the TVMScript text has no module; write a class under @I.ir_module")
    check = ScriptCheck(vocabulary, metadata is not None)
    check.check(definitions)
    # A name that the parser does not know yet would be looked up in Python's builtins.
    names = {**vocabulary, **dict.fromkeys(check.bound_builtins())}
    for name in ("R", "relax"):
        names[name] = _CheckedRelax(vocabulary[name])
    try:
        if metadata is not None:
            names["metadata"] = load_harmless(metadata)
        # Unparsed, so that TVM evaluates what was checked and nothing else.
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
        raise ModelError(f"the file is not TVMScript{place}: {error}") from error


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
            f"line {statement.lineno} of the TVMScript text has a forbidden import "
            f"({ast.unparse(statement)}); "
            "it may import tvm.script's ir as I, relax as R and tirx as T"
        )


class _CheckedRelax:
    """TVM's relax vocabulary, whose texts in shapes are checked: TVM evaluates them as Python."""

    def __init__(self, vocabulary: Any) -> None:
        self._vocabulary = vocabulary
        self.Tensor = _with_checked_shape(vocabulary.Tensor)
        self.Shape = _with_checked_shape(vocabulary.Shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocabulary, name)


def _with_checked_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any, **keywords: Any) -> Any:
        for shape in (*arguments, *keywords.values()):
            if not isinstance(shape, ir.Expr | str | int | None):
                for size in shape:
                    if isinstance(size, str):
                        require_size(size)
        return function(*arguments, **keywords)

    return checked
