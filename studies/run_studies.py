"""Run the study files of studies/nets and keep each result as studies/results/studies/NAME.json.

    python studies/run_studies.py [NAME ...] [--trials N] [--folder FOLDER]

NAME is that of a study file without ``.toml``; all are run without one. Each study starts anew, in a database that is gone
afterwards. A result holds what `autosplit show -f json` prints, the machine and versions, the date and the command. Exits 1
where a study failed; the others are run all the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from one_study import finished
from outcome import command_line, today, write

from autosplit.deploy.environment import environment
from autosplit.errors import AutosplitError
from autosplit.report.documents.study import document
from autosplit.study.config.study_file import StudyConfig, load

HERE = Path(__file__).resolve().parent
NETS = HERE / "nets"
RESULTS = HERE / "results" / "studies"


def main() -> int:
    known = sorted(file.stem for file in NETS.glob("*.toml"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--trials", type=int, help="at most, instead of what the study files say")
    parser.add_argument(
        "--folder",
        type=Path,
        default=RESULTS,
        help="where results go (default studies/results/studies)",
    )
    args = parser.parse_args()
    if unknown := set(args.names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: no such study file in studies/nets")
    failed = []
    for name in args.names or known:
        try:
            found = study(load(NETS / f"{name}.toml", {"search": {"trials": args.trials}}))
        except AutosplitError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
            continue
        shown = [*(["--trials", str(args.trials)] if args.trials else ()), name]
        write(
            args.folder / f"{name}.json", {"command": command_line([sys.argv[0], *shown]), **found}
        )
        print(f"{name}: {found['verdict']['text']}", flush=True)
    return int(bool(failed))


def study(config: StudyConfig) -> dict[str, Any]:
    """The result of a study that is run from its start."""
    with finished(config) as on:
        found = document(on.study, on.url)
    found["study"]["storage"] = Path(found["study"]["storage"]).name
    return {"date": today(), "environment": environment(), **found}


if __name__ == "__main__":
    sys.exit(main())
