"""Run the study of studies/nets/two_cores.toml for every net of the zoo and every runtime.

    python -m studies.benchmarks.zoo_studies [NAME ...] [--trials N] [-o FILE]

NAME is NET or NET_RUNTIME, such as ``squeezenet_onnxruntime``; without one all are run. Each study
starts anew, in a database that is removed afterwards. Exits 1 where a study failed; the others are
run all the same. Periods are those of the final comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosplit.errors import AutosplitError
from autosplit.report.documents.study import document
from autosplit.study.config.study_file import StudyConfig, load
from autosplit.study.record import spread_of
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import finished
from studies.benchmarks.result import arguments, finish, shown

FILE = Path(__file__).resolve().parents[1] / "nets" / "two_cores.toml"
RUNTIMES = ("tvm", "onnxruntime")
NAMES = tuple(f"{net}_{runtime}" for net in catalog.NAMES for runtime in RUNTIMES)
SLOW = ("vgg19",)  # nets that take a second an item: measured longer, over fewer items
BASELINES = ("1 thread", "2 threads", "2 replicas")  # in the runtime of the study
COLUMNS = (
    "study",
    "runtime",
    "trials",
    "best split, ms",
    *(f"{name}, ms" for name in BASELINES),
    "verdict",
)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="NET or NET_RUNTIME")
    parser.add_argument("--trials", type=int, help="at most, instead of what the study file says")
    args = parser.parse_args()
    unknown = set(args.names) - {*NAMES, *catalog.NAMES}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such study; known: {', '.join(NAMES)}")
    rows, failed = [], False
    for name in NAMES:
        net = name.rpartition("_")[0]
        if args.names and not {name, net} & set(args.names):
            continue
        try:
            study = run(config_of(name, args.trials))
        except AutosplitError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        print(f"{name}: {study['verdict']['text']}", file=sys.stderr, flush=True)
        rows.append(row(name, study))
    return finish("zoo_studies", COLUMNS, rows, file=args.file) or int(failed)


def config_of(name: str, trials: int | None = None) -> StudyConfig:
    """The study file with the net and the runtime of ``name`` in place of its own."""
    net, _, runtime = name.rpartition("_")
    changes: dict[str, Any] = {"name": name, "zoo": net, "runtime": runtime}
    if trials:
        changes["search"] = {"trials": trials}
    if net in SLOW:
        changes["measure"] = {"seconds": 6.0, "items": 6}
    return load(FILE, changes)


def run(config: StudyConfig) -> dict[str, Any]:
    """The document of ``autosplit show -f json`` of a study that is run from its start."""
    with finished(config) as study:
        return document(study.study, study.url)


def row(name: str, study: Mapping[str, Any]) -> tuple[str, ...]:
    """A study's best split beside the ways without a split."""
    net, _, runtime = name.rpartition("_")
    best = study["best"] or {}
    periods = {baseline["name"]: baseline["period_ms"] for baseline in study["baselines"]}
    return (
        net,
        runtime,
        str(len(study["trials"])),
        _shown((best.get("final") or best).get("period_ms")),
        *(_shown(periods.get(f"{runtime}, {name}")) for name in BASELINES),
        (study["verdict"] or {}).get("choice", ""),
    )


def _shown(period: object) -> str:
    spread = spread_of(period)
    return shown(spread) if spread else ""


if __name__ == "__main__":
    sys.exit(main())
