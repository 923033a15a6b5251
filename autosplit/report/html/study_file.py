"""The study file of a recorded study, to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_MAX_DEPTH = 8  # tables and lists inside each other; a study file has three


def study_file(config: Mapping[str, Any]) -> str:
    """The TOML text of a recorded configuration, with the files it names beside it.

    ``storage`` is left out: a URL may hold a password. So is what TOML cannot hold.
    """
    import tomli_w

    shared = {key: value for key, value in config.items() if key not in ("name", "storage")}
    for key in ("model", "tuning"):
        if isinstance(shared.get(key), str):
            shared[key] = PurePath(shared[key]).name
    if "name" in config:
        shared = {"name": config["name"], **shared}
    return tomli_w.dumps(_toml_values(shared))


def _toml_values(value: Any, depth: int = 0) -> Any:
    """What TOML can hold of a value: no None, nothing too deep, no lone surrogates in texts."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, Mapping) and depth <= _MAX_DEPTH:
        table = {_toml_values(k): _toml_values(v, depth + 1) for k, v in value.items()}
        return {key: item for key, item in table.items() if item is not None}
    if isinstance(value, list | tuple) and depth <= _MAX_DEPTH:
        items = [_toml_values(item, depth + 1) for item in value]
        return [item for item in items if item is not None]
    return value if isinstance(value, bool | int | float) else None
