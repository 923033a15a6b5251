"""A mapping as TOML, which the standard library reads but does not write (https://toml.io/en/v1.0.0)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 8  # tables and lists; a study file has three
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(values: Mapping[str, Any]) -> str:
    """The document; keys without a value (None), and what TOML cannot hold or lies too deep, are left out.

    Characters that are no text (lone surrogates) become question marks.
    """
    return "\n".join(_table(values, ())) + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in values.items():
        if not isinstance(value, Mapping) and (text := _value(value, len(path))) is not None:
            yield f"{_key(key)} = {text}"
    for key, value in values.items():
        if isinstance(value, Mapping) and len(path) < _DEEPEST:
            below = (*path, _key(key))
            yield from ("", f"[{'.'.join(below)}]", *_table(value, below))


def _value(value: Any, depth: int) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return repr(value)
    if depth >= _DEEPEST:
        return None
    if isinstance(value, list | tuple):
        return f"[{', '.join(t for v in value if (t := _value(v, depth + 1)) is not None)}]"
    if isinstance(value, Mapping):
        pairs = [(_key(k), _value(v, depth + 1)) for k, v in value.items()]
        return f"{{{', '.join(f'{k} = {v}' for k, v in pairs if v is not None)}}}"
    return None


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A basic string: what JSON escapes, TOML reads, but for the delete character and what is no text."""
    text = text.encode("utf-8", errors="replace").decode("utf-8")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
