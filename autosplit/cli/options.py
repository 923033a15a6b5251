"""Options that several commands share."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autosplit.deploy.targets.formats import FORMATS, NATIVE
from autosplit.errors import ConfigError
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES, TVM
from autosplit.units import bytes_of

if TYPE_CHECKING:
    from autosplit.api import Model
    from autosplit.graph import FusedGraph
    from autosplit.planner.workload import Workload


Option = tuple[tuple[str, ...], dict[str, Any]]  # the arguments of ``add_argument``


def option(*names: str, **settings: Any) -> Option:
    """An option of several commands, or an argument."""
    return names, settings


def repeated(name: str, metavar: str, text: str) -> Option:
    """An option that may stand several times."""
    return option(name, action="append", default=[], metavar=metavar, help=f"{text}; repeatable")


def add(parser: argparse.ArgumentParser, *chosen: Option) -> None:
    """Let a command take some options."""
    for names, settings in chosen:
        parser.add_argument(*names, **settings)


def output(metavar: str, text: str, *, required: bool = False) -> Option:
    """The file or the folder that the command writes."""
    return option("-o", "--output", type=Path, metavar=metavar, required=required, help=text)


def workload(args: argparse.Namespace) -> Workload | None:
    """The workload of these options; None without any."""
    from autosplit.planner.workload import Workload

    if args.rate is None and args.p99 is None:
        return None
    return Workload(args.rate, args.p99, args.delay)


def load_model(args: argparse.Namespace) -> Model:
    """The model the options name."""
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
    return _pairs("--state", texts, "INPUT=OUTPUT")


def targets(texts: list[str]) -> dict[str, str]:
    """``--device-target`` options as a mapping. Raises ConfigError as ``states``."""
    return _pairs("--device-target", texts, "DEVICE=TARGET")


def _pairs(option: str, texts: list[str], form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise ConfigError(f"{option} {text!r} is invalid; write {form}")
        if name in pairs:
            raise ConfigError(f"{option} names '{name}' twice; give each once")
        pairs[name] = value
    return pairs


def shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """``--shape`` options as a mapping. Raises ConfigError for a misspelt or repeated one."""
    by_input: dict[str, tuple[int, ...]] = {}
    for text in texts:
        # From the right: an input's name may hold an equals sign.
        name, equals, sizes = text.rpartition("=")
        parts = sizes.lower().split("x") if sizes else []
        if not equals or not name or not all(p.isdecimal() for p in parts):
            raise ConfigError(f"--shape {text!r} is invalid; write INPUT=1x3x224x224")
        if name in by_input:
            raise ConfigError(f"--shape names '{name}' twice; give each input once")
        by_input[name] = tuple(map(int, parts))
    return by_input


def names(text: str, graph: FusedGraph) -> tuple[str, ...]:
    """Ops or source nodes separated by commas, unless the whole text is the name of one."""
    known = {
        *graph.index,
        *(n for op in graph.ops for n in op.sources),
        *(f.name for f in graph.folded),
    }
    # The name of a node may itself hold commas.
    if text in known:
        return (text,)
    return tuple(part for part in map(str.strip, text.split(",")) if part)


def devices(text: str | None) -> tuple[str, ...]:
    """``--devices`` as a tuple: devices are separated by spaces, or by semicolons."""
    return tuple((text or "").replace(";", " ").split())


def stages(text: str) -> int | str:
    """``--stages`` as an argparse type: a number, or ``auto``."""
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"invalid number of stages {text!r}; give 1 or more, or auto"
        )
    return int(text)


def cores(text: str) -> int:
    """``--cores`` as an argparse type: a number of cores."""
    return _number(text, "cores")


def batches(text: str) -> tuple[int, ...] | str:
    """``--batch`` as an argparse type: numbers separated by commas, or ``auto``."""
    return text if text == "auto" else tuple(_number(part, "items") for part in text.split(","))


def streams(text: str) -> int:
    """``--streams`` as an argparse type: a number of streams."""
    return _number(text, "streams")


def replicas(text: str) -> tuple[int, ...]:
    """``--replicas`` as an argparse type: a number for each stage, separated by commas."""
    return tuple(_number(part, "replicas") for part in text.split(","))


def memory(text: str) -> float:
    """A number of bytes, as an argparse type: ``3e9`` or ``3 GB``."""
    try:
        return bytes_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(text: str, things: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid number of {things} {text!r}; give 1 or more")
    return int(text)


def _above_zero(quantity: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    # NaN fails every comparison, so it is refused here too.
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"invalid {quantity} {text!r}; give a number above 0")
    return value


# Finite numbers above zero, as argparse types.
seconds = partial(_above_zero, "time in seconds")
rate = partial(_above_zero, "number of items a second")
p99 = partial(_above_zero, "number of milliseconds")


def delay(text: str) -> float:
    """A number of milliseconds, which may be 0."""
    return 0.0 if text == "0" else p99(text)


tolerance = partial(_above_zero, "tolerance")

SHAPE = repeated("--shape", "INPUT=1x3x224x224", "shape of a dynamic input")
STATE = repeated(
    "--state",
    "INPUT=OUTPUT",
    "input that the next item of a stream gets from an output, or auto: those that inspect "
    "proposes",
)
TRUST = option(
    "--trust-kernels",
    action="store_true",
    help="read a Relax module with kernels of its own, which are code",
)
MODEL = (
    option(
        "model",
        type=Path,
        metavar="MODEL",
        help="ONNX file, Relax module (.json) or exported PyTorch program (.pt2)",
    ),
    SHAPE,
    option(
        "--target", help="target of the kernels, e.g. 'llvm -mcpu=x86-64-v3' (default: this CPU)"
    ),
    repeated(
        "--device-target",
        "DEVICE=TARGET",
        "target of one device, e.g. 'rpc:pi:9090=llvm -mtriple=aarch64-linux-gnu'",
    ),
    option("--tuning", type=Path, metavar="DIR", help="tuning database of `autosplit tune`"),
    STATE,
    TRUST,
)
STUDY = (
    option(
        "study",
        metavar="STUDY",
        help="study file (.toml), database (.db), or name of a study in --storage",
    ),
    option(
        "--storage",
        metavar="URL",
        help="file or database URL of the study (default: AUTOSPLIT_STORAGE, or NAME.db)",
    ),
)
TARGET = (
    option(
        "--format",
        dest="target_format",
        choices=FORMATS,
        default=NATIVE,
        help="write a program for the stages too: in ONNX, in C++ or on Ray (default: native)",
    ),
    option(
        "--no-onnx", action="store_true", help="leave out the copies of TVM's stages as ONNX models"
    ),
)
EXPORT = option("folder", type=Path, metavar="DIR", help="folder written by `export` or `split`")
BATCH = option(
    "--batch",
    type=batches,
    metavar="N[,N...]",
    help="items computed at once: one of these numbers, or auto: 1, doubled while that is "
    "faster (default: 1)",
)
WORKLOAD = (
    option("--rate", type=rate, metavar="R", help="items a second that come by themselves"),
    option("--p99", type=p99, metavar="MS", help="latency that 99 %% of the items keep within"),
    option(
        "--delay",
        type=delay,
        metavar="MS",
        help="longest time that a batch waits to be full (default: what serves most)",
    ),
)
TOLERANCE = option(
    "--tolerance",
    type=tolerance,
    metavar="SHARE",
    help="largest error of outputs as a share of the largest value (default: by the model)",
)
RUNTIME = option(
    "--runtime",
    choices=(*RUNTIMES, AUTO),
    help="runtime of the stages (default auto: the fastest installed one for each stage)",
)
