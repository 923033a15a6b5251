"""Arrows between the rooms point one way: a module imports from rooms below its own, late imports and all."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import autosplit

ROOT = Path(autosplit.__file__).parent
FLOORS = (
    ("errors", "units"),
    ("graph", "versions", "zoo_nets", "zoo_weights"),
    ("cuts",),
    ("planner",),
    ("frontend",),
    ("lowering",),
    ("hardware",),
    ("zoo",),
    ("study",),
    ("report",),
    ("api",),
    ("cli",),
    ("__init__", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))


def rooms_of(tree: ast.AST) -> Iterator[str]:
    """The rooms that a module imports from; imports for the type checker alone do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "autosplit":
            yield from (alias.name for alias in node.names if alias.name in FLOOR)
        elif isinstance(node, ast.ImportFrom):
            yield from room_of(node.module or "")
        elif isinstance(node, ast.Import):
            yield from (room for alias in node.names for room in room_of(alias.name))
        else:
            yield from rooms_of(node)


def room_of(module: str) -> Iterator[str]:
    package, _, rest = module.partition(".")
    if package == "autosplit" and rest:
        yield rest.partition(".")[0]


def above(code: str, own: str) -> set[str]:
    """The rooms imported from that do not lie below the room of the code."""
    return {room for room in rooms_of(ast.parse(code)) if room != own and FLOOR[room] >= FLOOR[own]}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_module_imports_from_below(file):
    own = file.relative_to(ROOT).with_suffix("").parts[0]
    assert not above(file.read_text(encoding="utf-8"), own)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def late():\n    from autosplit.report.export import export", {"report"}),
        ("import autosplit.study.run", {"study"}),
        ("from autosplit import api, cuts", {"api"}),
        ("if TYPE_CHECKING:\n    from autosplit.api import Split", set()),
        (
            "import autosplit\nfrom autosplit.lowering import fuse\nfrom autosplit.hardware import cache",
            set(),
        ),
    ],
)
def test_the_check_sees_an_arrow_that_points_up(code, found):
    assert above(code, "hardware") == found
