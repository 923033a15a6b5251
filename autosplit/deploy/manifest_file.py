"""Locating, reading and writing the file ``split.json``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from autosplit.deploy.manifest import FORMAT, NAME, Manifest
from autosplit.errors import ConfigError
from autosplit.files import atomic_write, open_regular
from autosplit.serialization import problem_of


def locate(path: Path) -> Path:
    """The manifest of an exported folder; a path that ends in .json is a manifest itself."""
    # os.path returns False for every name that the system refuses, where pathlib raises.
    if path.suffix == ".json" and not os.path.isdir(path):
        return path
    return path / NAME


def read(path: Path) -> Manifest:
    """The manifest of an exported folder, or the one at a path that ends in .json.

    Raises ConfigError, one line, where it is missing, damaged or of another format.
    """
    file = locate(path)
    try:
        with open_regular(file) as stream:
            content = stream.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ConfigError(
            f"'{path}' has no readable {NAME} ({reason}); "
            "give a folder written by `autosplit export`"
        ) from error
    return parse(content, str(file))


def parse(content: bytes, file: str) -> Manifest:
    """Parse the content of a manifest, called ``file`` in errors. Raises ConfigError."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{file}' is not JSON: {error}; export it again") from error
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT or isinstance(version, bool):
        problem = f"'{file}' has format {version!r}, this autosplit reads {FORMAT}; export it again"
        raise ConfigError(problem)
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        problem = problem_of(error, "the end")
        raise ConfigError(f"'{file}' is damaged at {problem}; export it again") from error


def write(manifest: Manifest, file: Path) -> None:
    """Write the JSON document. Raises MachineError where the disk refuses."""
    text = manifest.model_dump_json(indent=1, by_alias=True) + "\n"
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
