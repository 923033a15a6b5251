"""The study file: TOML, checked strictly, overridden by the options of the command line.

This module imports pydantic; import it where a study file is read.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from autosplit.deployment import cores_of
from autosplit.errors import ConfigError
from autosplit.hardware.devices.core_kinds import by_kind
from autosplit.hardware.devices.device import available
from autosplit.hardware.execution.batches import MOST as MOST_BATCH
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES, TVM
from autosplit.planner.problem import MOST_STATES
from autosplit.planner.workload import QUANTILES
from autosplit.study.config.sections import (
    MOST_STAGES,
    Limits,
    Measure,
    Name,
    Objective,
    Positive,
    Regions,
    Search,
    Section,
    StatePair,
    Text,
    Workload,
)
from autosplit.units import bytes_of

MOST_CORES = 256
MOST_STREAMS = 10_000
SIZE_LIMIT = 1_000_000  # bytes; a study file is a page of text
# Keys of earlier versions, and what to write instead.
FORMER_NAMES = {
    "backend": "is now called runtime; write runtime = {value!r}",
    "precision": "is gone, and so are the less exact kernels; remove it",
    "realtime": "is gone; write workload = {{ rate = R }} with its items_per_second",
    "simulated": "is gone; python -m studies.simulation in the repository has simulated devices",
}
VALUE_LIMIT = 60  # characters of a value that are shown
# What pydantic writes after a key for each type that it tried.
_TYPE = re.compile(r"constrained-.*|(literal|list)\[.*")
_MAPPING = re.compile(r"a valid dictionary( or instance of \w+)?")
_CORE_LIST = re.compile(r"\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*", re.ASCII)
_RUNTIMES = [*RUNTIMES, AUTO]


def _listed(value: Any) -> Any:
    """A single value as a list with it; lists and "auto" are returned as they are."""
    return value if value == "auto" or isinstance(value, list) else [value]


def _batches(value: Any) -> Any:
    """Validate batch sizes: "auto", or a number or list, which becomes a sorted list."""
    numbers = _listed(value)
    is_valid = numbers and all(type(n) is int and 1 <= n <= MOST_BATCH for n in numbers)
    if value != "auto" and not is_valid:
        choices = f'a number from 1 to {MOST_BATCH}, a list of such numbers or "auto"'
        raise ValueError(f"batch must be {choices}, not {value!r}")
    return value if value == "auto" else sorted({*numbers})


def _cores(value: Any) -> Any:
    """Validate cores: how many, or which ones as in "0-3", or a list of these with one a kind."""
    if type(value) is int and 1 <= value <= MOST_CORES:
        return value
    kinds: list[Any] = value if isinstance(value, list) else [value]
    if all(isinstance(kind, str) and _CORE_LIST.fullmatch(kind) for kind in kinds):
        numbers = [cores_of(f"cores:{kind}") for kind in kinds]
        cores = list(chain(*numbers))
        if cores and all(numbers) and len(set(cores)) == len(cores):
            return value
    raise ValueError(
        f'give a number from 1 to {MOST_CORES}, or different core numbers as in "0-3" or "0,2", or '
        "a list of them, one for each kind of cores"
    )


def _runtime(name: str) -> str:
    if name not in _RUNTIMES:
        raise ValueError(f"give {', '.join(_RUNTIMES)}")
    return name


RuntimeName = Annotated[
    str, AfterValidator(_runtime), Field(json_schema_extra={"enum": list(_RUNTIMES)})
]
Dimension = Annotated[int, Field(ge=1)]
Auto = Literal["auto"]
Stages = Annotated[int, Field(ge=1, le=MOST_STAGES)] | Auto
Batches = Annotated[list[Annotated[int, Field(ge=1, le=MOST_BATCH)]], Field(min_length=1)] | Auto
Listed = BeforeValidator(_listed, json_schema_input_type=Any)
Bytes = Annotated[float, BeforeValidator(lambda value: bytes_of(str(value)))]


class StudyConfig(Section):
    """A whole study file with its defaults; paths are absolute once ``load`` has read it.

    ``stages``: their number, or ``"auto"``: any number up to the devices, or without ``devices`` up
    to the cores that this process may use. Then a stage may be empty and leave its device unused.
    Where only ``devices`` are given there is a stage for each.

    ``cores``: their number, or which they are as in ``"0-7"``, or a list with those of each kind.
    Then deployments on them are searched: any number of stages, each with any number of replicas
    and threads; the replicas of a stage have cores of one kind.

    ``memory``: the most bytes of each stage (weights and the tensors at its borders), or a list
    with a limit for each device; with ``cores`` the most bytes of each replica.

    ``batch``: how many items may be computed at once: a number, a list of numbers, or ``"auto"``,
    which is 1, doubled while that is faster.

    ``streams``: how many streams share the deployment; their items come in turn, and each replica
    of a stage with states serves whole streams. ``workload``: how the items of all streams arrive.

    ``tolerance``: the relative error that outputs may have; by default it follows from the model.

    ``objective``: ``throughput`` (the least period), ``latency`` (of one item), ``goodput`` (the
    greatest rate within the limit of the workload) or ``cores`` (the fewest that sustain its rate
    within its limit). If the workload has a limit, the default is one of the last two.
    """

    name: Name
    model: Text | None = None
    zoo: Text | None = None
    stages: Stages
    cores: Annotated[int | str | list[str], PlainValidator(_cores)] | None = None
    devices: Annotated[list[Text], Field(min_length=1)] | None = None
    memory: Annotated[list[Bytes], Listed] | None = None
    batch: Annotated[Batches, BeforeValidator(_batches, json_schema_input_type=Any)] = [1]  # noqa: RUF012
    runtime: RuntimeName = AUTO
    objective: Objective = "throughput"
    shapes: dict[str, list[Dimension]] = Field(default_factory=dict)
    target: Text | None = None
    targets: dict[str, Text] = Field(default_factory=dict)
    tuning: Text | None = None
    tolerance: Positive | None = None
    storage: Text | None = None
    export: Text | None = None
    search: Search = Field(default_factory=Search)
    measure: Measure = Field(default_factory=Measure)
    limits: Limits = Field(default_factory=Limits)
    regions: list[Regions] = Field(default_factory=list)
    states: list[StatePair] | Literal["auto"] = Field(default_factory=list)
    streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 1
    workload: Workload | None = None

    @property
    def most_stages(self) -> int:
        """The largest number of stages: one a device."""
        if self.stages != "auto":
            return self.stages
        return len(self.devices) if self.devices else min(len(available()), MOST_STAGES)

    @property
    def core_kinds(self) -> tuple[tuple[int, ...], ...]:
        """The cores of each kind: as they are listed, or as this machine tells them apart."""
        if isinstance(self.cores, list):
            return tuple(cores_of(f"cores:{numbers}") for numbers in self.cores)
        if isinstance(self.cores, str):
            numbers = cores_of(f"cores:{self.cores}")
        else:
            numbers = available()[: self.cores or 0]
        kinds = by_kind(numbers)
        # The file lists no kinds, so if there are too many, all cores count as one kind.
        return kinds if _ways_to_use(list(map(len, kinds))) <= MOST_STATES else (numbers,)

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """Pairs of a kind of cores, called 0, 1, …, and a number of threads of a replica.

        The numbers of threads are powers of two, and the number of all cores of the kind.
        """
        pairs: list[tuple[str, int]] = []
        for kind, most in enumerate(map(len, self.core_kinds)):
            counts = {*(1 << n for n in range(most.bit_length())), most} - {0}
            pairs += [(str(kind), threads) for threads in sorted(counts)]
        return tuple(pairs)

    @property
    def bench_devices(self) -> tuple[str, ...]:
        """The devices that are profiled: those of the stages, or one for each number of threads."""
        if self.cores is None:
            return tuple(self.devices or ())
        kinds = self.core_kinds
        chosen = (kinds[int(kind)][:threads] for kind, threads in self.rows)
        return tuple(f"cores:{','.join(map(str, numbers))}" for numbers in chosen)

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        """Set the number of stages by the devices or cores, the objective by the workload."""
        if not isinstance(data, dict):
            return data
        defaults: dict[str, Any] = {}
        devices, load = data.get("devices"), data.get("workload")
        if data.get("stages") is None and data.get("cores") is not None:
            defaults["stages"] = "auto"
        elif data.get("stages") is None and isinstance(devices, list):
            defaults["stages"] = len(devices)
        items = load.items() if isinstance(load, dict) else ()
        set_keys = {key for key, value in items if value is not None}
        if set_keys & {f"{name}_ms" for name in QUANTILES} and "objective" not in data:
            has_rate = bool(set_keys & {"rate", "arrivals"})
            defaults["objective"] = "cores" if has_rate else "goodput"
        return {**data, **defaults}

    @model_validator(mode="after")
    def _consistent(self) -> StudyConfig:
        problems = (self._model_problems(), self._device_problems(), self._core_problems())
        for problem in chain(*problems, self._runtime_problems(), self._workload_problems()):
            raise ValueError(problem)
        return self

    def _model_problems(self) -> Iterator[str]:
        if self.model and self.zoo:
            yield "model and zoo are both given; keep one"
        if not (self.model or self.zoo):
            yield 'no model is given; add model = "FILE.onnx" or zoo = "squeezenet"'

    def _device_problems(self) -> Iterator[str]:
        known = self.devices or []
        if self.devices is not None and self.stages not in ("auto", len(known)):
            yield f"stages is {self.stages} but devices has {len(known)}; give one device per stage"
        if len(self.memory or ()) not in (0, 1, self.most_stages):
            yield (
                f"memory has {len(self.memory or ())} limits; give one, or one for each of the "
                f"{self.most_stages} devices"
            )
        unknown = next((name for name in self.targets if name not in known), None)
        if unknown:
            yield f"unknown device '{unknown}' in targets; name one of the devices"
        for region in self.regions:
            if known and region.device and region.device not in known:
                yield (
                    f"unknown regions.device '{region.device}', devices are {', '.join(known)}; "
                    "name one of the devices"
                )

    def _core_problems(self) -> Iterator[str]:
        if self.cores is None:
            return
        if len(self.memory or ()) > 1:
            yield f"memory has {len(self.memory or ())} limits; with cores give one"
        sizes = list(map(len, self.core_kinds))
        if len(sizes) > 1 and _ways_to_use(sizes) > MOST_STATES:
            yield f"cores of {len(sizes)} kinds are too many to plan for; list fewer cores or kinds"
        if self.stages != "auto" or self.devices is not None:
            other = "devices" if self.devices is not None else "stages"
            yield f"cores and {other} are both given; keep one"
        if any(region.device for region in self.regions):
            yield "regions.device is given; with cores all regions run on any core"

    def _runtime_problems(self) -> Iterator[str]:
        if self.tuning and self.runtime not in (TVM, AUTO):
            yield f"tuning is for TVM's kernels, runtime is '{self.runtime}'; remove tuning"
        if self.regions and self.runtime not in (TVM, AUTO):
            yield f"regions are given, runtime is '{self.runtime}'; set runtime = \"tvm\""
        if self.batch != [1] and self.states:
            yield "batch is given with states, which belong to single items; remove batch"

    def _workload_problems(self) -> Iterator[str]:
        load = self.workload or Workload()
        if len(load.limits) > 1:
            yield f"workload has limits of {' and '.join(load.limits)}; keep one"
        if load.rate is not None and load.arrivals is not None:
            yield "workload.rate and workload.arrivals are both given; keep one"
        if self.objective in ("goodput", "cores") and not load.limits:
            yield f'objective is "{self.objective}" without a limit; add workload.p99_ms'
        if self.objective == "cores" and load.rate is None and load.arrivals is None:
            yield 'objective is "cores" without a rate; add workload.rate'
        if self.workload and self.objective == "latency":
            yield 'workload is given, but the objective is "latency"; remove one'


def _ways_to_use(cores: list[int]) -> int:
    """The number of ways to use none, some or all cores of each kind."""
    return math.prod(number + 1 for number in cores)


SECTIONS: dict[str, type[Section]] = {
    "": StudyConfig,
    "search.": Search,
    "measure.": Measure,
    "limits.": Limits,
    "workload.": Workload,
}


def load(path: Path, options: Mapping[str, Any] | None = None) -> StudyConfig:
    """Read a study file; ``options``, nested like the file, override it where they are not None.

    Raises ConfigError with one line that names the key, its value and the remedy.
    """
    data, chosen = read(path), {k for k, value in (options or {}).items() if value is not None}
    # Cores exclude stages and devices, so options for one of them remove the other from the file.
    for keys, others in (({"cores"}, ("stages", "devices")), ({"stages", "devices"}, ("cores",))):
        for other in others if keys & chosen else ():
            data.pop(other, None)
    data = overlay(data, options or {})
    data.setdefault("name", study_name(path))
    # Paths of files to read are relative to the study file; output goes to the working folder.
    load = data.get("workload")
    for table, key in ((data, "model"), (data, "tuning"), (load, "arrivals")):
        if isinstance(table, dict) and isinstance(table.get(key), str) and table[key]:
            table[key] = str(path.resolve().parent / table[key])
    return checked(data, f"study file '{path}'")


def study_name(path: Path) -> str:
    """The name of a study after its file, without characters that no study name may have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).lstrip(".-") or "study"


