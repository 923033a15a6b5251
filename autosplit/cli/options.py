"""Options that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import re
import textwrap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autosplit.deploy.targets.formats import FORMATS, NATIVE
from autosplit.errors import ConfigError, SplitError
from autosplit.graph import FusedGraph, ops_named
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES, TVM
from autosplit.units import bytes_of

if TYPE_CHECKING:
    from autosplit.api import Model
    from autosplit.planner.workload import Workload


# The arguments of ``add_argument``.
Option = tuple[tuple[str, ...], dict[str, Any]]
_PAIR = re.compile(r"([^=]+)=(.+)", re.DOTALL)
# The name of an input may hold an equals sign.
_SHAPE = re.compile(r"(.+)=(\d+(?:x\d+)*|)", re.DOTALL | re.IGNORECASE | re.ASCII)


def of(text: str, settings: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Option, ...]:
    """Parse options from the layout of a help page: an option, two or more spaces, its help text.

    ``--name VALUE`` takes a value, ``--name {a,b}`` one of these, ``--name VALUE ...`` may be
    repeated, ``--name`` is a flag, and ``NAME`` is a positional argument. A help text may end in a
    default such as ``[default: 5]`` or in ``[required]``, and continues on lines that are indented
    further.
    ``settings``: other arguments of ``add_argument`` by the names of options.
    """
    entries = re.split(r"\n(?=\S)", textwrap.dedent(text).strip())
    return tuple(_option(entry, settings or {}) for entry in entries)


def _option(entry: str, settings: Mapping[str, Mapping[str, Any]]) -> Option:
    form, text = re.split("  +", entry, maxsplit=1)
    pattern = r"(.*?)(?: \[default: (.*)\])?( \[required\])?$"
    text, default, required = re.findall(pattern, " ".join(text.split()))[0]
    words = form.replace(", -", " -").split()
    flags = [word for word in words if word.startswith("-")]
    places = words[len(flags) :]
    name = (flags or places)[-1].lstrip("-").lower()
    known: dict[str, Any] = {"help": f"{text} (default: {default})" if default else text}
    if not places:
        known["action"] = "store_true"
    elif places[0].startswith("{"):
        known["choices"] = places[0].strip("{}").split(",")
    else:
        known |= {"metavar": places[0], "type": TYPES.get(name, str)}
    if "..." in places:
        known |= {"action": "append", "default": [], "help": f"{text}; repeatable"}
    if default:
        known["default"] = default
    if required:
        known["required"] = True
    return tuple(flags) or (name,), known | dict(settings.get(name, {}))


def workload(args: argparse.Namespace) -> Workload | None:
    """The workload of these options; None without any. Raises ConfigError for a delay alone."""
    from autosplit.planner.workload import Workload

    if args.rate is None and args.p99 is None:
        if args.delay is not None:
            raise ConfigError("--delay is for items that come by themselves; give --rate or --p99")
        return None
    return Workload(args.rate, args.p99, args.delay)


def load_model(args: argparse.Namespace) -> Model:
    """Load the model that the options name."""
    from autosplit import api

    # `inspect` and `tune` have no --runtime: fused ops and kernels are TVM's.
    runtime = getattr(args, "runtime", TVM)
    return api.load_model(
        args.model,
        shapes(args.shape),
        args.target,
        args.tuning,
        runtime=runtime,
        targets=targets(args.device_target),
        states=states(args.state),
        tolerance=getattr(args, "tolerance", None),
        trust_kernels=args.trust_kernels,
    )


def states(texts: list[str]) -> dict[str, str] | Literal["auto"]:
    """``--state`` options as a mapping. Raises ConfigError for a misspelt or repeated one."""
    if texts == ["auto"]:
        return "auto"
    return _pairs("--state", texts, _PAIR, "INPUT=OUTPUT")


def targets(texts: list[str]) -> dict[str, str]:
    """``--device-target`` options as a mapping. Raises ConfigError as ``states``."""
    return _pairs("--device-target", texts, _PAIR, "DEVICE=TARGET")


def shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """``--shape`` options as a mapping. Raises ConfigError as ``states``."""
    pairs = _pairs("--shape", texts, _SHAPE, "INPUT=1x3x224x224")
    return {name: tuple(map(int, re.findall(r"\d+", sizes))) for name, sizes in pairs.items()}


def _pairs(option: str, texts: list[str], form: re.Pattern[str], example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        match = form.fullmatch(text)
        if match is None:
            raise ConfigError(f"{option} {text!r} is invalid; write {example}")
        if match[1] in pairs:
            raise ConfigError(f"{option} names '{match[1]}' twice; give each once")
        pairs[match[1]] = match[2]
    return pairs


def names(text: str, graph: FusedGraph) -> tuple[str, ...]:
    """Names separated by commas, unless all of it is the name of a node, which may hold commas."""
    with contextlib.suppress(SplitError):
        ops_named(graph, text)
        return (text,)
    return tuple(part for part in map(str.strip, text.split(",")) if part)


def devices(text: str | None) -> tuple[str, ...]:
    """``--devices`` as a tuple: devices are separated by spaces, or by semicolons."""
    return tuple((text or "").replace(";", " ").split())


def stages(text: str) -> int | str:
    """``--stages`` as an argparse type: a number, or ``auto``."""
    return text if text == "auto" else _number("stages", text, ", or auto")


def batches(text: str) -> tuple[int, ...] | str:
    """``--batch`` as an argparse type: numbers separated by commas, or ``auto``."""
    return text if text == "auto" else _numbers("items", text)


def memory(text: str) -> float:
    """A number of bytes, as an argparse type: ``3e9`` or ``3 GB``."""
    try:
        return bytes_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(things: str, text: str, other: str = "") -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        message = f"invalid number of {things} {text!r}; give 1 or more{other}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _numbers(things: str, text: str) -> tuple[int, ...]:
    return tuple(_number(things, part) for part in text.split(","))


def _above_zero(quantity: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    # NaN fails every comparison, so it is refused here too.
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"invalid {quantity} {text!r}; give a number above 0")
    return value


def delay(text: str) -> float:
    """A number of milliseconds, which may be 0."""
    return 0.0 if re.fullmatch(r"0+(\.0*)?", text) else _above_zero("number of milliseconds", text)


TYPES: dict[str, Any] = {
    **dict.fromkeys(("chart", "folder", "model", "output", "save", "trace", "tuning"), Path),
    **dict.fromkeys(("items", "port", "seed", "trial", "trials"), int),
    **dict.fromkeys(("body", "memory"), memory),
    **dict.fromkeys(("seconds", "timeout"), partial(_above_zero, "time in seconds")),
    "batch": batches,
    "cores": partial(_number, "cores"),
    "delay": delay,
    "p99": partial(_above_zero, "number of milliseconds"),
    "queue": partial(_number, "items"),
    "rate": partial(_above_zero, "number of items a second"),
    "replicas": partial(_numbers, "replicas"),
    "samples": partial(_number, "samples"),
    "stages": stages,
    "streams": partial(_number, "streams"),
    "tolerance": partial(_above_zero, "tolerance"),
}
SHAPE = of("--shape INPUT=1x3x224x224 ...  shape of a dynamic input; one item by default")
STATE = of("""
    --state INPUT=OUTPUT ...  input whose value is an output of the previous item of the stream, or
        auto: those that inspect proposes
