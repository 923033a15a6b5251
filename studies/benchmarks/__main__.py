"""Run every benchmark and write the result of each to studies/results/NAME.json.

    python -m studies.benchmarks [NAME ...] [--stale] [--workloads FOLDER] [--folder FOLDER]

NAME is that of a result; without one all are made. FOLDER holds the graph files of
msr-fiddle/dnn-partitioning, which the planner and the search are tried on besides other graphs.
If one fails, for example because a package is missing, the others still run. All of them take most
of a day: ``--stale`` continues a run that was interrupted on this machine. Prints a summary and
exits 1 if a benchmark fails or a bar is missed. Leave the machine alone while it runs. No benchmark
needs a network.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from autosplit.cli.output import emit_table
from autosplit.versions import environment
from studies.benchmarks import result

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
COMMANDS = {
    "planner": "planner {workloads} --wide",
    "deployments": "planner {workloads} --deployments",
    "clusters": "planner {workloads} --clusters",
    "search": "search {workloads}",
    "deployment_search": "search --deployments",
    "kernels": "kernels",
    "kernels_avx2": "kernels --target 'llvm -mcpu=x86-64-v3'",
    "pipeline": "pipeline --seconds 3",
    "onnx_cases": "onnx_cases",
    "architectures": "architectures",
    "serving": "serving",
    "streams": "streams",
    "decoders": "decoders",
    "winners": "winners",
    # The first of architectures.drawn(60) that have at most 20 million parameters.
    "winners_drawn": "winners timm/convnext_atto_rms timm/tf_efficientnetv2_b1 timm/resnet26t "
    "timm/mobilevitv2_150 timm/iformer_l timm/mobilenetv1_100 transformers/squeezebert "
    "transformers/mobilebert",
    # The other nets differ by more than 5 % in bfloat16, and are refused.
    "winners_bfloat16": "winners densenet121 inception_v1 resnet50 squeezenet transformer bert vit "
    "convnext --runtime openvino-bfloat16",
    "targets": "targets",
    "size": "size",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    stale = "leave out those that have a result of this machine and these versions"
    parser.add_argument("--stale", action="store_true", help=stale)
    parser.add_argument("--workloads", type=Path, help="folder with graph files")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where results go (default studies/results)"
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(COMMANDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such benchmark")
    workloads = shlex.quote(str(args.workloads.resolve())) if args.workloads else ""
    rows, codes = list[tuple[object, ...]](), list[int]()
    for name in args.names or COMMANDS:
        file = args.folder.resolve() / f"{name}.json"
        if args.stale and file.exists() and result.read(file).environment == environment():
            continue
        file.unlink(missing_ok=True)
        command = COMMANDS[name].format(workloads=workloads)
        print(f"{name}: {command}", file=sys.stderr, flush=True)
        module, *words = shlex.split(command)
        program = [sys.executable, "-m", f"studies.benchmarks.{module}", *words, "-o", str(file)]
        code = subprocess.run(program, check=False, cwd=ROOT).returncode
        codes.append(code or int(not file.exists()))
        if file.exists():
            written = result.read(file)
            rows.append((name, written.minutes, *written.met_and_missed))
        else:
            rows.append((name, "", "none", f"failed with exit code {code}"))
    emit_table("", ("benchmark", "minutes", "targets met", "missed"), rows)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
