import ast
from pathlib import Path

import pytest

import autosplit

PACKAGE = Path(autosplit.__file__).parent
TESTS = Path(__file__).parent
SAY_NOTHING = {
    "found", "told", "held", "given", "made", "wanted", "kept", "own", "moved", "seen",
}  # fmt: skip


def rooms(root):
    """The files of each folder below ``root``, by its path; those beside it are a room too."""
    files = {}
    for file in sorted(root.rglob("*.py")):
        folders = file.relative_to(root).parts[:-1]
        files.setdefault("/".join((root.name, *folders[:2])), []).append(file)
    return files


ROOMS = rooms(PACKAGE) | rooms(TESTS)


def names(code):
    """Line and name of every variable and parameter."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


@pytest.mark.parametrize("files", ROOMS.values(), ids=ROOMS.keys())
def test_a_name_says_what_it_holds(files):
    for file in files:
        lines = [line for line, name in names(file.read_text("utf-8")) if name in SAY_NOTHING]
        assert not lines, file