""")
TRUST = of("--trust-kernels  read a Relax module with kernels of its own, which are code")
MODEL = (
    *of("MODEL  ONNX file, Relax module (.json) or exported PyTorch program (.pt2)"),
    *SHAPE,
    *of("""
        --target TARGET  target of the kernels, e.g. 'llvm -mcpu=x86-64-v3' (default: this CPU)
        --device-target DEVICE=TARGET ...  target of one device, e.g. 'rpc:pi:9090=llvm
            -mtriple=aarch64-linux-gnu'
        --tuning DIR     tuning database of `autosplit tune`
    """),
    *STATE,
    *TRUST,
)
STUDY = of("""
    STUDY          study file (.toml), database (.db), or name of a study in --storage
    --storage URL  file or database URL of the study (default: AUTOSPLIT_STORAGE, or NAME.db)
""")
TARGET = of(
    """
    --format {}  write a program for the stages too: in ONNX, in C++ or on Ray (default: native)
    --no-onnx    leave out the copies of TVM's stages as ONNX models
    """,
    {"format": {"choices": FORMATS, "dest": "target_format", "default": NATIVE}},
)
EXPORT = of("FOLDER  folder written by `export` or `split`", {"folder": {"metavar": "DIR"}})
BATCH = of("""
    --batch N[,N...]  items computed at once: one of these numbers, or auto: 1, doubled while that
        is faster (default: 1)
""")
WORKLOAD = of("""
    --rate R    items per second that arrive, whether or not earlier ones are done
    --p99 MS    latency that 99 %% of the items keep within
    --delay MS  longest time that a batch waits to be full (default: what serves most)
""")
TOLERANCE = of("""
    --tolerance SHARE  largest error of outputs as a share of the largest value (default: by the
        model)
""")
RUNTIME = of(
    "--runtime {}  runtime of the stages (default auto: the fastest installed one for each stage)",
    {"runtime": {"choices": (*RUNTIMES, AUTO)}},
)
