"""docs/reference/python.md: the public names of Python with their signatures and docstrings.

Public is what ``__all__`` of a module of ``MODULES`` lists.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

import autosplit
from autosplit import deployment, errors, graph, planner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md"
MODULES = (autosplit, planner, graph, deployment, errors)
# What a model inherits is public by name: the rest of it is for the other rooms.
INHERITED = {"Model": ("graph", "pipeline", "items", "expected")}
WIDTH = 88
HEAD = """\
# The Python API

Made from the code by `python -m studies.tools.reference`.

This page lists everything that is public: the names in `__all__` of `autosplit`,
`autosplit.planner`, `autosplit.graph`, `autosplit.deployment` and `autosplit.errors`, with the
members below. A public signature changes only with an entry in the changelog: what goes warns for
one minor release first. Everything else may change at any time. The package is typed (`py.typed`).

Times are in milliseconds and memory is in bytes. Ops are known by their index in
`FusedGraph.ops`. Every error is an `AutosplitError`.
"""


class _Code(str):
    """What a signature shows as it stands in the code, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(module) for module in MODULES)])


def section(module: ModuleType) -> str:
    """A module: its public names in alphabetical order."""
    parts = [f"## {module.__name__}\n"]
    for name in sorted(module.__all__):
        parts += entries(name, getattr(module, name))
    return "\n".join(parts)


def entries(name: str, value: Any) -> Iterator[str]:
    """A name, and the members of a class, each with its signature and docstring."""
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        head = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
        # A value is made from its fields; what else there is comes from a function.
        text = f"{head}\n{signature(name, value)}" if "__match_args__" in vars(value) else head
        yield entry(3, name, text, inspect.getdoc(value))
        for member, raw in members(name, value):
            yield entry(4, f"{name}.{member}", declared(member, raw), inspect.getdoc(raw))
    elif callable(value):
        forms = get_overloads(value) or [value]
        text = "\n".join(signature(name, form) for form in forms)
        yield entry(3, name, text, inspect.getdoc(value))
    else:
        yield entry(3, name, f"{name}: {type(value).__name__}", "")


def members(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    """The public members that a class has of its own, and those it is known for."""
    for member, value in vars(cls).items():
        if not member.startswith("_") and inspect.isroutine(value) | isinstance(value, property):
            yield member, value
    for member in INHERITED.get(name, ()):
        yield member, inspect.getattr_static(cls, member)


def declared(name: str, value: Any) -> str:
    """A member as it is declared."""
    if isinstance(value, classmethod):
        return f"@classmethod\n{signature(name, value.__func__)}"
    if isinstance(value, property | cached_property):
        function: Any = value.fget if isinstance(value, property) else value.func
        return f"{name}: {inspect.signature(function).return_annotation}"
    return signature(name, value)


def signature(name: str, function: Any) -> str:
    """``name(parameters) -> result``, with a parameter a line where it is long."""
    known = inspect.signature(function)
    parameters = [_shown(p) for p in known.parameters.values() if p.name not in ("self", "cls")]
    result = known.return_annotation
    if inspect.ismethod(function) and inspect.isclass(function.__self__):
        result = str(result).replace("Self", function.__self__.__name__)
    arrow = "" if result in (known.empty, None, "None") else f" -> {result}"
    bare = known.replace(parameters=parameters, return_annotation=known.empty)
    line = f"{name}{bare}{arrow}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in _lines(parameters)) + f"){arrow}"


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    if parameter.annotation is parameter.empty:
        return parameter
    return parameter.replace(annotation=_Code(parameter.annotation))


def _lines(parameters: list[inspect.Parameter]) -> Iterator[str]:
    by_keyword = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not by_keyword:
            by_keyword = True
            yield "*"
        yield str(parameter)


def entry(level: int, name: str, code: str, text: str | None) -> str:
    """A heading, the signature and the docstring, whose lists of arguments keep their lines."""
    text = re.sub(r"^(Args|Returns|Raises|Example):\n", "\\g<0>\n", text or "", flags=re.MULTILINE)
    lists, example, code_of_it = text.partition("Example:\n")
    text = re.sub(r"^ {4}(?=\S)", "- ", lists, flags=re.MULTILINE) + example + code_of_it
    return f"{'#' * level} {name}\n\n```text\n{code}\n```\n\n{text}".rstrip() + "\n"
