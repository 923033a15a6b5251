"""What is left of a study that is killed again and again, and of one that four workers share while
two of them fail.

    python -m studies.benchmarks.faults [--kills 20] [-o FILE]

On simulated hardware. Killed: a study of 40 trials meets SIGKILL at 20 random moments and is
started again each time; beside it one runs through. Shared: four processes on one study of 60
trials, in SQLite and, where it is installed, in PostgreSQL; one is killed while it measures, one
stopped for longer than its lease. Bars: no finished trial is lost, a kill repeats one trial at
most, none is left running, no split is measured twice, numbers are unique, and the killed study
ends as the other did.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autosplit.errors import MachineError
from autosplit.study.storage import storage_url
from studies.benchmarks.result import Bar, arguments, finish
from tests.study import faults, server

TRIALS, SHARED = 40, 60
DELAY = 0.5  # seconds a measurement takes, so that the study is not over before its last kill


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the moments (default: another one each time)")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    with tempfile.TemporaryDirectory() as folder:
        print(f"{args.kills} kills, seed {seed}", file=sys.stderr, flush=True)
        outcome = faults.killed(Path(folder), args.kills, TRIALS, DELAY, seed)
        rows, bars, notes = (
            [row(f"{args.kills} kills", outcome.remains, str(outcome.lost))],
            [*killed_bars(outcome)],
            [],
        )
        print("four workers in SQLite", file=sys.stderr, flush=True)
        both = {
            "SQLite": faults.shared(storage_url(faults.SHARED, str(Path(folder) / "w.db")), SHARED)
        }
    try:
        with server.running(server.installed()) as running:
            print("four workers in PostgreSQL", file=sys.stderr, flush=True)
            both["PostgreSQL"] = faults.shared(running.url, SHARED)
    except MachineError as error:
        notes.append(f"left out: four workers in PostgreSQL ({error})")
    for name, shared in both.items():
        rows.append(row(f"4 workers, {name}", shared.remains, ""))
        bars += shared_bars(name, shared)
    columns = (
        "study",
        "trials",
        "complete",
        "lost",
        "taken over",
        "left running",
        "measured twice",
    )
    notes.append(
        f"{outcome.kills} of {args.kills} kills met the study before its end; "
        f"their moments have seed {seed}"
    )
    return finish("faults", columns, rows, notes=notes, bars=bars, file=args.file)


def row(name: str, left: faults.Remains, lost: str) -> tuple[object, ...]:
    """A study as a row.

    Taken over: trials that a dead or silent worker left and another measured again.
    """
    again, twice = left.repeated, left.measured_twice
    return name, len(left.states), len(left.keys), lost, again, left.running, twice


def killed_bars(outcome: faults.Killed) -> Iterator[Bar]:
    yield Bar("killed: finished trials lost or changed", str(outcome.lost), "0", outcome.lost == 0)
    repeated = outcome.remains.repeated
    yield Bar(
        "killed: trials repeated",
        str(repeated),
        f"at most {outcome.kills}, one a kill",
        repeated <= outcome.kills,
    )
    yield from whole("killed", outcome.remains, TRIALS)
    end = "the same" if outcome.same_end else "another"
    yield Bar("killed: end against the study that ran through", end, "the same", outcome.same_end)


def shared_bars(name: str, outcome: faults.Shared) -> Iterator[Bar]:
    codes = " ".join(map(str, outcome.codes))
    yield Bar(f"{name}: exit codes of the three that lived", codes, "0 0 0", not any(outcome.codes))
    left = outcome.remains
    unique = left.numbers == tuple(range(len(left.numbers)))
    yield Bar(f"{name}: numbers", "unique" if unique else "NOT unique", "unique", unique)
    yield from whole(name, left, SHARED)


def whole(name: str, left: faults.Remains, trials: int) -> Iterator[Bar]:
    yield Bar(
        f"{name}: complete trials", str(len(left.keys)), str(trials), len(left.keys) == trials
    )
    yield Bar(f"{name}: left running", str(left.running), "0", left.running == 0)
    yield Bar(
        f"{name}: splits measured twice", str(left.measured_twice), "0", left.measured_twice == 0
    )


if __name__ == "__main__":
    sys.exit(main())
