"""Writes a study file for a model that has none, with all that is assumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from autosplit.errors import ConfigError
from autosplit.files import atomic_write
from autosplit.hardware.devices.device import available
from autosplit.study.config.study_file import (
    MOST_CORES,
    StudyConfig,
    checked,
    overlay,
    read,
    study_name,
)

MODEL_SUFFIXES = (".onnx", ".pt2", ".json")
_KEYS = {
    "cores", "stages", "devices", "batch", "runtime", "search", "workload", "shapes", "states",
}  # fmt: skip


def study_file_for(model: Path, options: Mapping[str, Any]) -> tuple[Path, bool]:
    """The study file NAME.toml of a model, and if it was written now; an existing one is kept.

    ``options`` are those of the command line, nested like the file; without ``cores``, ``stages``
    or ``devices`` all cores of this process are used. Raises ConfigError if the model does not
    exist, an option is not valid, or NAME.toml is for another model.
    """
    file = Path(f"{study_name(model)}.toml")
    if not model.is_file():
        raise ConfigError(f"model file '{model}' does not exist; give a model or a study file")
    path = os.path.relpath(model)
    if file.exists():
        if Path(str(read(file).get("model"))).resolve() != model.resolve():
            remedy = f"move it, or run '{model}' in another folder"
            raise ConfigError(f"'{file}' is the study file of another model; {remedy}")
        return file, False
    known = overlay({}, options)
    if not {"cores", "stages", "devices"} & known.keys():
        known["cores"] = min(len(available()), MOST_CORES)
    config = checked({"name": file.stem, "model": path, **known}, f"study of '{model}'")
    assumed = StudyConfig.model_dump(config, include=_KEYS, exclude_none=True)
    assumed = {key: value for key, value in assumed.items() if value not in ({}, [])}
    if config.cores is not None:
        del assumed["stages"]
    with atomic_write(file) as temporary:
        temporary.write_text(tomli_w.dumps({"model": path, **assumed}), encoding="utf-8")
    return file, True
