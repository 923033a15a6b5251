"""The pure rooms import networkx, numpy and the standard library without files and clocks."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import autosplit

ROOT = Path(autosplit.__file__).parent
FILES = [ROOT / "graph.py", ROOT / "deployment.py", ROOT / "units.py"]
FILES += sorted((ROOT / "cuts").rglob("*.py"))
FILES += sorted((ROOT / "planner").rglob("*.py"))
ALLOWED = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools",
    "heapq", "importlib", "itertools", "math", "networkx", "numpy", "operator", "random", "re",
    "statistics", "typing",
}  # fmt: skip
PURE = tuple(
    f"autosplit.{name}"
    for name in ("cuts", "planner", "deployment", "graph", "errors", "lazy", "units")
)


def imported(file: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports relatively"
            if node.module == "autosplit":
                modules |= {f"autosplit.{alias.name}" for alias in node.names}
            else:
                modules.add(node.module or "")
    return modules


def foreign(names: set[str]) -> set[str]:
    return {n for n in names if not n.startswith(PURE) and n.split(".")[0] not in ALLOWED}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_pure_file_imports_no_tvm_no_optuna_no_file_and_no_clock(file):
    assert not foreign(imported(file))
    names = {
        node.id
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        # A field may be called ``input``; what counts is what a file reads.
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert not names & {"open", "eval", "exec", "print", "input", "__import__"}


@pytest.mark.parametrize(
    "name", ["time", "os", "pathlib", "tvm", "optuna", "autosplit.hardware", "autosplit.study"]
)
def test_the_check_sees_what_is_not_pure(tmp_path, name):
    file = tmp_path / "room.py"
    file.write_text(f"def late():\n    import {name}\n    return {name}\n")
    assert foreign(imported(file)) == {name}


def test_importing_the_rooms_loads_nothing_slow():
    code = "import sys, autosplit.cuts, autosplit.planner; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"tvm", "optuna", "torch", "onnx", "scipy", "pydantic", "rich", "networkx"} & set(
        loaded
    )


def test_planning_loads_no_tvm_and_no_optuna():
    code = (
        "import sys; from autosplit.planner import CostModel, Question, Row, RowCosts, partition;"
        "costs = CostModel('m', ('a', 'b'), (0, 1), (RowCosts(Row(), (1.0, 2.0)),));"
        "partition(costs, Question.of_split(2)); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    assert not {"tvm", "optuna", "scipy"} & set(loaded)