def checked(data: object, where: str) -> StudyConfig:
    """Validate the document of a study file. Raises ConfigError for the first mistake in it."""
    try:
        return StudyConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error)}") from None


def stored(data: object, study: str) -> StudyConfig:
    """The study file that a study stores. Raises ConfigError if this version cannot read it."""
    return checked(data, f"study '{study}' was not stored by this version of autosplit")


def explain(error: ValidationError) -> str:
    """The first mistake in a study file as one line: key, value and remedy."""
    # Report an unknown key first: it may be misspelt, so that another key seems to be missing.
    errors = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    first = errors[0]
    key = ".".join(part for part in map(str, first["loc"]) if not _TYPE.fullmatch(part))
    if first["type"] == "extra_forbidden":
        if key in FORMER_NAMES:
            return f"{key} {FORMER_NAMES[key]}".format(value=first["input"])
        return f"unknown key '{key}'; {_known_keys(key)}"
    if first["type"] == "missing":
        return f"{key} is missing; add {key} = ..."
    message = first["msg"].removeprefix("Value error, ")
    if not key or message.startswith(f"{key} "):
        return message
    if _TYPE.fullmatch(str(first["loc"][-1])):
        others = (e["msg"] for e in errors[1:] if e["loc"][0] == first["loc"][0])
        message = " or ".join([message, *(m.removeprefix("Input should be ") for m in others)])
    value = repr(first["input"])
    if len(value) > VALUE_LIMIT:
        value = value[: VALUE_LIMIT - 3] + "..."
    if first["type"] == "literal_error":
        choices = first.get("ctx", {})["expected"].replace("'", "")
        return f"{key} is {value}; give {choices}"
    if message.startswith("Input should be "):
        kind = _MAPPING.sub("a table", message.removeprefix("Input should be "))
        return f"{key} must be {kind}, not {value}"
    return f"{key} is {value}: {message[0].lower()}{message[1:]}; change {key}"


