"""Reduces an untrusted program (.pt2) to data: a graph of aten calls and plain tensors.

``torch.export.load`` unpickles sample inputs and some constants, evaluates symbolic sizes and
guards as Python, and looks functions up by any dotted name under ``torch``. The copy made here has
none of these.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from autosplit.errors import ModelError

_GRAPH = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
_COPIED = re.compile(
    r"data/(weights|constants)/[A-Za-z0-9_]+|archive_format|archive_version|byteorder|"
    r"\.data/[a-z_]+"
)
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+|torch\.sym_\w+|math\.(ceil|floor|trunc)|"
    r"torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan|wrap_with_\w+)|"
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_)"
)
# Arithmetic on sizes, without powers, which could grow without limit.
_SIZE_WORDS = """
    Symbol|Integer|Rational|Add|Mul|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|Eq|Ne|Lt|Le|Ge|
    Gt|oo|int_oo|positive|nonnegative|integer|True|False|[su]?\\d+
"""
_SIZE = re.compile(rf"((?!\*\*)([ '\-+*/(),<>=!]|\b({''.join(_SIZE_WORDS.split())})\b))*")
_MODULES = re.compile(r"[\w.@]+,[\w.@]*,[\w.]+(;[\w.@]+,[\w.@]*,[\w.]+)*")  # key, name, class
_CONTAINERS = {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None}
# Errors raised for a damaged or an encrypted archive, and for a document that nests too deep.
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, RuntimeError)
_OF_ANOTHER_FORM = (LookupError, TypeError, AttributeError, ValueError)
_MEMBER_LIMIT = 256 << 20  # bytes of a JSON member


@contextlib.contextmanager
def without_code(path: Path) -> Iterator[IO[bytes]]:
    """A readable copy of the archive without pickles and code.

    Raises:
        ModelError: The file is not an archive, or its program needs a part that is left out.
    """
    with tempfile.TemporaryFile() as copy:
        try:
            with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as clean:
                _copy(path, archive, clean)
        except (*_DAMAGED, *_OF_ANOTHER_FORM) as error:
            text = f"model '{path}' was not written by torch.export.save: {error}"
            raise ModelError(text) from error
        copy.seek(0)
        yield copy


def _copy(path: Path, archive: zipfile.ZipFile, clean: zipfile.ZipFile) -> None:
    if sum(i.compress_size for i in archive.infolist()) > path.stat().st_size:
        raise ModelError(f"members of '{path}' overlap; save the program with torch again")
    # The first folder has the name that the file had when it was saved.
    members = {i.filename.partition("/")[2]: i for i in archive.infolist()}
    if _GRAPH not in members:
        raise ModelError(
            f"model '{path}' holds no exported program in the format of torch 2.9 or later; "
            "export it again"
        )
    for name, member in members.items():
        target = f"model/{name}"
        too_large = name.endswith(".json") and member.file_size > _MEMBER_LIMIT
        # torch stores members as they are; a compressed one could grow without end.
        if member.compress_type != zipfile.ZIP_STORED or too_large:
            raise ModelError(
                f"member '{name}' of '{path}' is compressed or too large; "
                "save the program with torch again"
            )
        if name == _GRAPH:
            graph = _checked_graph(path, json.loads(archive.read(member)))
            clean.writestr(target, json.dumps(graph))
        elif name in _CONFIGS:
            config = json.loads(archive.read(member))
            _check_config(path, config)
            clean.writestr(target, json.dumps(config))
        elif name == _SAMPLES:
            # The sample inputs are a pickle; an empty member takes their place.
            clean.writestr(target, b"")
        elif _COPIED.fullmatch(name):
            with archive.open(member) as source, clean.open(target, "w", force_zip64=True) as sink:
                shutil.copyfileobj(source, sink)


def _check_config(path: Path, document: dict[str, Any]) -> None:
    """Raise ModelError unless all tensors are stored as plain bytes in files of the archive."""
    for name, entry in document["config"].items():
        file_name = str(entry.get("path_name"))
        is_plain = entry.get("use_pickle") is False and re.fullmatch(r"\w+", file_name)
        if not is_plain or file_name.startswith(("custom_obj", "opaque")):
            raise ModelError(
                f"tensor '{name}' of '{path}' is pickled or a Python object, which is not read; "
                "save it as a plain tensor"
            )


def _checked_graph(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The graph without guards and without metadata, except for the names of modules.

    Raises ModelError for anything that torch would evaluate.
    """
    # Guards are Python that torch would compile.
    document["guards_code"] = []
    for name in document.get("range_constraints", {}):
        _require(path, _is_size(name), "size", name)
    for call in document["graph_module"]["module_call_graph"]:
        signature = call.get("signature") or {}
        for side in ("in_spec", "out_spec"):
            if signature.get(side):
                protocol, tree = json.loads(signature[side])
                signature[side] = json.dumps([protocol, _plain_tree(tree)])
    _check_values(path, document)
    return document


def _check_values(path: Path, document: Any) -> None:
    """Check all that torch would look up or evaluate, and drop most of the metadata of nodes."""
    # A stack instead of recursion, since the document may nest to any depth.
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        if not isinstance(value, dict):
            continue
        if "target" in value and "inputs" in value:
            is_op = _TARGET.fullmatch(str(value["target"])) is not None
            _require(path, is_op, "op", value["target"])
            # Metadata has stack traces and names, which torch parses; plain names of modules stay.
            stack_text = str((value.get("metadata") or {}).get("nn_module_stack", ""))
            is_plain = _MODULES.fullmatch(stack_text) is not None
            value["metadata"] = {"nn_module_stack": stack_text} if is_plain else {}
        if "expr_str" in value:
            _require(path, _is_size(value["expr_str"]), "size", value["expr_str"])
        for kind in ("operator", "custom_obj"):
            _require(path, value.get(f"as_{kind}") is None, "argument of kind", kind)
        stack.extend(value.values())


def _is_size(text: Any) -> bool:
    """Whether a text is arithmetic on sizes, which torch evaluates as Python."""
    return isinstance(text, str) and len(text) <= 1000 and _SIZE.fullmatch(text) is not None


def _plain_tree(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree of inputs or outputs in which any container that is not Python's own is a tuple.

    The class of such a container, e.g. a cache, is left out: torch would import and call it.
    """
    if tree["type"] not in _CONTAINERS:
        tree = {**tree, "type": "builtins.tuple", "context": "null"}
    return {**tree, "children_spec": [_plain_tree(child) for child in tree["children_spec"]]}


def _require(path: Path, condition: bool, what: str, text: Any) -> None:
    if not condition:
        raise ModelError(
            f"model '{path}' holds the {what} {str(text)[:80]!r}, which is not read; "
            "export without it"
        )
