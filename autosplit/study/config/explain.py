"""What is wrong in a study file, as one line: key, value and remedy; and former names of keys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from autosplit.study.config.sections import Section

FORMER_NAMES = {"backend": "runtime"}  # keys of studies of earlier versions
VALUE_LIMIT = 60  # characters of a value that are shown


def with_current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored study file or identity with the keys of this version."""
    return {FORMER_NAMES.get(key, key): value for key, value in stored.items()}


def explain(error: ValidationError, sections: Mapping[str, type[Section]]) -> str:
    """The first error of a study file.

    ``sections``: those whose keys are known, by the prefix of their keys.
    """
    # A misspelt key comes first: it may make another one missing.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        if key in FORMER_NAMES:
            new_key = FORMER_NAMES[key]
            return f"{key} is now called {new_key}; write {new_key} = {first['input']!r}"
        return f"unknown key '{key}'; {_known_keys(str(first['loc'][-1]), sections)}"
    if first["type"] == "missing":
        return f"{key} is missing; add {key} = ..."
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return message
    value = repr(first["input"])
    if len(value) > VALUE_LIMIT:
        value = value[: VALUE_LIMIT - 3] + "..."
    return f"{key} is {value}: {message[0].lower()}{message[1:]}; change {key}"


def _known_keys(name: str, sections: Mapping[str, type[Section]]) -> str:
    """The known key that is nearest to an unknown one, else those of the whole file."""
    names: dict[str, str] = {}
    for prefix, section in sections.items():
        for field in section.__pydantic_fields__:
            names[prefix + field] = field
    close = difflib.get_close_matches(name, names.values(), 1)
    if close:
        return f"did you mean '{next(key for key in names if names[key] == close[0])}'?"
    return f"keys are {', '.join(key for key in names if '.' not in key)}"
