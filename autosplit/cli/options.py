"""Options that several commands share."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from autosplit.deploy.targets.formats import FORMATS, NATIVE
from autosplit.errors import ConfigError
from autosplit.hardware.runtimes.registry import AUTO, RUNTIMES, TVM
from autosplit.units import bytes_of

if TYPE_CHECKING:
    from autosplit.api import Model
    from autosplit.graph import FusedGraph


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, the shapes of its dynamic inputs, the target."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="ONNX file, Relax module (.json) or exported PyTorch program (.pt2)",
    )
    add_shape(parser)
    parser.add_argument(
        "--target", help="target of the kernels, e.g. 'llvm -mcpu=x86-64-v3' (default: this CPU)"
    )
    parser.add_argument(
        "--device-target",
        action="append",
        default=[],
        metavar="DEVICE=TARGET",
        help="target of one device, e.g. 'rpc:pi:9090=llvm -mtriple=aarch64-linux-gnu'; repeatable",
    )
    parser.add_argument(
        "--tuning",
        type=Path,
        metavar="DIR",
        help="folder of a tuning database, written by `autosplit tune`",
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="INPUT=OUTPUT",
        help="input that the next item of a stream gets from an output; repeatable; "
        "auto: those that inspect proposes",
    )
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Whether a model may bring code."""
    parser.add_argument(
        "--trust-kernels",
        action="store_true",
        help="read a Relax module with kernels of its own, which are code",
    )


def add_shape(parser: argparse.ArgumentParser) -> None:
    """The shapes of dynamic inputs."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1x3x224x224",
        help="shape of a dynamic input; repeatable",
    )


def add_study(parser: argparse.ArgumentParser) -> None:
    """A stored study and its storage."""
    parser.add_argument(
        "study",
        metavar="STUDY",
        help="study file (.toml), database (.db), or name of a study in --storage",
    )
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="file or database URL of the study (default: AUTOSPLIT_STORAGE, or NAME.db)",
    )


def add_output(
    parser: argparse.ArgumentParser, metavar: str, text: str, *, required: bool = False
) -> None:
    """The file or the folder that the command writes."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, required=required, help=text)


def add_target(parser: argparse.ArgumentParser) -> None:
    """What the export is written for."""
    parser.add_argument(
        "--format",
        dest="target_format",
        choices=FORMATS,
        default=NATIVE,
        help="write a program for the stages too: in ONNX, in C++ or on Ray (default: native)",
    )
    parser.add_argument(
        "--no-onnx", action="store_true", help="leave out the copies of TVM's stages as ONNX models"
    )


def add_export(parser: argparse.ArgumentParser) -> None:
    """An exported split."""
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="folder written by `export` or `split`"
    )


def add_batch(parser: argparse.ArgumentParser) -> None:
    """How many items a deployment may compute at once."""
    parser.add_argument(
        "--batch",
        type=batches,
        metavar="N[,N...]",
        help="items computed at once: one of these numbers, or auto: 1, doubled while that is "
        "faster (default: 1)",
    )


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """The relative error that outputs may have."""
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        metavar="SHARE",
        help="largest error of outputs as a share of the largest value (default: by the model)",
    )


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """What runs the stages."""
    parser.add_argument(
        "--runtime",
        choices=(*RUNTIMES, AUTO),
        help="runtime of the stages (default auto: the fastest installed one for each stage)",
    )
    parser.add_argument("--backend", type=_former_name, help=argparse.SUPPRESS)


def _former_name(value: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"is now called --runtime; write --runtime {value}")


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
tolerance = partial(_above_zero, "tolerance")
