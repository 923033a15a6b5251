import ast
from pathlib import Path

import autosplit

SAY_NOTHING = {
    "found", "told", "held", "given", "made", "wanted", "kept", "own", "moved", "seen",
}  # fmt: skip


def names(code):
    """Every variable and parameter."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_a_name_says_what_it_holds():
    folders = Path(autosplit.__file__).parent, Path(__file__).parent
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        assert not SAY_NOTHING.intersection(names(file.read_text("utf-8"))), file
