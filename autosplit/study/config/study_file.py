"""The study file: TOML, checked strictly, with the options of the command line laid over it.

This module imports pydantic; import it where a study file is read.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationError, model_validator

from autosplit.errors import ConfigError
from autosplit.hardware.devices.device import available
from autosplit.hardware.runtimes.registry import RUNTIMES, TVM
from autosplit.study.config.former_names import with_current_names
from autosplit.study.config.objectives import NAMES, Objective
from autosplit.study.config.sections import (
    Measure,
    Name,
    Regions,
    Search,
    Section,
    SimulatedHardware,
    Text,
)

MOST_STAGES = 256
SIZE_LIMIT = 1_000_000  # bytes; a study file is a page of text


def _positive_dimensions(shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    for name, shape in shapes.items():
        if any(d < 1 for d in shape):
            raise ValueError(f"'{name}' has a dimension below 1")
    return shapes


def _objective(value: Any) -> Any:
    """One objective, or several in the order of their importance."""
    given = value if isinstance(value, list) else [value]
    if (
        not given
        or any(not isinstance(name, str) or name not in NAMES for name in given)
        or len(set(given)) < len(given)
    ):
        raise ValueError(f"give {', '.join(NAMES)} or a list of them, each once")
    return value


def _stages(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_STAGES:
        raise ValueError(f'give a number from 1 to {MOST_STAGES}, or "auto"')
    return value


def _known_runtime(name: str) -> str:
    if name not in _RUNTIMES:
        raise ValueError(f"give {', '.join(_RUNTIMES)}")
    return name


_RUNTIMES = [*RUNTIMES, "simulated"]
RuntimeName = Annotated[
    str, AfterValidator(_known_runtime), Field(json_schema_extra={"enum": list(_RUNTIMES)})
]


class StudyConfig(Section):
    """A whole study file, its defaults filled in; paths are absolute once ``load`` has read it.

    ``stages``: how many, or ``"auto"``: any number up to the devices, a single one included; without ``devices`` up to the
    cores this process may use. Then a stage may stay empty and leaves its device unused. Where only ``devices`` are given
    there is a stage for each.

    ``objective``: ``throughput`` (the least period), ``latency`` (of one item), ``memory`` (of the largest stage: its
    weights and the tensors at its borders), or a list of them: the trials then form a Pareto front, and of it the best by
    the first objective is exported.
    """

    name: Name
    model: Text | None = None
    zoo: Text | None = None
    stages: Annotated[int | Literal["auto"], PlainValidator(_stages)]
    devices: Annotated[list[Text], Field(min_length=1)] | None = None
    runtime: RuntimeName = TVM
    objective: Annotated[Objective | list[Objective], PlainValidator(_objective)] = "throughput"
    shapes: Annotated[dict[str, list[int]], AfterValidator(_positive_dimensions)] = Field(
        default_factory=dict
    )
    target: Text | None = None
    targets: dict[str, Text] = Field(default_factory=dict)
    tuning: Text | None = None
    storage: Text | None = None
    export: Text | None = None
    search: Search = Field(default_factory=Search)
    measure: Measure = Field(default_factory=Measure)
    simulated: SimulatedHardware | None = None
    regions: list[Regions] = Field(default_factory=list)

    @property
    def objectives(self) -> tuple[str, ...]:
        """What is minimised, the most important first."""
        return tuple(self.objective) if isinstance(self.objective, list) else (self.objective,)

    @property
    def places(self) -> int:
        """How many stages there are at most: one a device."""
        if self.stages != "auto":
            return self.stages
        return len(self.devices) if self.devices else min(len(available()), MOST_STAGES)

    @model_validator(mode="before")
    @classmethod
    def _one_device_a_stage(cls, data: Any) -> Any:
        """Where only devices are given there is a stage for each."""
        if (
            isinstance(data, dict)
            and data.get("stages") is None
            and isinstance(data.get("devices"), list)
        ):
            return {**data, "stages": len(data["devices"])}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> StudyConfig:
        if self.devices is not None and self.stages not in ("auto", len(self.devices)):
            raise ValueError(
                f"stages is {self.stages}, devices are {len(self.devices)}; give one device a stage"
            )
        if unknown := [name for name in self.targets if name not in (self.devices or ())]:
            raise ValueError(
                f"targets name '{unknown[0]}', which is none of the devices; name one of them"
            )
        sources = [key for key in ("model", "zoo") if getattr(self, key)]
        if self.simulated and self.simulated.graph:
            sources.append("simulated.graph")
        if len(sources) > 1:
            raise ValueError(f"{' and '.join(sources)} are both given; keep one")
        if not sources and self.runtime != "simulated":
            raise ValueError('no model is given; add model = "FILE.onnx" or zoo = "squeezenet"')
        if self.simulated and self.runtime != "simulated":
            raise ValueError(
                f"[simulated] is given, runtime is '{self.runtime}'; set runtime = \"simulated\""
            )
        if self.tuning and self.runtime not in (TVM, "simulated"):
            raise ValueError(
                f"tuning is given, but it is for TVM's kernels, not for {self.runtime}; remove tuning"
            )
        if self.regions and self.runtime != TVM:
            raise ValueError(
                f"regions are given, but runtime is '{self.runtime}'; set runtime = \"tvm\""
            )
        for region in self.regions:
            if region.device and self.devices is not None and region.device not in self.devices:
                known = ", ".join(self.devices)
                raise ValueError(
                    f"regions.device is '{region.device}', which is none of {known}; name one of the devices"
                )
        if self.export and self.runtime == "simulated":
            raise ValueError(
                "export is given, but simulated hardware builds nothing; remove export"
            )
        return self


def load(path: Path, options: Mapping[str, Any] | None = None) -> StudyConfig:
    """Read a study file and lay ``options`` over it (nested like the file; None leaves a key as it is).

    Raises ConfigError, one line, naming the key, its value and the remedy.
    """
    data = _overlay(_read(path), options or {})
    data.setdefault("name", re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).lstrip(".-") or "study")
    _make_absolute(data, path.resolve().parent)
    try:
        return StudyConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"study file '{path}': {_explain(error)}") from None


def stored(data: object, study: str) -> StudyConfig:
    """The study file kept with a study. Raises ConfigError where it is none that this version reads."""
    try:
        return StudyConfig.model_validate(
            with_current_names(data) if isinstance(data, dict) else data
        )
    except ValidationError as error:
        raise ConfigError(
            f"study '{study}' was not stored by this version of autosplit: {_explain(error)}"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"study file '{path}' does not exist; give the path of a .toml file"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"study file '{path}' cannot be read: {error.strerror}; give a readable .toml file"
        ) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError(
            f"study file '{path}' is larger than {SIZE_LIMIT} bytes; give a study file in TOML"
        )
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError:
        raise ConfigError(
            f"study file '{path}' is no text; give a study file in TOML, which names the model"
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"study file '{path}' is not TOML: {error}; correct that place") from None


def _overlay(data: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            below = data.get(key, {})
            data[key] = _overlay(dict(below), value) if isinstance(below, dict) else below
        elif value is not None:
            data[key] = value
    return data


def _make_absolute(data: dict[str, Any], folder: Path) -> None:
    """Files that are read lie beside the study file; what is written goes to the working folder."""
    for key in ("model", "tuning"):
        if isinstance(data.get(key), str) and data[key]:
            data[key] = str(folder / data[key])
    simulated = data.get("simulated")
    if (
        isinstance(simulated, dict)
        and isinstance(simulated.get("graph"), str)
        and simulated["graph"]
    ):
        data["simulated"] = {**simulated, "graph": str(folder / simulated["graph"])}


def _explain(error: ValidationError) -> str:
    """The first thing wrong, as one line: key, value and what to do."""
    first = min(
        error.errors(), key=lambda e: e["type"] != "extra_forbidden"
    )  # a misspelt key may make another one missing
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        if key == "backend":
            return f"backend is now called runtime; write runtime = {first['input']!r}"
        return f"{key} is no key; {_known(first['loc'])}"
    if first["type"] == "missing":
        return f"{key} is missing; add {key} = ..."
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return message
    value = repr(first["input"])
    return f"{key} is {value if len(value) <= 60 else value[:57] + '...'}: {message[0].lower()}{message[1:]}; change {key}"


def _known(loc: tuple[int | str, ...]) -> str:
    """What the writer of an unknown key may have meant: the nearest known key of any section."""
    sections: dict[str, type[Section]] = {
        "": StudyConfig,
        "search.": Search,
        "measure.": Measure,
        "simulated.": SimulatedHardware,
    }
    known = {
        prefix + field: field
        for prefix, section in sections.items()
        for field in section.__pydantic_fields__
    }
    close = difflib.get_close_matches(str(loc[-1]), known.values(), 1)
    if close:
        return f"did you mean {next(key for key, field in known.items() if field == close[0])}?"
    return f"keys are {', '.join(key for key in known if '.' not in key)}"
