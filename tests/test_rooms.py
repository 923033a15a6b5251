"""Arrows between rooms point one way, pure rooms are pure, and each room can be read."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx
import pytest

import autosplit
from autosplit.cli import COMMANDS

ROOT = Path(autosplit.__file__).parent
FLOORS = (
    ("errors", "lazy", "phases", "units", "printable"),
    ("extras", "files", "serialization", "versions", "graph", "deployment"),
    ("cuts",),
    ("planner",),
    ("frontend",),
    ("lowering",),
    ("hardware",),
    ("zoo", "deploy"),
    ("study",),
    ("report",),
    ("api",),
    ("",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))
MOST_FILES = {"cli": 20, "planner": 15}  # a folder holds 14; a command is a file
FEWEST_LETTERS = 80  # of the docstring that is the map of a package
PURE = ("graph", "deployment", "units", "cuts", "planner")  # no file, no clock
IMPORTED_BY_PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools",
    "heapq", "importlib", "itertools", "math", "networkx", "numpy", "operator", "random", "re",
    "statistics", "typing",
    *(f"autosplit.{room}" for room in (*PURE, "errors", "lazy")),
}  # fmt: skip
CALLED_BY_IMPURE = {"open", "eval", "exec", "print", "input", "__import__"}
SAY_NOTHING = {
    "found", "told", "held", "given", "made", "wanted", "kept", "own", "moved", "seen",
}  # fmt: skip


def module_name(file):
    """The name a file is imported by."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(file): file for file in FILES}
PACKAGES = {name: file.parent for name, file in MODULES.items() if file.name == "__init__.py"}


def imports(tree):
    """Every module of ours that is imported, late too, but not for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif not isinstance(node, ast.expr):  # which holds no import
            yield from imports(node)


@cache
def tree_of(module):
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def our_imports(module):
    return {name for name in imports(tree_of(module)) if name.split(".")[0] == "autosplit"}


def room(module):
    return module.removeprefix("autosplit").removeprefix(".").partition(".")[0]


def arrows_up(module):
    """The rooms imported from that do not lie below that of the module."""
    rooms, level = set(map(room, our_imports(module))), FLOOR[room(module)]
    return {other for other in rooms if other != room(module) and FLOOR[other] >= level}


def impure(module):
    """What a pure module must not import or read."""
    parts = [name.split(".") for name in imports(tree_of(module))]
    names = {".".join(p[:2] if p[0] == "autosplit" else p[:1]) for p in parts}
    # A field may be called ``input``; what counts is what a file reads.
    nodes = (node for node in ast.walk(tree_of(module)) if isinstance(node, ast.Name))
    read = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
    return (names - IMPORTED_BY_PURE) | (read & CALLED_BY_IMPURE)


def modules_in_strings(module):
    """Modules of ours that a string names, whole or as the begin of a formatted one."""
    nodes = (node for node in ast.walk(tree_of(module)) if isinstance(node, ast.Constant))
    named = set()
    for text in (node.value for node in nodes if isinstance(node.value, str)):
        match = re.fullmatch(r"(autosplit(\.\w+)*)(:\w+|\.)?", text)
        if match and "." in text and match[1] in MODULES:
            named.add(text)
    return named


@pytest.mark.parametrize("wrong", [arrows_up, modules_in_strings])
def test_a_module_imports_from_rooms_below_its_own_and_names_none_in_a_string(wrong):
    assert {name: bad for name in MODULES if (bad := wrong(name))} == {}


def test_a_pure_room_imports_no_tvm_no_optuna_no_file_and_no_clock():
    pure = [name for name in MODULES if room(name) in PURE]
    assert {name: bad for name in pure if (bad := impure(name))} == {}


PLAN = """
from autosplit.planner import CostModel, Question, Row, RowCosts, partition
costs = CostModel("m", ("a", "b"), (0, 1), (RowCosts(Row(), (1.0, 2.0)),))
partition(costs, Question.of_split(2))
"""
HELP = """
from autosplit import cli
for command in ([], *([name] for name in cli.COMMANDS)):
    try:
        cli.main([*command, "--help"])
    except SystemExit:
        print(command)
"""
SLOW = {"tvm", "optuna", "torch", "onnx", "onnxruntime", "scipy", "pydantic"}


@pytest.mark.parametrize(
    ("code", "slow"), [("import autosplit", {"numpy", *SLOW}), (HELP, SLOW), (PLAN, SLOW)]
)
def test_importing_help_and_planning_load_nothing_slow(code, slow):
    code = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert not slow & set(lines[-1].split())
    assert all(f"['{name}']" in lines for name in COMMANDS if "cli" in code)


def test_no_files_import_each_other_in_a_circle():
    graph = networkx.DiGraph()
    for name in MODULES:
        graph.add_edges_from((name, other) for other in our_imports(name) - {name})
    circles = [ring for ring in networkx.strongly_connected_components(graph) if len(ring) > 1]
    assert [sorted(ring) for ring in circles] == []


def test_a_folder_holds_about_a_dozen_files():
    counts = {folder: len(list(folder.glob("*.py"))) for folder in PACKAGES.values()}
    assert {f: n for f, n in counts.items() if n > MOST_FILES.get(f.name, 14)} == {}


@pytest.mark.parametrize("name", PACKAGES)
def test_the_docstring_of_a_package_is_a_map(name):
    text = ast.get_docstring(tree_of(name)) or ""
    assert len(text) >= FEWEST_LETTERS
    assert "\n" in text


def variables(tree):
    """Every variable and parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_a_name_says_what_it_holds():
    for file in (*FILES, *Path(__file__).parent.rglob("*.py")):
        assert not SAY_NOTHING.intersection(variables(ast.parse(file.read_text("utf-8")))), file