def _known_keys(unknown: str) -> str:
    """The known key that is nearest to an unknown one, else those of its section."""
    section, dot, name = unknown.rpartition(".")
    names = {prefix + key: key for prefix, each in SECTIONS.items() for key in each.model_fields}
    close = difflib.get_close_matches(name, names.values(), 1)
    if close:
        return f"did you mean '{next(key for key in names if names[key] == close[0])}'?"
    known = SECTIONS.get(section + dot, StudyConfig).model_fields
    return f"keys{f' of {section}' if section else ''} are {', '.join(known)}"


def read(path: Path) -> dict[str, Any]:
    """The document of a study file. Raises ConfigError where it is no TOML."""
    where = f"study file '{path}'"
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise ConfigError(f"{where} does not exist; give the path of a .toml file") from None
    except OSError as error:
        problem = f"{where} cannot be read: {error.strerror}; give a readable .toml file"
        raise ConfigError(problem) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError(f"{where} is larger than {SIZE_LIMIT} bytes; give a study file in TOML")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is not UTF-8 text; expected TOML") from None
    except (ValueError, RecursionError) as error:  # a number may have too many digits
        raise ConfigError(f"{where} is not TOML: {error}; fix that line") from None


def overlay(data: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Override the values of a file by nested options that are not None."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            section = data.get(key, {})
            if isinstance(section, dict):  # anything else is refused when it is validated
                data[key] = overlay(dict(section), value)
        elif value is not None:
            data[key] = value
    return data
