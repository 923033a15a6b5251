"""A saved exported program (.pt2) that nobody vouches for, cut down to what is only data.

``torch.export.load`` unpickles sample inputs and some constants, evaluates symbolic sizes and guards as Python, and looks
functions up by any dotted name under ``torch``. The copy made here has none of that: a graph of aten calls, plain tensors.
"""

from __future__ import annotations

import contextlib
import json
import re
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
    r"(data/(weights|constants)/[A-Za-z0-9_]+|archive_format|archive_version|byteorder|\.data/[a-z_]+)$"
)
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+$|torch\.sym_\w+$|"
    r"torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan|wrap_with_\w+)$|"
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge|and_|or_)$|"
    r"math\.(ceil|floor|trunc)$"
)
_FUNCTIONS = {
    "Symbol",
    "Integer",
    "Rational",
    "Add",
    "Mul",
    "Max",
    "Min",
    "Mod",
    "PythonMod",
    "FloorDiv",
    "CleanDiv",
}
_FUNCTIONS |= {
    "CeilDiv",
    "Eq",
    "Ne",
    "Le",
    "Lt",
    "Ge",
    "Gt",
    "oo",
    "int_oo",
    "positive",
    "nonnegative",
    "integer",
    "True",
    "False",
}
_WORD = re.compile(r"\w+")
_SIZE = re.compile(r"([su]?\d+)$")
_CONTAINERS = {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None}
_MEMBER_LIMIT = 256 << 20  # bytes of a JSON member


@contextlib.contextmanager
def cleaned(path: Path) -> Iterator[IO[bytes]]:
    """A readable copy of the archive without pickles and code; raises ModelError where it needs either, or is no archive."""
    with tempfile.TemporaryFile() as copy:
        try:
            with (
                zipfile.ZipFile(path) as archive,
                zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as clean,
            ):
                _copy(path, archive, clean)
        except (
            OSError,
            zipfile.BadZipFile,
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            RecursionError,
            NotImplementedError,
        ) as error:
            raise ModelError(
                f"model '{path}' is no program that torch.export.save wrote: {error}"
            ) from error
        copy.seek(0)
        yield copy


def _copy(path: Path, archive: zipfile.ZipFile, clean: zipfile.ZipFile) -> None:
    members = {i.filename.partition("/")[2]: i for i in archive.infolist()}
    if _GRAPH not in members:
        raise ModelError(
            f"model '{path}' holds no exported program in the format of torch 2.9 or later; export it again"
        )
    for name, member in members.items():
        target = f"model/{name}"
        if member.compress_type != zipfile.ZIP_STORED or (
            name.endswith(".json") and member.file_size > _MEMBER_LIMIT
        ):
            raise ModelError(
                f"member '{name}' of '{path}' is compressed or too large; save the program with torch again"
            )
        if name == _GRAPH:
            clean.writestr(target, json.dumps(_graph(path, json.loads(archive.read(member)))))
        elif name in _CONFIGS:
            clean.writestr(target, json.dumps(_config(path, json.loads(archive.read(member)))))
        elif name == _SAMPLES:
            clean.writestr(target, b"")
        elif _COPIED.match(name):
            with archive.open(member) as source, clean.open(target, "w", force_zip64=True) as sink:
                while block := source.read(1 << 20):
                    sink.write(block)


def _config(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    for name, entry in document["config"].items():
        if entry.get("use_pickle") is not False or not re.match(
            r"\w+$", str(entry.get("path_name"))
        ):
            raise ModelError(
                f"tensor '{name}' of '{path}' is pickled, which is not read; save it as a plain tensor"
            )
        if str(entry["path_name"]).startswith(("custom_obj", "opaque")):
            raise ModelError(
                f"constant '{name}' of '{path}' is a Python object, which is not read; make it a tensor"
            )
    return document


def _graph(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    document["guards_code"] = []
    for name in document.get("range_constraints", {}):
        _check(path, _is_size(name), name, "size")
    for call in document["graph_module"]["module_call_graph"]:
        signature = call.get("signature") or {}
        for side in ("in_spec", "out_spec"):
            if signature.get(side):
                _check_tree(path, json.loads(signature[side])[1])
    _walk(path, document)
    return document


def _walk(path: Path, value: Any) -> None:
    """Check what torch would look up or evaluate, everywhere, and drop the notes on where nodes came from."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        if not isinstance(value, dict):
            continue
        if "target" in value and "inputs" in value:
            _check(path, bool(_TARGET.match(str(value["target"]))), value["target"], "op")
            value["metadata"] = {}
        if "expr_str" in value:
            _check(path, _is_size(value["expr_str"]), value["expr_str"], "size")
        for key in ("as_operator", "as_custom_obj"):
            if value.get(key) is not None:
                raise ModelError(
                    f"model '{path}' holds an argument of kind {key[3:]}, which is not read; export without"
                )
        stack.extend(value.values())


def _is_size(text: Any) -> bool:
    """Whether a text is arithmetic on sizes: torch has it evaluated as Python. Powers are refused, they can grow for ever."""
    if not isinstance(text, str) or len(text) > 1000 or "**" in text:
        return False
    words = all(w in _FUNCTIONS or _SIZE.match(w) for w in _WORD.findall(text))
    return words and set(_WORD.sub("", text)) <= set(" '-+*/(),<>=!")


def _check(path: Path, known: bool, text: Any, what: str) -> None:
    if not known:
        raise ModelError(
            f"model '{path}' holds the {what} {str(text)[:80]!r}, which is not read; export without it"
        )


def _check_tree(path: Path, tree: dict[str, Any]) -> None:
    if tree["type"] not in _CONTAINERS:
        raise ModelError(
            f"model '{path}' takes or returns a {tree['type']}; use tuples, lists and dicts of tensors"
        )
    for child in tree["children_spec"]:
        _check_tree(path, child)
